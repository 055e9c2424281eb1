// Problems for scripts that run in processes and workers of their own: the same numbers for the same seed.

/** f32 tensors in host memory; many sizes, prefill and decode. */
export function problem(seed) {
  let state = seed * 2654435761;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return state / 2 ** 31;
  };
  const tensor = (...shape) => ({ data: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, next), shape });
  const [queries, keys, kvHeads, group, dim] = [
    seed % 3 === 0 ? 1 : 1 + (seed % 37),
    64 + ((seed * 13) % 300),
    1 + (seed % 2),
    1 + (seed % 3),
    32 * (1 + (seed % 2)),
  ];
  return {
    q: tensor(1, queries, kvHeads * group, dim),
    k: tensor(1, keys, kvHeads, dim),
    v: tensor(1, keys, kvHeads, dim),
    causal: seed % 2 === 0,
  };
}

/** FNV-1a of an array's bytes. */
export function checksum(array) {
  let hash = 2166136261;
  for (const byte of new Uint8Array(array.buffer, array.byteOffset, array.byteLength))
    hash = Math.imul(hash ^ byte, 16777619);
  return hash >>> 0;
}
