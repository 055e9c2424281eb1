/**
 * The float64 truth, written straight from docs/semantics.md: every query, every key, one at a time, no tiles, no
 * running maximum. It shares the checked options with the engine and nothing of any kernel.
 *
 * In the same walk it can keep what tolerances need: the magnitude A of scores, the largest value, and a second result
 * that rounds exactly where 16-bit storage forces it.
 */
import { biasLimit } from "./limits.js";
import { fromBF16, fromF16, toBF16, toF16 } from "./numeric.js";
import { keyAt, type Problem, readRow, sequenceOf } from "./problem.js";

/** Where a reference rounds. */
export interface Rounding {
  /** P = exp(s - m), before it meets V; undefined: not at all. */
  readonly p: "f16" | "bf16" | undefined;
  /** The result. */
  readonly out: "f32" | "f16" | "bf16";
}

/** Row-major [B,Sq,Hq,Dv] or [T,Hq,Dv], and [B,Hq,Sq] or [Hq,T]. */
export interface Solution {
  readonly out: Float64Array;
  readonly lse: Float64Array;
  /** A of docs/semantics.md, "Numbers": |scale| · max over visible pairs of Σ|q·k|, or `shift` if that is larger. */
  magnitude: number;
  /** Largest |bias - alibi| on the winning key of a row, where a score is still felt beside it. */
  shift: number;
  /** max |v| over visible values that are finite. */
  largestValue: number;
  /** The result with `rounding`; empty without. */
  readonly rounded: Float64Array;
}

/** A score added to something this large is lost in fp32 whatever it was, and costs no accuracy. */
const absorbing = 2 ** 20;

const round = {
  f16: (x: number) => fromF16(toF16(x)),
  bf16: (x: number) => fromBF16(toBF16(x)),
  f32: (x: number) => x,
};

/** Solves row by row; yields the share that is done, from 0 to 1, after each few rows. */
export function* solve(p: Problem, rounding?: Rounding): Generator<number, Solution> {
  const rows = p.cuSeqLensQ ? p.queryRows : p.batch * p.queryRows;
  const solution: Solution = {
    out: new Float64Array(rows * p.heads * p.valueDim),
    lse: new Float64Array(rows * p.heads).fill(Number.NEGATIVE_INFINITY),
    magnitude: 0,
    shift: 0,
    largestValue: 0,
    rounded: new Float64Array(rounding ? rows * p.heads * p.valueDim : 0),
  };
  for (let b = 0; b < p.batch; b++) {
    for (let kvHead = 0; kvHead < p.kvHeads; kvHead++) {
      const keys = readKeys(p, b, kvHead);
      for (let g = 0; g < p.group; g++) {
        const done = (b * p.heads + kvHead * p.group + g) / (p.batch * p.heads);
        yield* solveHead(p, b, kvHead * p.group + g, keys, rounding, solution, done);
      }
    }
  }
  solution.magnitude = Math.max(solution.magnitude * Math.abs(p.scale), solution.shift);
  return solution;
}

interface Keys {
  readonly k: Float64Array;
  readonly v: Float64Array;
}

function readKeys(p: Problem, b: number, kvHead: number): Keys {
  const sequence = sequenceOf(p, b);
  const count = sequence.visibility.keyCount;
  const k = new Float64Array(count * p.dim);
  const v = new Float64Array(count * p.valueDim);
  for (let j = 0; j < count; j++) {
    readRow(p.k, keyAt(p, p.k, b, sequence, j, kvHead), p.dim, k, j * p.dim, p.kScale?.[kvHead]);
    readRow(p.v, keyAt(p, p.v, b, sequence, j, kvHead), p.valueDim, v, j * p.valueDim, p.vScale?.[kvHead]);
  }
  return { k, v };
}

function* solveHead(
  p: Problem,
  b: number,
  head: number,
  { k, v }: Keys,
  rounding: Rounding | undefined,
  into: Solution,
  done: number,
): Generator<number, void> {
  const sequence = sequenceOf(p, b);
  const { keyCount, offset } = sequence.visibility;
  const [left, right] = p.window;
  const { dim, valueDim, softcap, scale } = p;
  const slope = p.alibiSlopes?.[head];
  const sink = p.sinks?.[head];
  const roundP = rounding?.p ? round[rounding.p] : undefined;
  const roundOut = rounding ? round[rounding.out] : undefined;
  const q = new Float64Array(dim);
  const scores = new Float64Array(keyCount);
  const seen = new Int32Array(keyCount);
  const biasRow = new Float64Array(p.bias ? keyCount : 0);
  const maskRow = new Float64Array(p.mask ? keyCount : 0);
  const row = new Float64Array(valueDim);
  const rowRounded = new Float64Array(roundP ? valueDim : 0);

  for (let i = 0; i < sequence.queryCount; i++) {
    readRow(p.q, b * p.q.batchStride + (sequence.queryRow + i) * p.q.rowStride + head * p.q.headStride, dim, q, 0);
    for (const [pairs, target] of [
      [p.bias, biasRow],
      [p.mask, maskRow],
    ] as const) {
      if (pairs)
        readRow(pairs, b * pairs.batchStride + head * pairs.headStride + i * pairs.rowStride, keyCount, target, 0);
    }

    let count = 0;
    let largest = Number.NEGATIVE_INFINITY;
    let shift = 0;
    for (let j = 0; j < keyCount; j++) {
      const distance = j - (i + offset);
      if (p.causal && distance > 0) continue;
      if (left >= 0 && distance < -left) continue;
      if (right >= 0 && distance > right) continue;
      if (p.mask && maskRow[j] === 0) continue;
      if (p.bias && biasRow[j] === Number.NEGATIVE_INFINITY) continue;
      let dot = 0;
      let magnitude = 0;
      for (let d = 0, at = j * dim; d < dim; d++, at++) {
        const product = q[d]! * k[at]!;
        dot += product;
        magnitude += Math.abs(product);
      }
      if (magnitude > into.magnitude && magnitude !== Number.POSITIVE_INFINITY) into.magnitude = magnitude;
      let s = scale * dot;
      if (softcap > 0) s = softcap * Math.tanh(s / softcap);
      const bias = p.bias ? Math.min(Math.max(biasRow[j]!, -biasLimit), biasLimit) : 0;
      const added = bias - (slope === undefined ? 0 : slope * Math.abs(distance));
      s += added;
      scores[count] = s;
      seen[count++] = j;
      if (s > largest || Number.isNaN(s)) {
        largest = s;
        shift = Math.abs(added);
      }
    }
    if (shift < absorbing) into.shift = Math.max(into.shift, shift);

    const outRow = (p.cuSeqLensQ ? sequence.queryRow + i : b * p.queryRows + i) * p.heads + head;
    const lseAt = p.cuSeqLensQ ? head * p.queryRows + sequence.queryRow + i : (b * p.heads + head) * p.queryRows + i;
    if (sink !== undefined && !(sink <= largest)) largest = Number.isNaN(largest) ? largest : sink;
    // No visible key, and no sink: nothing to normalise by. The row stays 0, its lse -inf.
    if (largest === Number.NEGATIVE_INFINITY) continue;

    let sum = sink === undefined ? 0 : Math.exp(sink - largest);
    row.fill(0);
    rowRounded.fill(0);
    for (let n = 0; n < count; n++) {
      const weight = Math.exp(scores[n]! - largest);
      const at = seen[n]! * valueDim;
      sum += weight;
      for (let d = 0; d < valueDim; d++) {
        const value = v[at + d]!;
        row[d]! += weight * value;
        const size = Math.abs(value);
        if (size > into.largestValue && size !== Number.POSITIVE_INFINITY) into.largestValue = size;
      }
      if (roundP) {
        const rounded = roundP(weight);
        for (let d = 0; d < valueDim; d++) rowRounded[d]! += rounded * v[at + d]!;
      }
    }
    into.lse[lseAt] = largest + Math.log(sum);
    for (let d = 0; d < valueDim; d++) into.out[outRow * valueDim + d] = row[d]! / sum;
    if (roundOut) {
      const source = roundP ? rowRounded : row;
      for (let d = 0; d < valueDim; d++) into.rounded[outRow * valueDim + d] = roundOut(source[d]! / sum);
    }
    if (i % 16 === 15) yield done + (i + 1) / sequence.queryCount / (p.batch * p.heads);
  }
}
