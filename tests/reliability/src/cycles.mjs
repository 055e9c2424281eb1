// Engines made, used and disposed of, again and again: prints how much the process has grown, in bytes, after as many to warm up, 2,000 at most.
//   node --expose-gc src/cycles.mjs [CYCLES] [cpu|/path/to/a/library.so]
import { openEngine } from "@tessera/core";
import { problem } from "./problems.mjs";

const [cycles = "10000", name = "cpu"] = process.argv.slice(2);
const warm = Math.min(2000, Number(cycles));
const inputs = problem(4);
const cycle = async () => {
  const engine = await openEngine({ ...(name.includes("/") ? { library: name } : { backend: name }), threads: 2 });
  const k = engine.tensor(inputs.k.data, { shape: inputs.k.shape });
  const cache = engine.kvCache({ batch: 1, capacity: 8, kvHeads: 1, headDim: 32, dtype: "f16" });
  const token = { data: new Float32Array(32), shape: [1, 1, 1, 32] };
  await cache.append({ k: token, v: token });
  const { out } = await engine.attention({ ...inputs, k });
  if (!(Math.abs(out.data[0]) < 10)) throw new Error(`out is ${out.data[0]}`);
  cache.dispose();
  k.dispose();
  engine.dispose();
};
/** The smallest of several looks: what the collector holds for a while isn't lost. */
const resident = async () => {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 10; i++) {
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
    least = Math.min(least, process.memoryUsage.rss());
  }
  return least;
};
for (let i = 0; i < warm; i++) await cycle();
const before = await resident();
for (let i = 0; i < Number(cycles); i++) await cycle();
const after = await resident();
const { heapTotal, heapUsed, external } = process.memoryUsage();
console.log(
  JSON.stringify({ cycles: Number(cycles), before, after, grown: after - before, heapTotal, heapUsed, external }),
);
