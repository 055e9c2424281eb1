// Tessera's CPU back end beside onnxruntime's attention ops and ggml's flash_attn_ext, in one run on one machine.
//
//   npm install --ignore-scripts
//   node run.mjs [--threads 2] [--filter REGEX] [--rounds 7] [--pause 80] [--tools FOLDER] [--json FILE]
//
// Contestants take turns, round after round, so that whatever else the machine does hits all alike. A turn is a pause, in
// which the threads of whoever came before stop spinning (onnxruntime's can't be told to from here), one untimed call, and
// three timed ones; of calls that take a second, one timed one alone. Figures are medians. Outputs are compared before anything is timed. Caches of one token's cases take
// turns, too, so that they come out of memory. ggml runs in a process of its own, which times itself; its better order of
// K and V in memory counts. GFLOP/s count the visible half of causal cases. Needs a C++ compiler for the two small
// programs (--tools: a folder that has them built already).
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { onnxruntimeContestants } from "./onnxruntime.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({
  options: {
    threads: { type: "string", default: "2" },
    filter: { type: "string", default: "" },
    rounds: { type: "string", default: "7" },
    pause: { type: "string", default: "80" },
    tools: { type: "string" },
    core: { type: "string", default: "../../packages/core/dist/index.js" },
    json: { type: "string" },
  },
});
const { decode, encode, openEngine } = await import(values.core);
const threads = Number(values.threads);
const rounds = Number(values.rounds);
const scratch = mkdtempSync(join(tmpdir(), "tessera-peers-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

/** type: of k and v, and of q where that is a prefill; copies of k and v that take turns. */
const grouped = { heads: 32, kvHeads: 8, dim: 128 };
const small = { heads: 8, kvHeads: 8, sq: 77, sk: 77, causal: false, type: "f32", atLeast: 1.2 };
const cases = [
  { name: "512² causal f32", ...grouped, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.5 },
  { name: "1024² causal f32", ...grouped, sq: 1024, sk: 1024, causal: true, type: "f32", atLeast: 1.5 },
  { name: "4096² causal f32", ...grouped, sq: 4096, sk: 4096, causal: true, type: "f32", atLeast: 2 },
  { name: "1024² causal bf16", ...grouped, sq: 1024, sk: 1024, causal: true, type: "bf16", atLeast: 2.5 },
  { name: "1024² causal f16", ...grouped, sq: 1024, sk: 1024, causal: true, type: "f16" },
  { name: "1×4096 f16", ...grouped, sq: 1, sk: 4096, type: "f16", copies: 8, atLeast: 1.5 },
  { name: "1×16384 f16", ...grouped, sq: 1, sk: 16384, type: "f16", copies: 3, atLeast: 1.5 },
  { name: "1×16384 q8_0", ...grouped, sq: 1, sk: 16384, type: "q8_0", copies: 4, atLeast: 2 },
  { name: "1×16384 q4_0", ...grouped, sq: 1, sk: 16384, type: "q4_0", copies: 8, atLeast: 2 },
  { name: "512² causal f32 D 64", ...grouped, dim: 64, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.2 },
  { name: "512² causal f32 D 80", ...grouped, dim: 80, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.2 },
  { name: "512² causal f32 D 256", ...grouped, dim: 256, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.2 },
  { name: "8 heads × 77² f32 D 64", ...small, dim: 64 },
  { name: "8 heads × 77² f32 D 80", ...small, dim: 80 },
  { name: "8 heads × 77² f32 D 256", ...small, dim: 256 },
].filter(({ name }) => new RegExp(values.filter).test(name));

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const median = (samples) => samples.slice().sort((a, b) => a - b)[samples.length >> 1];

function normal(count) {
  const out = new Float32Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - Math.random()));
    const angle = 2 * Math.PI * Math.random();
    out[i] = radius * Math.cos(angle);
    if (i + 1 < count) out[i + 1] = radius * Math.sin(angle);
  }
  return out;
}

/** The two programs, built once if no folder has them. */
function tool(name, ...flags) {
  const built = join(values.tools ?? scratch, name);
  if (!existsSync(built)) {
    execFileSync(process.env.CXX ?? "c++", [
      "-std=c++17",
      "-O2",
      ...flags,
      join(here, `${name}.cpp`),
      "-o",
      built,
      "-ldl",
    ]);
  }
  return built;
}

/** Untimed calls of a turn, and timed ones. */
const callsOf = (c) => (c.sq >= 4096 ? { before: 0, timed: 1 } : { before: 1, timed: 3 });

const turnsOf = (run) => async (before, calls) => {
  for (let i = 0; i < before; i++) await run();
  const samples = [];
  for (let i = 0; i < calls; i++) {
    const start = performance.now();
    await run();
    samples.push(performance.now() - start);
  }
  return samples;
};

function tesseraContestant(engine, c, { q, k, v }) {
  const qType = c.sq > 1 ? c.type : "f32";
  const kv = { shape: [1, c.sk, c.kvHeads, c.dim], dtype: c.type };
  const shape = [1, c.sq, c.heads, c.dim];
  const calls = Array.from({ length: c.copies ?? 1 }, () => ({
    q: engine.tensor(encode(q, qType), { shape, dtype: qType }),
    k: engine.tensor(k, kv),
    v: engine.tensor(v, kv),
    out: engine.tensor(encode(new Float32Array(q.length), qType), { shape, dtype: qType }),
    causal: c.causal === true,
  }));
  let turn = 0;
  const run = async () => {
    const call = calls[turn++ % calls.length];
    await engine.attention(call);
    return call.out;
  };
  return {
    name: `tessera ${engine.explain(calls[0]).kernel}`,
    output: async () => (await run()).readFloat32(),
    turn: turnsOf(run),
    close: () => {
      for (const call of calls) for (const t of [call.q, call.k, call.v, call.out]) t.dispose();
    },
  };
}

const ggmlLibraries = () => {
  const arch = { x64: "linux-x64", arm64: "linux-arm64" }[process.arch];
  const folder = join(here, "node_modules/@node-llama-cpp", arch, "bins", arch);
  return existsSync(folder) ? folder : undefined;
};

async function ggmlContestant(c, type, order, { q, k, v }) {
  const libraries = ggmlLibraries();
  if (!libraries) return undefined;
  const folder = mkdtempSync(join(scratch, "ggml-"));
  const files = {
    q,
    k: type === c.type ? k : encode(decode(k, c.type), type),
    v: type === c.type ? v : encode(decode(v, c.type), type),
  };
  for (const [name, data] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.bin`), Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  }
  const shape = [c.sq, c.sk, c.heads, c.kvHeads, c.dim, c.causal ? 1 : 0, threads, c.copies ?? 1];
  const child = spawn(tool("ggml_peer"), [libraries, type, order, ...shape.map(String), folder], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, LD_LIBRARY_PATH: libraries },
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error("ggml_peer ended early");
    return value;
  };
  const library = await next();
  const out = readFileSync(join(folder, "out.bin"));
  rmSync(folder, { recursive: true });
  return {
    name: `ggml flash_attn_ext ${type}, ${order} (${library})`,
    output: () => new Float32Array(out.buffer, out.byteOffset, out.length / 4),
    turn: async (before, calls) => {
      const samples = [];
      for (let i = -before; i < calls; i++) {
        child.stdin.write("\n");
        const ms = Number(await next());
        if (i >= 0) samples.push(ms);
      }
      return samples;
    },
    close: () => child.kill(),
  };
}

/** Types that a peer may use for a case: its own, or for bf16 (which onnxruntime's CPU ops lack) the others. */
async function contestantsOf(engine, c) {
  const elements = (tokens, heads) => tokens * heads * c.dim;
  const kvType = c.type;
  // Values that the storage type holds, so that every contestant computes the same thing.
  const q = decode(encode(normal(elements(c.sq, c.heads)), c.sq > 1 ? kvType : "f32"), c.sq > 1 ? kvType : "f32");
  const operands = {
    q: Float32Array.from(q),
    k: encode(normal(elements(c.sk, c.kvHeads)), kvType),
    v: encode(normal(elements(c.sk, c.kvHeads)), kvType),
  };
  const all = [tesseraContestant(engine, c, operands)];
  for (const type of new Set([kvType, kvType === "bf16" || kvType === "f32" ? "f16" : kvType])) {
    for (const order of ["tokens", "heads"]) all.push(await ggmlContestant(c, type, order, operands));
  }
  if (!kvType.startsWith("q")) {
    const wide = {
      q: operands.q,
      k: Float32Array.from(decode(operands.k, kvType)),
      v: Float32Array.from(decode(operands.v, kvType)),
    };
    all.push(...(await onnxruntimeContestants(c, wide, threads, turnsOf, encode, decode)));
  }
  return all.filter(Boolean);
}

const ceilings = JSON.parse(
  execFileSync(tool("ceilings", "-march=native", "-ffp-contract=fast", "-pthread"), [String(threads)], {
    encoding: "utf8",
  }),
);
const engine = await openEngine({ backend: "cpu", threads });
console.log(
  `${cpus()[0]?.model}, ${engine.device.arch}, ${threads} threads; fp32 multiply-adds ${ceilings.gflops} GFLOP/s, ` +
    `memory read at ${ceilings.gbytes} GB/s`,
);
const results = [];
for (const c of cases) {
  const contestants = await contestantsOf(engine, c);
  const expected = await contestants[0].output();
  const scale = Math.sqrt(expected.reduce((sum, x) => sum + x * x, 0) / expected.length);
  for (const peer of contestants.slice(1)) {
    const got = await peer.output();
    let sum = 0;
    for (let i = 0; i < got.length; i++) sum += (got[i] - expected[i]) ** 2;
    const difference = Math.sqrt(sum / got.length) / scale;
    if (!(difference < 0.05)) throw new Error(`${c.name}: ${peer.name} and Tessera differ by ${difference}`);
    peer.difference = difference;
  }
  const samples = contestants.map(() => []);
  const { before, timed } = callsOf(c);
  for (let round = -1; round < rounds; round++) {
    for (const [i, contestant] of contestants.entries()) {
      await sleep(Number(values.pause));
      const turn = await contestant.turn(before, timed);
      if (round >= 0) samples[i].push(...turn);
    }
  }
  const pairs = c.causal ? (c.sq * (c.sq + 1)) / 2 : c.sq * c.sk;
  const flops = 4 * c.heads * c.dim * pairs;
  const bits = { f32: 32, f16: 16, bf16: 16, q8_0: 8.5, q4_0: 4.5 }[c.type];
  const bytes = (2 * c.sk * c.kvHeads * c.dim * bits) / 8;
  const rows = contestants.map(({ name, difference }, i) => ({
    name,
    medianMs: median(samples[i]),
    minMs: Math.min(...samples[i]),
    maxMs: Math.max(...samples[i]),
    difference,
  }));
  const mine = rows[0];
  const best = rows
    .slice(1)
    .reduce((a, b) => (b.medianMs < a.medianMs ? b : a), { medianMs: Number.POSITIVE_INFINITY });
  const ratio = best.medianMs / mine.medianMs;
  const share =
    c.sq === 1
      ? `${(bytes / mine.medianMs / 1e6).toFixed(1)} GB/s, ${(bytes / mine.medianMs / 1e4 / ceilings.gbytes) | 0} % of reading`
      : `${(flops / mine.medianMs / 1e6).toFixed(0)} GFLOP/s, ${(flops / mine.medianMs / 1e4 / ceilings.gflops) | 0} % of fp32 multiply-adds`;
  console.log(
    `\n${c.name}: ${ratio.toFixed(2)} × the best peer${c.atLeast ? ` (at least ${c.atLeast})` : ""}; ${share}`,
  );
  for (const row of rows) {
    const range = `(${row.minMs.toFixed(2)} … ${row.maxMs.toFixed(2)})`;
    console.log(`  ${row.name.padEnd(62)} ${row.medianMs.toFixed(3).padStart(9)} ms  ${range}`);
  }
  results.push({
    case: c.name,
    ratio,
    atLeast: c.atLeast,
    gflops: flops / mine.medianMs / 1e6,
    gbytes: bytes / mine.medianMs / 1e6,
    rows,
  });
  for (const contestant of contestants) await contestant.close();
}
engine.dispose();
if (values.json) {
  mkdirSync(dirname(values.json), { recursive: true });
  const about = {
    date: new Date().toISOString(),
    cpu: cpus()[0]?.model,
    arch: engine.device.arch,
    threads,
    rounds,
    ceilings,
  };
  writeFileSync(values.json, `${JSON.stringify({ ...about, node: process.version, results }, null, 2)}\n`);
}
process.exit(0);
