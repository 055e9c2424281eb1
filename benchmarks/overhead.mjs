// What a call costs besides its arithmetic: host time until it returns, and on the CPU peak memory beyond inputs and outputs of
// a large one. After `npm run build`; Linux only (peak memory is read from /proc):
//   node --expose-gc benchmarks/overhead.mjs [--backend cpu|cuda|auto]      cpu, with 2 threads, if left out
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { openEngine } from "@tessera/core";

const { backend } = parseArgs({ options: { backend: { type: "string", default: "cpu" } } }).values;
const engine = await openEngine(backend === "cpu" ? { backend, threads: 2 } : { backend });
console.log(
  `${engine.backend}: ${engine.device.name}, ${engine.device.arch}, ${cpus()[0]?.model}, node ${process.version}`,
);

/** Median and 90th percentile of `count` timed calls, in µs. */
function timed(count, call) {
  const samples = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const start = process.hrtime.bigint();
    call();
    samples[i] = Number(process.hrtime.bigint() - start) / 1000;
  }
  samples.sort();
  return `${samples[count >> 1].toFixed(2)} µs (90 %: ${samples[(count * 9) / 10].toFixed(2)})`;
}

const tensor = (rows, heads) => engine.tensor(new Float32Array(rows * heads * 64), { shape: [1, rows, heads, 64] });
const empty = { q: tensor(0, 8), k: tensor(16, 2), v: tensor(16, 2), out: tensor(0, 8), causal: true };
const pending = [];
const waiting = [];
const call = () => pending.push(engine.attention(empty));
for (let i = 0; i < 20_000; i++) call();
await Promise.all(pending.splice(0));
console.log(`enqueue and return, empty problem:      ${timed(20_000, call)}`);
await Promise.all(pending.splice(0));
const { out: _, ...allocating } = empty;
console.log(
  `the same, output allocated by the call: ${timed(5_000, () => pending.push(engine.attention(allocating)))}`,
);
await Promise.all(pending.splice(0));

// Calls that reach the device: in bursts that its queue holds, each waited for before the next.
async function bursts(call) {
  const samples = [];
  for (let burst = 0; burst < 60; burst++) {
    for (let i = 0; i < 100; i++) {
      const start = process.hrtime.bigint();
      const pending = call();
      if (burst >= 10) samples.push(Number(process.hrtime.bigint() - start) / 1000);
      waiting.push(pending);
    }
    await Promise.all(waiting.splice(0));
    await engine.synchronize();
  }
  samples.sort((a, b) => a - b);
  return `${samples[samples.length >> 1].toFixed(2)} µs (90 %: ${samples[Math.floor(samples.length * 0.9)].toFixed(2)})`;
}
const half = (rows, heads) =>
  engine.tensor(new Uint16Array(rows * heads * 64), { shape: [1, rows, heads, 64], dtype: "f16" });
const prefill = { q: half(64, 8), k: half(64, 2), v: half(64, 2), out: half(64, 8), causal: true };
console.log(
  `enqueue of a prefill of 64 tokens (${engine.explain(prefill).kernel}): ${await bursts(() => engine.attention(prefill))}`,
);
const cache = engine.kvCache({ batch: 1, kvHeads: 2, headDim: 64, capacity: 16384, dtype: "f16" });
const step = { q: half(1, 8), out: half(1, 8), cache, causal: true };
await cache.append({ k: half(1024, 2), v: half(1024, 2) });
console.log(`enqueue of a decode over 1,024 tokens: ${await bursts(() => engine.decode(step))}`);
const appending = { ...step, k: half(1, 2), v: half(1, 2) };
console.log(`the same with an append of its token:  ${await bursts(() => engine.decode(appending))}`);

if (engine.backend !== "cpu") {
  const growing = engine.kvCache({ batch: 1, kvHeads: 2, headDim: 64, capacity: 16384, dtype: "f16" });
  const graph = await engine.capture(() => engine.decode({ ...appending, cache: growing }));
  console.log(`a launch of that step, captured:       ${await bursts(() => graph.launch())}`);
  graph.dispose();
  engine.dispose();
  process.exit();
}
const status = (field) =>
  Number(new RegExp(`${field}:\\s+(\\d+) kB`).exec(readFileSync("/proc/self/status", "utf8"))[1]);
const random = (count) => Float32Array.from({ length: count }, () => Math.random() - 0.5);
const [size, heads, kvHeads, dim] = [1024, 32, 8, 128];
const shape = (count) => ({ shape: [1, size, count, dim] });
const q = engine.tensor(random(size * heads * dim), shape(heads));
const k = engine.tensor(random(size * kvHeads * dim), shape(kvHeads));
const v = engine.tensor(random(size * kvHeads * dim), shape(kvHeads));
// Arrays that only fed the tensors go first: memory freed during the call would hide what it takes.
for (let i = 0; i < 3; i++) {
  globalThis.gc?.();
  await new Promise((resolve) => setTimeout(resolve, 100));
}
writeFileSync("/proc/self/clear_refs", "5"); // peak := current
const before = status("VmRSS");
const { out } = await engine.attention({ q, k, v, causal: true });
const beyond = (status("VmHWM") - before) / 1024 - out.shape.reduce((a, b) => a * b, 4) / 1024 / 1024;
console.log(`1,024² causal fp32, 32:8 heads, D 128: peak memory beyond inputs and outputs ${beyond.toFixed(1)} MiB`);
console.log(
  `workspace of that call: ${(engine.explain({ q, k, v, causal: true }).workspaceBytes / 1024 / 1024).toFixed(2)} MiB`,
);
engine.dispose();
