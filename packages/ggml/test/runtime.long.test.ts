/** The plug-in in real software: node-llama-cpp's prebuilt binary on the tiny model. llama.cpp's own tests are backend-ops/run.mjs. */
import { execFile, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
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
  const { GGML_BACKEND_PATH: _, ...rest } = process.env;
  return Object.fromEntries(Object.entries(rest).filter(([name]) => !/^TESSERA_(BACKEND_PATH|GGML_)/.test(name)));
};
/** Small problems are taken too, unless `more` says otherwise: the model has no others. */
const enabled = (more: NodeJS.ProcessEnv = {}) => {
  const env: NodeJS.ProcessEnv = { ...clean(), TESSERA_GGML_LOG: "1", TESSERA_GGML_SMALL: "take", ...more };
  enableTessera({ from: runtime, env });
  return env;
};

interface Answer {
  readonly logits: readonly (readonly number[])[];
  readonly text: string;
  readonly log: readonly string[];
  readonly stderr: string;
}

/** `cwd`: elsewhere, for no node_modules of this clone to be found from the working directory. */
async function runInNode(env: NodeJS.ProcessEnv, options: object, cwd?: string): Promise<Answer> {
  const program = join(here, "programs/runtime.mjs");
  const args = [program, runtime, model, JSON.stringify({ threads: 1, ...options })];
  const started = promisify(execFile)(process.execPath, args, { env, cwd, maxBuffer: 1 << 28 });
  const { stdout, stderr } = await started; // rejects with stderr in its message, if it ended with another status than 0
  return { ...JSON.parse(stdout.trim().split("\n").at(-1)!), stderr };
}

/** The plug-in's last count. */
const calls = ({ stderr }: Answer) => Number([...stderr.matchAll(/(\d+) calls so far/g)].at(-1)?.[1] ?? 0);

// Two at a time: most of them take one thread.
describe.concurrent("node-llama-cpp's prebuilt binary", () => {
  const { tokens, wanted, width } = readLogits();

  // A batch of many tokens ggml's flash attention computes in fp32 tiles, and all three are as far from the truth, by the
  // matrix products around. Few tokens it adds up in fp16.
  test.each([
    [512, 1.5],
    [8, 1],
  ])("logits in batches of %i: those of ggml's CPU, and near to the truth", async (batchSize, times) => {
    const off = await runInNode(clean(), { flashAttention: false, batchSize, tokens });
    const theirs = await runInNode(clean(), { flashAttention: true, batchSize, tokens });
    const ours = await runInNode(enabled(), { flashAttention: true, batchSize, tokens });
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

  test("greedy text is the same", async () => {
    const options = {
      flashAttention: true,
      prompt: "In the beginning God created the heaven and the earth. And",
      count: 200,
    };
    const theirs = await runInNode(clean(), options);
    const ours = await runInNode(enabled(), options);
    expect(ours.text).toBe(theirs.text);
    expect(ours.text.length).toBeGreaterThan(150);
    expect(calls(ours)).toBeGreaterThanOrEqual(6 * 200);
  });

  // By default: each attention that is taken makes ggml start its threads anew after it, so small ones are left to ggml, but
  // where it has one thread, which the plug-in knows once something was computed.
  test.each([
    [1, "tokens alone", 50, 6 * (50 - 1)],
    [2, "no token alone", 8, 0],
  ])("with %i thread(s) and a short prompt it takes %s", async (threads, _, count, wanted) => {
    const options = { flashAttention: true, threads, prompt: "In the beginning", count };
    const theirs = await runInNode(clean(), options);
    const ours = await runInNode(enabled({ TESSERA_GGML_SMALL: "" }), options);
    expect(calls(ours)).toBe(wanted);
    expect(ours.stderr).toContain("left to ggml: small, and several threads");
    expect(ours.text).toBe(theirs.text);
  });

  // Of this model, whose heads are few, that is a prompt of 2,000 tokens in one batch, twice what it has learnt to read.
  test("with two threads it takes what is large enough", async () => {
    const prompt = "And God said, Let there be light: and there was light. ".repeat(40).slice(0, 2000);
    const ours = await runInNode(enabled({ TESSERA_GGML_SMALL: "auto" }), {
      ...{ flashAttention: true, threads: 2, prompt, count: 3, contextSize: 2048, batchSize: 2048 },
    });
    expect(calls(ours)).toBe(6);
  });

  test.each(["Q8_0", "Q4_0", "F32", "Q5_1"])("a cache of %s", async (cache) => {
    const options = { flashAttention: true, cache, tokens: tokens.slice(0, 64) };
    const off = await runInNode(clean(), options);
    const ours = await runInNode(enabled(), options);
    expect(calls(ours)).toBeGreaterThan(0);
    // ggml rounds queries to 8 bits for quantised keys; the engine doesn't.
    expect(nmse(Float64Array.from(ours.logits.flat()), Float64Array.from(off.logits.flat()))).toBeLessThan(2e-3);
  });

  test("without the engine: one line, and the runtime goes on", async () => {
    const env = enabled({ TESSERA_GGML_LOG: "" });
    // As copied to a machine that has nothing else of Tessera.
    const alone = join(mkdtempSync(join(folder, "alone-")), "libggml-tessera-2.so");
    copyFileSync(env.GGML_BACKEND_PATH!, alone);
    const { log, stderr } = await spawnAlone({ ...clean(), GGML_BACKEND_PATH: alone });
    const errors = log.filter((line) => /^(error|warn)/.test(line));
    const lines = [...errors, ...stderr.split("\n")].filter((line) => /tessera/i.test(line));
    expect(lines.length, lines.join("\n")).toBe(1);
    expect(lines[0]).toMatch(/tessera: not used: no libtessera-cpu\.so \(tried .*\); set TESSERA_BACKEND_PATH/);
  });

  test.each([
    ["a file that is no library", "x", /can't open the engine/],
    ["an older engine", "other library", /libtessera-cpu\.so doesn't speak version \d+ of the engine's contract/],
    ["a mode that doesn't exist", undefined, /TESSERA_GGML_DEVICE is tpu, must be auto, cpu or cuda/],
    ["a word that doesn't exist", undefined, /TESSERA_GGML_SMALL is never, must be auto or take/],
    ["a GPU that the runtime hasn't", undefined, /no libtessera-cuda\.so|no CUDA device|can't be used/],
  ])("%s: the runtime goes on", async (name, content, words) => {
    const env = enabled();
    if (content !== undefined) {
      const place = mkdtempSync(join(folder, "broken-"));
      const engine = join(place, "libtessera-cpu.so");
      if (content === "x") writeFileSync(engine, content);
      else copyFileSync(join(build.prebuilt, "libggml-base.so"), engine);
      env.GGML_BACKEND_PATH = join(place, "libggml-tessera-2.so");
      copyFileSync(build.plugin, env.GGML_BACKEND_PATH);
    }
    if (/mode/.test(name)) env.TESSERA_GGML_DEVICE = "tpu";
    if (/word/.test(name)) env.TESSERA_GGML_SMALL = "never";
    if (/GPU/.test(name)) env.TESSERA_GGML_DEVICE = "cuda";
    const { log, text } = await spawnAlone(env);
    const said = log.filter((line) => /tessera: /.test(line));
    expect(said.length, said.join("\n")).toBe(1);
    expect(said[0]).toMatch(words);
    expect(text.length).toBeGreaterThan(0);
  });

  test("a plug-in for another API version: the runtime says so and goes on", async () => {
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
    const { log, text, stderr } = await spawnAlone(env);
    expect(log.join("\n")).toMatch(/incompatible API version \(backend: 3, current: 2\)/);
    expect(text.length).toBeGreaterThan(0);
    expect(stderr).not.toContain("calls so far: ");
  });

  function spawnAlone(env: NodeJS.ProcessEnv): Promise<Answer> {
    return runInNode(env, { flashAttention: true, prompt: "And God said", count: 3 }, tmpdir());
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
