// What a call costs besides its arithmetic, on this machine's CPU back end: host time of a call that has nothing to do, and
// peak memory beyond inputs and outputs of a large one. `node --expose-gc benchmarks/overhead.mjs` after `npm run build`; Linux only
// (peak memory is read from /proc).
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { openEngine } from "../packages/core/dist/index.js";

const engine = await openEngine({ backend: "cpu", threads: 2 });
console.log(`${cpus()[0]?.model}, ${engine.device.arch}, node ${process.version}`);

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
