/** enableTessera(): what it sets, what it finds, and what it refuses. The library itself may be anything here. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { library as cpuLibrary } from "@tessera/cpu";
import { afterAll, beforeEach, describe, expect, test, vi } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "tessera-enable-"));
afterAll(() => rmSync(folder, { recursive: true }));
const library = join(folder, "libggml-tessera-2.so");
writeFileSync(library, "");

const found: { library: string | undefined; platformPackage: string } = { library, platformPackage: "@tessera/ggml-x" };
vi.mock("../library.cjs", () => found);
beforeEach(() => {
  found.library = library;
  vi.resetModules();
});
const load = () => import("../src/index.js");

/** A program's folder with a node-llama-cpp in it. */
function program(version: string, tag?: string): string {
  const home = mkdtempSync(join(folder, "program-"));
  const runtime = join(home, "node_modules/node-llama-cpp");
  mkdirSync(join(runtime, "llama"), { recursive: true });
  writeFileSync(join(runtime, "package.json"), JSON.stringify({ name: "node-llama-cpp", version }));
  if (tag) writeFileSync(join(runtime, "llama/llama.cpp.info.json"), JSON.stringify({ tag }));
  return home;
}

test("sets the variables, and says what to pass", async () => {
  const { enableTessera, apiVersion, library: path } = await load();
  const env: NodeJS.ProcessEnv = {};
  const from = program("3.22.1", "v0.5.0");
  expect(enableTessera({ env, from })).toEqual({
    library,
    runtime: { name: "node-llama-cpp", version: "3.22.1", llamaCpp: "v0.5.0", known: true },
    contextOptions: { flashAttention: true },
  });
  expect(path).toBe(library);
  expect(apiVersion).toBe(2);
  expect(env.GGML_BACKEND_PATH).toBe(library);
  if (cpuLibrary !== undefined) expect(env.TESSERA_GGML_ENGINES).toBe(dirname(cpuLibrary));
  // Again is no other library.
  expect(enableTessera({ env, from }).library).toBe(library);
});

test("process.env if no other is given", async () => {
  const { enableTessera } = await load();
  vi.stubEnv("GGML_BACKEND_PATH", "");
  vi.stubEnv("TESSERA_GGML_ENGINES", "");
  enableTessera({ from: false });
  expect(process.env.GGML_BACKEND_PATH).toBe(library);
  vi.unstubAllEnvs();
});

test("finds the CUDA engine where the program has it", async () => {
  const { enableTessera } = await load();
  const from = program("3.22.1");
  const engines = () => {
    const env: NodeJS.ProcessEnv = {};
    enableTessera({ env, from });
    return env.TESSERA_GGML_ENGINES?.split(":") ?? [];
  };
  const before = engines();
  const cuda = join(from, "node_modules/@tessera/cuda");
  mkdirSync(cuda, { recursive: true });
  writeFileSync(join(cuda, "index.js"), "exports.library = undefined;");
  expect(engines()).toEqual(before);
  const other = program("3.22.1");
  const found = join(other, "node_modules/@tessera/cuda");
  mkdirSync(found, { recursive: true });
  writeFileSync(join(found, "index.js"), "exports.library = '/engines/libtessera-cuda.so';");
  const env: NodeJS.ProcessEnv = {};
  enableTessera({ env, from: other });
  expect(env.TESSERA_GGML_ENGINES?.split(":")).toEqual([...before, "/engines"]);
});

test("one thread takes everything from the start, unless the variable says otherwise", async () => {
  const { enableTessera } = await load();
  const after = (threads: number | undefined, before?: string) => {
    const env: NodeJS.ProcessEnv = before === undefined ? {} : { TESSERA_GGML_SMALL: before };
    const { contextOptions } = enableTessera({ env, from: false, ...(threads !== undefined && { threads }) });
    return [contextOptions, env.TESSERA_GGML_SMALL];
  };
  expect(after(1)).toEqual([{ flashAttention: true, threads: 1 }, "take"]);
  expect(after(1, "auto")).toEqual([{ flashAttention: true, threads: 1 }, "auto"]);
  expect(after(2)).toEqual([{ flashAttention: true, threads: 2 }, undefined]);
  expect(after(undefined)).toEqual([{ flashAttention: true }, undefined]);
});

describe("the runtime", () => {
  test.each([
    ["a release that nobody has looked at", "4.0.0", false],
    ["one without a release file", "3.22.0", true],
  ])("%s", async (_, version, known) => {
    const { enableTessera } = await load();
    const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const { runtime } = enableTessera({ env: {}, from: program(version) });
    expect(warned.mock.calls.map(([text]) => text)).toEqual(
      known ? [] : [expect.stringContaining("node-llama-cpp 4.0.0")],
    );
    warned.mockRestore();
    expect(runtime).toEqual({ name: "node-llama-cpp", version, llamaCpp: undefined, known });
  });

  test("is found from a folder below, and needn't be there", async () => {
    const { enableTessera } = await load();
    const below = join(program("3.22.1"), "src/deep");
    mkdirSync(below, { recursive: true });
    expect(enableTessera({ env: {}, from: below }).runtime?.version).toBe("3.22.1");
    expect(enableTessera({ env: {}, from: folder }).runtime).toBeUndefined();
    expect(enableTessera({ env: {}, from: false }).runtime).toBeUndefined();
  });
});

describe("refuses", () => {
  const cases: readonly [string, object, string, RegExp][] = [
    ["a relative folder", { from: "src" }, "invalid-argument", /from is "src", must be an absolute path or false/],
    ["a number", { from: 3 }, "invalid-argument", /from is 3, must be/],
    ["no threads", { threads: 0 }, "invalid-argument", /threads is 0, must be an integer of at least 1/],
    ["half a thread", { threads: 1.5 }, "invalid-argument", /threads is 1\.5, must be an integer/],
    ["no environment", { env: null }, "invalid-argument", /env is null, must be an object/],
    [
      "another library in the variable",
      { env: { GGML_BACKEND_PATH: "/else.so" }, from: false },
      "already-set",
      /GGML_BACKEND_PATH is \/else\.so/,
    ],
  ];
  test.each(cases)("%s", async (_, options, code, words) => {
    const { enableTessera, TesseraGgmlError } = await load();
    const env: NodeJS.ProcessEnv = {};
    const call = () => enableTessera({ env, ...options });
    expect(call).toThrow(words);
    expect(call).toThrow(TesseraGgmlError);
    expect(call).toThrow(expect.objectContaining({ code }));
    expect(env).toEqual({});
  });

  test("to go on without a library", async () => {
    found.library = undefined;
    const { enableTessera } = await load();
    const env: NodeJS.ProcessEnv = {};
    const call = () => enableTessera({ env, from: false });
    expect(call).toThrow(expect.objectContaining({ code: "library-missing" }));
    expect(call).toThrow(/@tessera\/ggml-x isn't installed/);
    expect(env).toEqual({});
  });
});
