// Minutes of mixed work from TypeScript, each result with a checksum: prefill, decode over a growing cache, a recorded step
// replayed where the device has graphs. The same work has to give the same bits each time, memory has to stay where it was after the
// first 24 rounds, by which each kind of work was done four times.
//   node tests/reliability/soak.mjs [--minutes 8] [--backend cpu|cuda|hip] [--library /path/to/lib.so]
// Prints a line a minute, then its counts; exit code 1 if anything drifted, leaked or failed, or if fewer than 48 rounds were done.
import { parseArgs } from "node:util";
import { openEngine } from "@tessera/core";
import { checksum, problem } from "./src/problems.mjs";
import { growth, look, steadily } from "./src/steady.mjs";

steadily();

const { values } = parseArgs({
  options: { minutes: { type: "string", default: "8" }, backend: { type: "string" }, library: { type: "string" } },
});
const engine = await openEngine({
  ...(values.backend && { backend: values.backend }),
  ...(values.library && { library: values.library }),
});
const seen = new Map(); // what was done → its checksum
let [done, drifted] = [0, 0];
function same(what, array) {
  const sum = checksum(array);
  done++;
  if ((seen.get(what) ?? sum) !== sum) {
    drifted++;
    console.log(`DRIFT ${what}`);
  }
  seen.set(what, sum);
}

const heads = 4;
const [kvHeads, headDim] = [2, 64];
const f16 = (seed, ...shape) => {
  const { data } = problem(seed * 3).q;
  const size = shape.reduce((a, b) => a * b);
  return { data: Float32Array.from({ length: size }, (_, i) => data[i % data.length]), shape };
};

/** A sequence that grows by a prompt, then token by token. */
async function generation(seed) {
  const paged = seed % 2 === 0;
  const cache = engine.kvCache({
    batch: 1,
    capacity: 160,
    kvHeads,
    headDim,
    dtype: ["f16", "bf16", "f8_e4m3"][seed % 3],
    ...(paged && { pageSize: 16 }),
  });
  await cache.append({ k: f16(seed, 1, 100, kvHeads, headDim), v: f16(seed + 1, 1, 100, kvHeads, headDim) });
  for (let step = 0; step < 40; step++) {
    const token = f16(seed + step, 1, 1, kvHeads, headDim);
    const { out } = await engine.decode({ q: f16(seed + step, 1, 1, heads, headDim), cache, k: token, v: token });
    same(`decode ${seed} ${step}`, out.data);
  }
  cache.dispose();
}

/** A step that is recorded once and replayed. */
async function replay(seed) {
  if (!engine.device.caps.graphs) return;
  const q = engine.tensor(f16(seed, 1, 4, heads, headDim).data, { shape: [1, 4, heads, headDim] });
  const k = engine.tensor(f16(seed, 1, 200, kvHeads, headDim).data, { shape: [1, 200, kvHeads, headDim] });
  const out = engine.empty({ shape: [1, 4, heads, headDim], dtype: "f32" });
  const graph = await engine.capture(() => engine.attention({ q, k, v: k, out }));
  for (let i = 0; i < 20; i++) await graph.launch();
  same(`replay ${seed}`, await out.read());
  graph.dispose();
  for (const tensor of [q, k, out]) tensor.dispose();
}

const end = performance.now() + Number(values.minutes) * 60_000;
const start = performance.now();
const warm = 24;
let [minute, round] = [1, 0];
let settled;
let held = 0;
for (; performance.now() < end; round++) {
  const seed = round % 6;
  const { out } = await engine.attention(problem(seed));
  same(`prefill ${seed}`, out.data);
  await generation(seed);
  await replay(seed);
  if (round + 1 === warm) [settled, held] = [await look(), engine.bytesInUse];
  if (performance.now() > start + minute * 60_000) {
    const mebibytes = (process.memoryUsage.rss() / 2 ** 20).toFixed(0);
    console.log(
      `minute ${minute++}: ${done} results, ${drifted} drifted, ${engine.bytesInUse} bytes on the device, ${mebibytes} MiB`,
    );
  }
}
const left = engine.bytesInUse;
engine.dispose();
const { grown, used, native } = settled ? growth(settled, await look()) : { grown: 0, used: 0, native: 0 };
const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
console.log(
  `${engine.device.name}: ${round} rounds, ${done} results of ${seen.size} kinds, ${drifted} drifted, ${left} bytes left on the device; ` +
    `${mebibytes(grown)} more than after ${warm} rounds, ${mebibytes(native)} without JavaScript's heap, of which ${mebibytes(used)} more in use`,
);
// A round that left the result of each of its 40 steps behind would leave 40 KiB; a quarter of that
// is allowed, on top of 2 MiB for what the process's other threads and the driver do once.
const allowed = (2 << 20) + (round - warm) * 10 * 1024;
const enough = round >= 2 * warm;
if (!enough) console.log(`FAILED: ${round} rounds, must be ${2 * warm} or more: give it more --minutes`);
const grew = native >= allowed || used >= 1 << 20;
if (grew)
  console.log(
    `FAILED: allowed are ${mebibytes(allowed)} without JavaScript's heap, and ${mebibytes(1 << 20)} in use there`,
  );
// Less than a kind of result or cache that each round left behind.
const leaked = left - held >= 1 << 20;
if (leaked)
  console.log(`FAILED: the engine holds ${left - held} bytes more than after ${warm} rounds; allowed: ${1 << 20}`);
const fine = enough && drifted === 0 && !leaked && !grew;
console.log(`::tessera ${JSON.stringify({ passed: fine ? 1 : 0, failed: fine ? 0 : 1, skipped: 0 })}`);
process.exitCode = fine ? 0 : 1;
