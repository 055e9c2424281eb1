import { openEngine } from "@tessera/core";

// Two sequences of 128 tokens, 8 query heads that share 2 key/value heads, 64 dimensions each.
const shape = (heads) => [2, 128, heads, 64];
const random = (heads) => Float32Array.from({ length: 2 * 128 * heads * 64 }, () => Math.random() - 0.5);

const engine = await openEngine(); // the best usable device; { backend: "cpu" } to insist
console.log(`${engine.backend}: ${engine.device.name}`);

const q = engine.tensor(random(8), { shape: shape(8) });
const k = engine.tensor(random(2), { shape: shape(2) });
const v = engine.tensor(random(2), { shape: shape(2) });
const { out, lse } = await engine.attention({ q, k, v, causal: true, returnLse: true });
console.log(out.shape, (await out.read()).slice(0, 4), (await lse.read()).slice(0, 2));

console.log(engine.explain({ q, k, v, causal: true }).kernel); // which kernel that was
engine.dispose();
