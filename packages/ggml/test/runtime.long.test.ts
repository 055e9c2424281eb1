/** The plug-in in real software: llama.cpp's own operator tests, and node-llama-cpp's prebuilt binary on the tiny model. */
import { spawn, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
// Plain JavaScript without types, which build scripts are.
// @ts-expect-error
import * as build from "../../../scripts/lib/ggml.mjs";
import { enableTessera } from "../src/index.js";

const here = dirname(fileURLToPath(import.meta.url));
const model = join(here, "data/tiny-kjv.gguf");
const runtime: string = build.runtimeFolder;
const hindrance: string | undefined =
  process.platform === "linux" && process.arch === "x64"
    ? (build.installRuntime() ?? build.unpackSources())
    : "the runtime's prebuilt libraries that are installed are for linux-x64";
if (hindrance === undefined) build.buildPlugin("ggml-tessera");
beforeEach((context) => {
  if (hindrance !== undefined) context.skip(hindrance);
});

const folder = mkdtempSync(join(tmpdir(), "tessera-ggml-"));
afterAll(() => rmSync(folder, { recursive: true }));

const clean = () => {
  const { GGML_BACKEND_PATH: _, TESSERA_BACKEND_PATH: __, TESSERA_GGML_ENGINES: ___, ...rest } = process.env;
  return rest;
};
const enabled = (more: NodeJS.ProcessEnv = {}) => {
  const env: NodeJS.ProcessEnv = { ...clean(), TESSERA_GGML_LOG: "1", ...more };
  enableTessera({ from: runtime, env });
  return env;
};

interface Answer {
  readonly logits: readonly (readonly number[])[];
  readonly text: string;
  readonly log: readonly string[];
  readonly stderr: string;
}

function runInNode(env: NodeJS.ProcessEnv, options: object): Answer {
  const program = join(here, "programs/runtime.mjs");
  const args = [program, runtime, model, JSON.stringify({ threads: 1, ...options })];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", env, maxBuffer: 1 << 28 });
  expect(status, stderr).toBe(0);
  return { ...JSON.parse(stdout.trim().split("\n").at(-1)!), stderr };
}

/** The plug-in's last count. */
const calls = ({ stderr }: Answer) => Number([...stderr.matchAll(/(\d+) calls so far/g)].at(-1)?.[1] ?? 0);

describe("llama.cpp's test-backend-ops", () => {
  // Two processes, as each works on one thread; all cases between them.
  const halves = ["hsk=(64|40|80|96),", "hsk=(72|128|192|256|320|512|576),"];

  function ops(filter: string): Promise<{ passed: number; total: number; unsupported: string[]; failed: string[] }> {
    const args = ["test", "-o", "FLASH_ATTN_EXT", "-b", "Tessera", "-p", filter];
    // Started where the prebuilt libraries are: it looks for back ends beside itself and in the working directory.
    const child = spawn(build.buildBackendOps(), args, { cwd: build.prebuilt, env: enabled() });
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (text) => {
      said += text;
    });
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (status) => {
        const [, passed = 0, total = 0] = /(\d+)\/(\d+) tests passed/.exec(said) ?? [];
        const lines = said.split("\n").filter((line) => line.includes("FLASH_ATTN_EXT("));
        const failed = lines.filter((line) => /FAIL|ERR/.test(line));
        if (status !== 0 && failed.length === 0) failed.push(`ended with ${status}: ${said.slice(-500)}`);
        resolve({
          passed: Number(passed),
          total: Number(total),
          unsupported: lines.filter((line) => line.includes("not supported")),
          failed,
        });
      });
    });
  }

  test("FLASH_ATTN_EXT passes whole; what is left to ggml are heads of more than 512 dims", async () => {
    const results = await Promise.all(halves.map(ops));
    expect(results.flatMap(({ failed }) => failed)).toEqual([]);
    const sum = (of: (result: (typeof results)[number]) => number) => results.reduce((all, one) => all + of(one), 0);
    expect(sum(({ passed }) => passed)).toBe(sum(({ total }) => total));
    expect(sum(({ passed }) => passed)).toBeGreaterThan(5000);
    for (const line of results.flatMap(({ unsupported }) => unsupported)) expect(line).toContain("hsk=576");
  });
});

describe("node-llama-cpp's prebuilt binary", () => {
  const { tokens, wanted, width } = readLogits();

  // A batch of many tokens ggml's flash attention computes in fp32 tiles, and all three are as far from the truth, by the
  // matrix products around. Few tokens it adds up in fp16.
  test.each([
    [512, 1.5],
    [8, 1],
  ])("logits in batches of %i: those of ggml's CPU, and near to the truth", (batchSize, times) => {
    const off = runInNode(clean(), { flashAttention: false, batchSize, tokens });
    const theirs = runInNode(clean(), { flashAttention: true, batchSize, tokens });
    const ours = runInNode(enabled(), { flashAttention: true, batchSize, tokens });
    expect(calls(theirs)).toBe(0);
    // Each batch of each of the six layers, every one by the mask's shape alone.
    expect(calls(ours)).toBeGreaterThanOrEqual(6 * (tokens.length / batchSize));
    expect(ours.stderr).toMatch(/calls so far: [1-9]\d* by the mask's shape, 0 with its cells/);
    const flat = ({ logits }: Answer) => Float64Array.from(logits.flat());
    expect(flat(ours).length).toBe(wanted.length);
    const figures = {
      fromGgml: nmse(flat(ours), flat(off)),
      truth: nmse(flat(ours), wanted),
      theirsTruth: nmse(flat(theirs), wanted),
      offTruth: nmse(flat(off), wanted),
    };
    console.log(`logits, ${tokens.length} tokens × ${width}: nmse ${JSON.stringify(figures)}`);
    expect(figures.fromGgml).toBeLessThanOrEqual(1e-5);
    expect(figures.truth).toBeLessThan(times * figures.theirsTruth);
  });

  test("greedy text is the same", () => {
    const options = {
      flashAttention: true,
      prompt: "In the beginning God created the heaven and the earth. And",
      count: 200,
    };
    const theirs = runInNode(clean(), options);
    const ours = runInNode(enabled(), options);
    expect(ours.text).toBe(theirs.text);
    expect(ours.text.length).toBeGreaterThan(150);
    expect(calls(ours)).toBeGreaterThanOrEqual(6 * 200);
  });

  test.each(["Q8_0", "Q4_0", "F32", "Q5_1"])("a cache of %s", (cache) => {
    const options = { flashAttention: true, cache, tokens: tokens.slice(0, 64) };
    const off = runInNode(clean(), options);
    const ours = runInNode(enabled(), options);
    expect(calls(ours)).toBeGreaterThan(0);
    // ggml rounds queries to 8 bits for quantised keys; the engine doesn't.
    expect(nmse(Float64Array.from(ours.logits.flat()), Float64Array.from(off.logits.flat()))).toBeLessThan(2e-3);
  });

  test("without the engine: one line, and the runtime goes on", () => {
    const env = enabled({ TESSERA_GGML_LOG: "" });
    // As copied to a machine that has nothing else of Tessera.
    const alone = join(mkdtempSync(join(folder, "alone-")), "libggml-tessera-2.so");
    copyFileSync(env.GGML_BACKEND_PATH!, alone);
    const { log, stderr } = spawnAlone({ ...clean(), GGML_BACKEND_PATH: alone });
    const errors = log.filter((line) => /^(error|warn)/.test(line));
    const lines = [...errors, ...stderr.split("\n")].filter((line) => /tessera/i.test(line));
    expect(lines.length, lines.join("\n")).toBe(1);
    expect(lines[0]).toMatch(/tessera: not used: no libtessera-cpu\.so \(tried .*\); set TESSERA_BACKEND_PATH/);
  });

  test.each([
    ["a file that is no library", "x", /can't open the engine/],
    ["a mode that doesn't exist", undefined, /TESSERA_GGML_DEVICE is tpu, must be cpu or cuda/],
    ["a GPU that the runtime hasn't", undefined, /no libtessera-cuda\.so|no CUDA device|can't be used/],
  ])("%s: the runtime goes on", (name, content, words) => {
    const env = enabled();
    if (content !== undefined) {
      const place = mkdtempSync(join(folder, "broken-"));
      writeFileSync(join(place, "libtessera-cpu.so"), content);
      env.GGML_BACKEND_PATH = join(place, "libggml-tessera-2.so");
      copyFileSync(build.plugin, env.GGML_BACKEND_PATH);
    }
    if (/mode/.test(name)) env.TESSERA_GGML_DEVICE = "tpu";
    if (/GPU/.test(name)) env.TESSERA_GGML_DEVICE = "cuda";
    const { log, text } = spawnAlone(env);
    expect(log.join("\n")).toMatch(words);
    expect(text.length).toBeGreaterThan(0);
  });

  test("a plug-in for another API version: the runtime says so and goes on", () => {
    const headers = mkdtempSync(join(folder, "headers-"));
    for (const file of ["ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-backend-impl.h"]) {
      const source = readFileSync(join(build.headers, file), "utf8");
      writeFileSync(
        join(headers, file),
        source.replace("#define GGML_BACKEND_API_VERSION 2", "#define GGML_BACKEND_API_VERSION 3"),
      );
    }
    const configured = spawnSync("cmake", [
      ...["-S", join(here, "../native"), "-B", join(folder, "build"), `-DTSR_GGML_HEADERS=${headers}`],
      `-DTSR_GGML_LIBRARY_FOLDER=${folder}`,
    ]);
    expect(configured.status).toBe(0);
    expect(spawnSync("cmake", ["--build", join(folder, "build"), "--target", "ggml-tessera"]).status).toBe(0);
    const env = { ...enabled(), GGML_BACKEND_PATH: join(folder, "libggml-tessera-3.so") };
    const { log, text, stderr } = spawnAlone(env);
    expect(log.join("\n")).toMatch(/incompatible API version \(backend: 3, current: 2\)/);
    expect(text.length).toBeGreaterThan(0);
    expect(stderr).not.toContain("calls so far: ");
  });

  /** Started from elsewhere, so that no node_modules of this clone is found from the working directory. */
  function spawnAlone(env: NodeJS.ProcessEnv): Answer {
    const options = { flashAttention: true, prompt: "And God said", count: 3, threads: 1 };
    const args = [join(here, "programs/runtime.mjs"), runtime, model, JSON.stringify(options)];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", env, cwd: tmpdir() });
    expect(status, stderr).toBe(0);
    return { ...JSON.parse(stdout.trim().split("\n").at(-1)!), stderr };
  }
});

function readLogits() {
  const bytes = readFileSync(join(here, "data/logits.safetensors"));
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString("utf8", 8, 8 + length));
  const array = (name: string) => {
    const [from, to] = header[name].data_offsets;
    return bytes.subarray(8 + length + from, 8 + length + to);
  };
  const tokens = array("tokens");
  const logits = array("logits");
  return {
    tokens: Array.from({ length: tokens.length / 4 }, (_, i) => tokens.readInt32LE(4 * i)),
    wanted: Float64Array.from({ length: logits.length / 4 }, (_, i) => logits.readFloatLE(4 * i)),
    width: header.logits.shape[1] as number,
  };
}

/** Mean square of the difference over that of what was wanted. */
function nmse(got: Float64Array, wanted: Float64Array): number {
  let difference = 0;
  let size = 0;
  for (let i = 0; i < wanted.length; i++) {
    difference += (got[i]! - wanted[i]!) ** 2;
    size += wanted[i]! ** 2;
  }
  return difference / size;
}
