/**
 * Q as variants that round it to 8 bits do (docs/semantics.md, "Numbers"): they are held to the same bounds as all others,
 * against the truth of this Q, as quantised keys are to that of the values that they stand for.
 */
import type { Problem } from "./problem.js";

const block = 32;
/** Below, a block counts as zeros. */
const smallest = 2 ** -119;

function nearestEven(x: number): number {
  const below = Math.floor(x);
  const rest = x - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

const largestOf = (values: ArrayLike<number>, from: number) => {
  let largest = 0;
  for (let i = from; i < from + block; i++) {
    const x = Math.abs(values[i] as number);
    if (!(x < Number.POSITIVE_INFINITY)) return Number.NaN;
    if (x > largest) largest = x;
  }
  return largest;
};

/** The problem with each 32 elements of a row of Q rounded to a multiple of 1/127 of the largest. */
export function withRoundedQ(problem: Problem): Problem {
  const { values } = problem.q;
  const rounded = new Float32Array(values.length);
  for (let from = 0; from < values.length; from += block) {
    const largest = largestOf(values, from);
    const scale = Math.fround(largest / 127);
    const inverse = Math.fround(127 / largest);
    for (let i = from; i < from + block; i++) {
      if (Number.isNaN(largest)) rounded[i] = Number.NaN;
      else if (largest >= smallest) rounded[i] = nearestEven(Math.fround((values[i] as number) * inverse)) * scale;
    }
  }
  return { ...problem, q: { ...problem.q, values: rounded } };
}

/**
 * How far rounding Q moves a score at most: |scale| times, over all pairs, the largest sum over blocks of (the largest |q| of
 * the block / 254) times (the sum of its |k|). So far moves lse, too, and max|v| times as far out.
 */
export function scoreShift({ q, k, heads, kvHeads, dim, scale }: Problem): number {
  let most = 0;
  for (let row = 0; row < q.values.length / dim; row++) {
    const kvHead = Math.floor((row % heads) / (heads / kvHeads));
    for (let at = kvHead * dim; at < k.values.length; at += kvHeads * dim) {
      let sum = 0;
      for (let d = 0; d < dim; d += block) {
        let keys = 0;
        for (let i = 0; i < block; i++) keys += Math.abs(k.values[at + d + i] as number);
        sum += (largestOf(q.values, row * dim + d) / 254) * keys;
      }
      if (sum > most) most = sum;
    }
  }
  return Math.abs(scale) * most;
}
