/** Generators, by name: what q, k, v, a bias and a mask hold before they are rounded to their types. */
import type { FloatDType } from "@tessera/core";
import type { Random } from "./random.js";

/** Values in the order of the tensor: rows (batch and position), heads, dims. */
export interface RawInputs {
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

interface Extent {
  readonly rowsQ: number;
  readonly rowsK: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly valueDim: number;
}

type Generator = (random: Random, extent: Extent, out: RawInputs) => void;

function fill(array: Float32Array, value: (index: number) => number): void {
  for (let i = 0; i < array.length; i++) array[i] = value(i);
}

function normal(random: Random, gain: { q: number; k: number; v: number }, { q, k, v }: RawInputs): void {
  fill(q, () => random.normal() * gain.q);
  fill(k, () => random.normal() * gain.k);
  fill(v, () => random.normal() * gain.v);
}

const generators = {
  normal: (random, _, out) => normal(random, { q: 1, k: 1, v: 1 }, out),

  /** Scores of standard deviation 2 at scale 1/sqrt(D): sharper rows, larger sums. */
  sharp: (random, _, out) => normal(random, { q: 2, k: 1, v: 1 }, out),

  /** Rows of norm in the hundreds. */
  "large-norm": (random, _, out) => normal(random, { q: 30, k: 30, v: 1 }, out),

  /** q and k are +-60: each query has the signs of one key, scores reach 60 * 60 * D. */
  sixty: (random, { rowsQ, rowsK, heads, kvHeads, dim }, { q, k, v }) => {
    fill(k, () => (random.bits() & 1 ? 60 : -60));
    fill(v, () => random.normal());
    for (let row = 0; row < rowsQ; row++) {
      for (let h = 0; h < heads; h++) {
        const from = ((row % Math.max(1, rowsK)) * kvHeads + Math.floor((h * kvHeads) / heads)) * dim;
        for (let d = 0; d < dim; d++) q[(row * heads + h) * dim + d] = k[from + d] ?? 60;
      }
    }
  },

  /** Nothing negative in q and k: sums grow along the head dim, and so does their rounding. */
  positive: (random, _, { q, k, v }) => {
    fill(q, () => Math.abs(random.normal()));
    fill(k, () => Math.abs(random.normal()));
    fill(v, () => random.normal());
  },

  /** Every key is the same, so all scores are equal, and V is near 3e4. */
  "equal-scores": (random, { dim }, { q, k, v }) => {
    const row = Array.from({ length: dim }, () => random.normal());
    fill(q, () => random.normal());
    fill(k, (i) => row[i % dim] as number);
    fill(v, () => 30000 + 16 * Math.round(random.normal() * 20));
  },

  /** Coarse values: every score is a multiple of 1/64 when the scale is 1, so that sums with a large bias are exact. */
  coarse: (random, _, { q, k, v }) => {
    fill(q, () => (random.below(9) - 4) / 8);
    fill(k, () => (random.below(9) - 4) / 8);
    fill(v, () => random.normal());
  },

  /** V row j is 1000^j: a key that leaks is seen at once. */
  steps: (random, { kvHeads, valueDim }, { q, k, v }) => {
    fill(q, () => random.normal());
    fill(k, () => random.normal());
    fill(v, (i) => 1000 ** (Math.floor(i / (kvHeads * valueDim)) % 3));
  },

  /** V small enough to be subnormal in fp16. */
  "tiny-v": (random, _, out) => normal(random, { q: 1, k: 1, v: 2 ** -17 }, out),

  /** V subnormal in fp32. */
  "subnormal-v": (random, _, out) => normal(random, { q: 1, k: 1, v: 1e-39 }, out),

  /** Some of V subnormal in bf16 and fp32, all of it near that. */
  "around-least-v": (random, _, out) => normal(random, { q: 1, k: 1, v: 2 ** -126 }, out),

  /** Scores of ordinary size, of a factor that is subnormal in bf16. */
  "subnormal-q": (random, _, out) => normal(random, { q: 2 ** -127, k: 2 ** 124, v: 1 }, out),
  "subnormal-k": (random, _, out) => normal(random, { q: 2 ** 124, k: 2 ** -127, v: 1 }, out),

  zeros: (random, _, { v }) => fill(v, () => random.normal()),
} satisfies Record<string, Generator>;

export type InputName = keyof typeof generators;

export function makeInputs(name: InputName, random: Random, extent: Extent): RawInputs {
  const out = {
    q: new Float32Array(extent.rowsQ * extent.heads * extent.dim),
    k: new Float32Array(extent.rowsK * extent.kvHeads * extent.dim),
    v: new Float32Array(extent.rowsK * extent.kvHeads * extent.valueDim),
  };
  generators[name](random, extent, out);
  return out;
}

/** The largest finite value of each type. */
const largest = { f32: 3.4028234663852886e38, bf16: 3.3895313892515355e38, f16: 65504 };

/** Value of a bias at (b, h, i, j), for a type whose largest finite value is given. */
const biases = {
  normal: (random: Random) => random.normal(),
  /** -inf on a third of the keys, and on every key of each fourth row. */
  "minus-infinity": (random: Random, i: number) =>
    i % 4 === 3 || random.below(3) === 0 ? Number.NEGATIVE_INFINITY : random.normal(),
  /** The lowest finite value on a third of the keys, and on every key of each fourth row: a bias, no mask. */
  lowest: (random: Random, i: number, _: number, most: number) => (i % 4 === 3 || random.below(3) === 0 ? -most : 0),
  /** -1e4, as many models write a mask. */
  "minus-1e4": (random: Random, i: number) => (i % 4 === 3 || random.below(3) === 0 ? -1e4 : 0),
  /** One key of each row has the largest finite value. */
  highest: (_: Random, i: number, j: number, most: number) => (j === (i * 5) % 7 ? most : 0),
} satisfies Record<string, (random: Random, i: number, j: number, most: number) => number>;

export type BiasFill = keyof typeof biases;

/** Whether key j is visible to query i. */
const masks = {
  random: (random: Random) => random.below(10) < 7,
  sparse: (random: Random) => random.below(16) === 0,
  /** The second half of the rows sees nothing. */
  "rows-false": (_: Random, i: number, __: number, queries: number) => i < queries / 2,
  "all-false": () => false,
  "all-true": () => true,
  /** Only key 0. */
  "first-key": (_: Random, __: number, j: number) => j === 0,
  /** Speculation: token i of a binary tree sees itself, its ancestors and the whole past. */
  tree: (_: Random, i: number, j: number, queries: number, keys: number) => {
    const past = keys - queries;
    if (j < past) return true;
    for (let node = i + 1; node > 0; node >>= 1) if (node === j - past + 1) return true;
    return false;
  },
  /** Three sequences that share a batch entry. */
  "block-diagonal": (_: Random, i: number, j: number, queries: number, keys: number) =>
    Math.floor((i * 3) / queries) === Math.floor((j * 3) / keys),
  /** Two sequences take turns in the cache, and each sees its own last 4 tokens. */
  "interleaved-window": (_: Random, i: number, j: number, queries: number, keys: number) => {
    const at = i + keys - queries;
    return j <= at && (at - j) % 2 === 0 && at - j < 8;
  },
  /** Causal, written as a mask. */
  causal: (_: Random, i: number, j: number, queries: number, keys: number) => j <= i + keys - queries,
} satisfies Record<string, (random: Random, i: number, j: number, queries: number, keys: number) => boolean>;

export type MaskFill = keyof typeof masks;

export function makeBias(
  fillName: BiasFill,
  type: FloatDType,
  random: Random,
  planes: number,
  queries: number,
  keys: number,
): Float32Array {
  const out = new Float32Array(planes * queries * keys);
  let at = 0;
  for (let plane = 0; plane < planes; plane++) {
    for (let i = 0; i < queries; i++) {
      for (let j = 0; j < keys; j++) out[at++] = biases[fillName](random, i, j, largest[type]);
    }
  }
  return out;
}

export function makeMask(
  fillName: MaskFill,
  random: Random,
  planes: number,
  queries: number,
  keys: number,
): Float32Array {
  const out = new Float32Array(planes * queries * keys);
  let at = 0;
  for (let plane = 0; plane < planes; plane++) {
    for (let i = 0; i < queries; i++) {
      for (let j = 0; j < keys; j++) out[at++] = masks[fillName](random, i, j, queries, keys) ? 1 : 0;
    }
  }
  return out;
}

/** The published slopes of ALiBi (Press et al., 2022): for a head count that is no power of two, every second one of the next. */
export function alibiSlopes(heads: number): number[] {
  const power = 2 ** Math.floor(Math.log2(heads));
  const slopes = (n: number) => Array.from({ length: n }, (_, i) => 2 ** (-(8 / n) * (i + 1)));
  if (power === heads) return slopes(heads);
  return [
    ...slopes(power),
    ...slopes(power * 2)
      .filter((_, i) => i % 2 === 0)
      .slice(0, heads - power),
  ];
}
