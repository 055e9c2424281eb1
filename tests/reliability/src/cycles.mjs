// Engines made, used and disposed of, again and again: prints how many bytes the process has grown, and the memory that the device's
// driver has free has shrunk, after as many to warm up, 2,000 at most. Exit code 1: the device lost memory.
//   node --expose-gc src/cycles.mjs [CYCLES] [cpu|cuda|hip|/path/to/a/library.so]
import { openEngine } from "@tessera/core";
import { freeMemory } from "./device-memory.mjs";
import { problem } from "./problems.mjs";

/** A driver gives memory in pieces of this size; one that is played counts bytes. */
const piece = process.env.TESSERA_EMULATED ? 1 : 2 << 20;

const [cycles = "10000", name = "cpu"] = process.argv.slice(2);
const warm = Math.min(2000, Number(cycles));
const inputs = problem(4);
const open = () => openEngine({ ...(name.includes("/") ? { library: name } : { backend: name }), threads: 2 });
const cycle = async () => {
  const engine = await open();
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
const free = async () => {
  const engine = await open();
  const bytes = engine.device.caps.hostMemory ? undefined : freeMemory(engine);
  engine.dispose();
  return bytes;
};
for (let i = 0; i < warm; i++) await cycle();
const [before, freeBefore] = [await resident(), await free()];
for (let i = 0; i < Number(cycles); i++) await cycle();
const [after, freeAfter] = [await resident(), await free()];
const lost = freeBefore === undefined ? {} : { freeBefore, freeAfter, lost: freeBefore - freeAfter };
const { heapTotal, heapUsed, external } = process.memoryUsage();
console.log(
  JSON.stringify({
    ...{ cycles: Number(cycles), before, after, grown: after - before, ...lost },
    ...{ heapTotal, heapUsed, external },
  }),
);
if (lost.lost >= piece) {
  console.error(`the device has ${lost.lost} bytes less than ${cycles} engines ago`);
  process.exitCode = 1;
}
