/**
 * Attention in float64, tile by tile with a running maximum: the algorithm that every kernel follows, at its simplest.
 *
 * A tile is 32 queries of one head by 64 keys. Keys and values of a tile are decoded once for all query heads that
 * share them. Only keys that some query of the tile may see by structure are read at all; a key that a query doesn't
 * see takes no part in that query's sums, not even multiplied by 0.
 */
import type { AttentionDesc } from "../backend.js";
import { writeElements } from "../codec.js";
import type { FloatDType } from "../dtype.js";
import { biasLimit } from "../limits.js";
import {
  keyAt,
  lseView,
  type Problem,
  problemOf,
  readRow,
  rowsView,
  type Sequence,
  sequenceOf,
  type View,
} from "../problem.js";
import { type Span, visibleKeys, visibleKeysOf } from "../visibility.js";
import { checkContents } from "./contents.js";
import { memoryOf } from "./memory.js";

export const TILE_Q = 32;
export const TILE_K = 64;

/** Running sums of the rows of one query tile and head. */
interface Rows {
  readonly q: Float64Array;
  readonly max: Float64Array;
  readonly sum: Float64Array;
  readonly out: Float64Array;
}

/** Computes `desc`; yields after each pair of tiles. Contents of lengths and pages are read when it starts. */
export function* attend(desc: AttentionDesc): Generator<void, void> {
  const p = problemOf(desc, memoryOf);
  checkContents(p);
  const out = rowsView(desc.out, memoryOf);
  const lse = desc.lse && lseView(desc.lse, memoryOf);
  if (p.queryRows === 0) return;
  const k = new Float64Array(TILE_K * p.dim);
  const v = new Float64Array(TILE_K * p.valueDim);
  const tiles: Rows[] = Array.from({ length: p.group }, () => ({
    q: new Float64Array(TILE_Q * p.dim),
    max: new Float64Array(TILE_Q),
    sum: new Float64Array(TILE_Q),
    out: new Float64Array(TILE_Q * p.valueDim),
  }));

  for (let b = 0; b < p.batch; b++) {
    const sequence = sequenceOf(p, b);
    for (let kvHead = 0; kvHead < p.kvHeads; kvHead++) {
      for (let begin = 0; begin < sequence.queryCount; begin += TILE_Q) {
        const queries = { begin, end: Math.min(begin + TILE_Q, sequence.queryCount) };
        for (const [g, rows] of tiles.entries()) startRows(p, b, sequence, kvHead * p.group + g, queries, rows);
        const seen = visibleKeysOf(sequence.visibility, queries);
        for (let first = seen.begin; first < seen.end; first += TILE_K) {
          const keys = { begin: first, end: Math.min(first + TILE_K, seen.end) };
          for (let j = keys.begin; j < keys.end; j++) {
            readRow(p.k, keyAt(p, p.k, b, sequence, j, kvHead), p.dim, k, (j - first) * p.dim, p.kScale?.[kvHead]);
            readRow(
              p.v,
              keyAt(p, p.v, b, sequence, j, kvHead),
              p.valueDim,
              v,
              (j - first) * p.valueDim,
              p.vScale?.[kvHead],
            );
          }
          for (const [g, rows] of tiles.entries())
            addTile(p, b, sequence, kvHead * p.group + g, queries, keys, k, v, rows);
          yield;
        }
        for (const [g, rows] of tiles.entries()) {
          finishRows(p, b, sequence.queryRow, kvHead * p.group + g, queries, rows, out, lse);
        }
      }
    }
    if (!p.cuSeqLensQ) clearRows(p, b, sequence.queryCount, out, lse);
    yield;
  }
}

function startRows(p: Problem, b: number, sequence: Sequence, head: number, queries: Span, rows: Rows): void {
  const sink = p.sinks?.[head] ?? Number.NEGATIVE_INFINITY;
  rows.max.fill(sink);
  rows.sum.fill(sink === Number.NEGATIVE_INFINITY ? 0 : 1);
  rows.out.fill(0);
  for (let i = queries.begin; i < queries.end; i++) {
    const at = b * p.q.batchStride + (sequence.queryRow + i) * p.q.rowStride + head * p.q.headStride;
    readRow(p.q, at, p.dim, rows.q, (i - queries.begin) * p.dim);
  }
}

const pair = new Float64Array(1);

function addTile(
  p: Problem,
  b: number,
  sequence: Sequence,
  head: number,
  queries: Span,
  keys: Span,
  k: Float64Array,
  v: Float64Array,
  rows: Rows,
): void {
  const { dim, valueDim } = p;
  for (let i = queries.begin; i < queries.end; i++) {
    const r = i - queries.begin;
    const visible = visibleKeys(sequence.visibility, i);
    const end = Math.min(visible.end, keys.end);
    for (let j = Math.max(visible.begin, keys.begin); j < end; j++) {
      if (p.mask && readPair(p.mask, b, head, i, j) === 0) continue;
      const bias = p.bias ? readPair(p.bias, b, head, i, j) : 0;
      if (bias === Number.NEGATIVE_INFINITY) continue;

      let score = 0;
      const key = (j - keys.begin) * dim;
      for (let d = 0; d < dim; d++) score += rows.q[r * dim + d]! * k[key + d]!;
      score *= p.scale;
      if (p.softcap > 0) score = p.softcap * Math.tanh(score / p.softcap);
      score += Math.min(Math.max(bias, -biasLimit), biasLimit);
      if (p.alibiSlopes) score -= p.alibiSlopes[head]! * Math.abs(i + sequence.visibility.offset - j);

      // A new maximum rescales what was summed so far; NaN counts as one, and stays.
      let weight = 1;
      const before = rows.max[r]!;
      if (score === Number.NEGATIVE_INFINITY && before === score) continue;
      if (score <= before) weight = Math.exp(score - before);
      else {
        const rescale = before === Number.NEGATIVE_INFINITY ? 0 : Math.exp(before - score);
        rows.max[r] = score;
        rows.sum[r]! *= rescale;
        for (let d = 0; d < valueDim; d++) rows.out[r * valueDim + d]! *= rescale;
        weight = Math.exp(score - score);
      }
      rows.sum[r]! += weight;
      const value = (j - keys.begin) * valueDim;
      for (let d = 0; d < valueDim; d++) rows.out[r * valueDim + d]! += weight * v[value + d]!;
    }
  }
}

function readPair(view: View, b: number, head: number, i: number, j: number): number {
  readRow(view, b * view.batchStride + head * view.headStride + i * view.rowStride + j, 1, pair, 0);
  return pair[0]!;
}

function finishRows(
  p: Problem,
  b: number,
  queryRow: number,
  head: number,
  queries: Span,
  rows: Rows,
  out: View,
  lse: View | undefined,
): void {
  const { valueDim } = p;
  for (let i = queries.begin; i < queries.end; i++) {
    const r = i - queries.begin;
    const sum = rows.sum[r]!;
    if (sum !== 0) for (let d = 0; d < valueDim; d++) rows.out[r * valueDim + d]! /= sum;
    const row = queryRow + i;
    const at = b * out.batchStride + row * out.rowStride + head * out.headStride;
    writeElements(out.dtype as FloatDType, out.elements, at, valueDim, rows.out, r * valueDim);
    if (lse)
      lse.elements[b * lse.batchStride + head * lse.headStride + row * lse.rowStride] = rows.max[r]! + Math.log(sum);
  }
}

/** Rows at or past a sequence's query count: out = 0, lse = -inf. */
function clearRows(p: Problem, b: number, from: number, out: View, lse: View | undefined): void {
  const zeros = new Float64Array(p.valueDim);
  for (let i = from; i < p.queryRows; i++) {
    for (let head = 0; head < p.heads; head++) {
      const at = b * out.batchStride + i * out.rowStride + head * out.headStride;
      writeElements(out.dtype as FloatDType, out.elements, at, p.valueDim, zeros, 0);
      if (lse) lse.elements[b * lse.batchStride + head * lse.headStride + i * lse.rowStride] = Number.NEGATIVE_INFINITY;
    }
  }
}
