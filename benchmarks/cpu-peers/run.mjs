// Tessera's CPU back end beside onnxruntime's attention ops and ggml's flash_attn_ext, in one run on one machine.
//
//   npm install --ignore-scripts
//   node run.mjs [--threads 2] [--filter REGEX] [--rounds 7] [--pause 20] [--tools FOLDER] [--json FILE]
//
// Every contestant, Tessera as well as each op of onnxruntime and each order of ggml's K and V in memory, is a process of
// its own, which is stopped (SIGSTOP) while it isn't its turn: threads that spin after a call take no core from whoever comes
// next. They take turns, round after round, so that whatever else the machine does hits all alike. A turn is a pause, some
// untimed calls, and some timed ones, which the contestant times itself; figures are medians of all rounds. Outputs are
// compared before anything is timed. Caches of one token's cases take turns, too, so that they come out of memory.
// GFLOP/s count the visible half of causal cases. Needs a C++ compiler for the two small programs (--tools: a folder that
// has them built already).
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { callsOf, cases, queryType } from "./cases.mjs";
import { onnxruntimeContestants } from "./onnxruntime.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({
  options: {
    threads: { type: "string", default: "2" },
    filter: { type: "string", default: "" },
    rounds: { type: "string", default: "7" },
    pause: { type: "string", default: "20" },
    tools: { type: "string" },
    core: { type: "string", default: join(here, "../../packages/core/dist/index.js") },
    json: { type: "string" },
  },
});
const { decode, encode, openEngine } = await import(values.core);
const threads = Number(values.threads);
const rounds = Number(values.rounds);
const scratch = mkdtempSync(join(tmpdir(), "tessera-peers-"));
// A stopped process outlives its parent: none may be left, however this one ends.
const running = new Set();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
  rmSync(scratch, { recursive: true, force: true });
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

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
    const source = join(here, `${name}.cpp`);
    execFileSync(process.env.CXX ?? "c++", ["-std=c++17", "-O2", ...flags, source, "-o", built, "-ldl"]);
  }
  return built;
}

/** Puts arrays into files of a new folder. */
function folderOf(files) {
  const folder = mkdtempSync(join(scratch, "case-"));
  for (const [name, data] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.bin`), Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  }
  return folder;
}

/** Starts a contestant, lets it compute once, and stops it. Undefined if it can't do the case. */
async function contestant(command, args, folder, environment = {}) {
  const child = spawn(command, [...args], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, ...environment },
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`${command} ${args[0]} ended early`);
    return value;
  };
  const name = await next();
  if (name.startsWith("can't: ")) {
    console.log(`  (${args.slice(-2).join(" ")}: ${name})`);
    child.kill();
    return undefined;
  }
  child.kill("SIGSTOP");
  const out = readFileSync(join(folder, "out.bin"));
  return {
    name,
    out: new Float32Array(out.buffer, out.byteOffset, out.length / 4),
    turn: async ({ before, timed }) => {
      child.kill("SIGCONT");
      child.stdin.write(`${before} ${timed}\n`);
      const samples = (await next()).split(" ").map(Number);
      child.kill("SIGSTOP");
      return samples;
    },
    close: () => child.kill("SIGKILL"),
  };
}

const ggmlLibraries = () => {
  const arch = { x64: "linux-x64", arm64: "linux-arm64" }[process.arch];
  const folder = join(here, "node_modules/@node-llama-cpp", arch, "bins", arch);
  return existsSync(folder) ? folder : undefined;
};

/** Types that a peer may use for a case: its own, or for bf16 (which onnxruntime's CPU ops lack) the others. */
async function contestantsOf(c) {
  const elements = (tokens, heads) => tokens * heads * c.dim;
  const qType = queryType(c);
  // Values that the storage type holds, so that every contestant computes the same thing.
  const operands = {
    q: Float32Array.from(decode(encode(normal(elements(c.sq, c.heads)), qType), qType)),
    k: encode(normal(elements(c.sk, c.kvHeads)), c.type),
    v: encode(normal(elements(c.sk, c.kvHeads)), c.type),
  };
  const all = [];
  const joinIn = async (folder, ...rest) => {
    all.push(await contestant(...rest));
    rmSync(folder, { recursive: true });
  };
  const script = async (...what) => {
    const folder = folderOf(operands);
    const args = [join(here, "contestant.mjs"), values.core, String(threads), JSON.stringify(c), folder, ...what];
    await joinIn(folder, process.execPath, args, folder);
  };
  await script("tessera");
  const libraries = ggmlLibraries();
  for (const type of new Set([c.type, c.type === "bf16" || c.type === "f32" ? "f16" : c.type])) {
    for (const order of libraries ? ["tokens", "heads"] : []) {
      const as = (data) => (type === c.type ? data : encode(decode(data, c.type), type));
      const folder = folderOf({ q: operands.q, k: as(operands.k), v: as(operands.v) });
      const shape = [c.sq, c.sk, c.heads, c.kvHeads, c.dim, c.causal ? 1 : 0, threads, c.copies ?? 1];
      const args = [libraries, type, order, ...shape.map(String), folder];
      await joinIn(folder, tool("ggml_peer"), args, folder, { LD_LIBRARY_PATH: libraries });
    }
  }
  for (const { op, type } of onnxruntimeContestants(c)) await script("onnxruntime", op, type);
  return all.filter(Boolean);
}

/** Every peer's output beside Tessera's; the difference is relative to the root of the mean square. */
function compareOutputs(c, [{ out: expected }, ...peers]) {
  const scale = Math.sqrt(expected.reduce((sum, x) => sum + x * x, 0) / expected.length);
  for (const peer of peers) {
    let sum = 0;
    for (let i = 0; i < expected.length; i++) sum += (peer.out[i] - expected[i]) ** 2;
    peer.difference = Math.sqrt(sum / expected.length) / scale;
    if (!(peer.difference < 0.05)) {
      throw new Error(`${c.name}: ${peer.name} and Tessera differ by ${peer.difference}`);
    }
  }
}

async function measure(c, ceilings) {
  const contestants = await contestantsOf(c);
  compareOutputs(c, contestants);
  const samples = contestants.map(() => []);
  for (let round = -1; round < rounds; round++) {
    for (const [i, { turn }] of contestants.entries()) {
      await sleep(Number(values.pause));
      const taken = await turn(callsOf(c));
      if (round >= 0) samples[i].push(...taken);
    }
  }
  for (const { close } of contestants) close();

  const rows = contestants.map(({ name, difference }, i) => ({
    name,
    medianMs: median(samples[i]),
    minMs: Math.min(...samples[i]),
    maxMs: Math.max(...samples[i]),
    difference,
  }));
  const [mine, ...peers] = rows;
  const ratio = Math.min(...peers.map(({ medianMs }) => medianMs)) / mine.medianMs;
  const pairs = c.causal ? (c.sq * (c.sq + 1)) / 2 : c.sq * c.sk;
  const gflops = (4 * c.heads * c.dim * pairs) / mine.medianMs / 1e6;
  const bits = { f32: 32, f16: 16, bf16: 16, q8_0: 8.5, q4_0: 4.5 }[c.type];
  const gbytes = (2 * c.sk * c.kvHeads * c.dim * bits) / 8 / mine.medianMs / 1e6;
  const share =
    c.sq === 1
      ? `${gbytes.toFixed(1)} GB/s, ${((100 * gbytes) / ceilings.gbytes).toFixed(0)} % of reading`
      : `${gflops.toFixed(0)} GFLOP/s, ${((100 * gflops) / ceilings.gflops).toFixed(0)} % of fp32 multiply-adds`;
  console.log(
    `\n${c.name}: ${ratio.toFixed(2)} × the best peer${c.atLeast ? ` (at least ${c.atLeast})` : ""}; ${share}`,
  );
  for (const row of rows) {
    const range = `(${row.minMs.toFixed(2)} … ${row.maxMs.toFixed(2)})`;
    console.log(`  ${row.name.padEnd(62)} ${row.medianMs.toFixed(3).padStart(9)} ms  ${range}`);
  }
  return { case: c.name, ratio, atLeast: c.atLeast, gflops, gbytes, rows };
}

const flags = ["-march=native", "-ffp-contract=fast", "-pthread"];
const ceilings = JSON.parse(execFileSync(tool("ceilings", ...flags), [String(threads)], { encoding: "utf8" }));
const engine = await openEngine({ backend: "cpu", threads: 1 });
const { arch } = engine.device;
engine.dispose();
const cpu = cpus()[0]?.model;
console.log(
  `${cpu}, ${arch}, ${threads} threads; fp32 multiply-adds ${ceilings.gflops} GFLOP/s, ` +
    `memory read at ${ceilings.gbytes} GB/s`,
);
const results = [];
for (const c of cases) {
  if (new RegExp(values.filter).test(c.name)) results.push(await measure(c, ceilings));
}
if (values.json) {
  mkdirSync(dirname(values.json), { recursive: true });
  const about = { date: new Date().toISOString(), cpu, arch, threads, rounds, ceilings, node: process.version };
  writeFileSync(values.json, `${JSON.stringify({ ...about, results }, null, 2)}\n`);
}
process.exit(0);
