/**
 * Standard normal numbers, the same in every run. Tensors repeat one period of them: a device can't tell, and what a
 * tensor holds at any place is known on the host without keeping a copy of gigabytes.
 */

/** Elements of the period: a multiple of 32 (blocks), and 32 times a prime, so that rows don't line up with it. */
export const period = 32 * 32749;

/** @returns numbers in [0, 1) */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Box and Muller's. */
export function normals(count: number, seed = 1): Float32Array {
  const next = uniform(seed);
  const values = new Float32Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - next()));
    const angle = 2 * Math.PI * next();
    values[i] = radius * Math.cos(angle);
    if (i + 1 < count) values[i + 1] = radius * Math.sin(angle);
  }
  return values;
}
