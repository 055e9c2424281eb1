import { openEngine } from "@tessera/core";

const engine = await openEngine();
const cache = engine.kvCache({ batch: 1, kvHeads: 2, headDim: 64, capacity: 1024, dtype: "q8_0", pageSize: 64 });
const token = (heads) => engine.tensor(new Float32Array(heads * 64).fill(0.1), { shape: [1, 1, heads, 64] });

for (let step = 0; step < 3; step++) {
  const { q } = await cache.append({ q: token(8), k: token(2), v: token(2), rope: { theta: 10000, pairing: "half" } });
  const { out } = await engine.decode({ q, cache, causal: true });
  console.log(cache.lengths[0], (await out.read())[0]);
}
engine.dispose();
