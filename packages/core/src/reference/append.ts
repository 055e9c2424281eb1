/** New tokens to the end of a cache: rotated, converted, written. All of it is checked before the first byte changes. */
import type { AppendDesc } from "../backend.js";
import { writeElements } from "../codec.js";
import type { CacheDType } from "../dtype.js";
import { invalid } from "../invalid.js";
import { readRow, rowsView, type View, vectorAt } from "../problem.js";
import { checkPagesOf, rising } from "./contents.js";
import { memoryOf } from "./memory.js";
import { type Rotate, rotationOf } from "./rope.js";

/** Whose rows are new, and where they go. */
interface Append {
  readonly batch: number;
  /** Rows of k: S padded, T packed. */
  readonly rows: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly valueDim: number;
  readonly lengths: Int32Array;
  readonly newLens: Int32Array | undefined;
  readonly cuSeqLens: Int32Array | undefined;
  readonly table: Int32Array | undefined;
  readonly tableStride: number;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly capacity: number;
}

function appendOf(desc: AppendDesc): Append {
  const [rows, kvHeads, dim] = desc.k.shape.slice(-3) as [number, number, number];
  const paged = desc.pageTable;
  const cacheRows = desc.cacheK.shape[1]!;
  return {
    batch: desc.cuSeqLens ? desc.cuSeqLens.shape[0]! - 1 : desc.k.shape[0]!,
    rows,
    kvHeads,
    dim,
    valueDim: desc.v.shape.at(-1)!,
    lengths: vectorAt<Int32Array>(desc.lengths, memoryOf),
    newLens: vectorAt<Int32Array>(desc.newLens, memoryOf),
    cuSeqLens: vectorAt<Int32Array>(desc.cuSeqLens, memoryOf),
    table: vectorAt<Int32Array>(paged, memoryOf),
    tableStride: paged?.strides[0] ?? 0,
    pageSize: paged ? cacheRows : 0,
    pageCount: desc.cacheK.shape[0]!,
    capacity: paged ? paged.shape[1]! * cacheRows : cacheRows,
  };
}

function newTokens(a: Append, b: number): number {
  if (a.cuSeqLens) return a.cuSeqLens[b + 1]! - a.cuSeqLens[b]!;
  return a.newLens?.[b] ?? a.rows;
}

function check(a: Append): void {
  rising(a.cuSeqLens, a.batch, a.rows, "cuSeqLens");
  for (let b = 0; b < a.batch; b++) {
    const length = a.lengths[b]!;
    const count = newTokens(a, b);
    if (count < 0 || count > a.rows) throw invalid(`newLens[${b}] is ${count}; allowed: 0 to ${a.rows}`);
    if (length < 0 || length + count > a.capacity) {
      throw invalid(
        `lengths[${b}] is ${length} and ${count} tokens are new; allowed: up to the capacity of ${a.capacity}`,
      );
    }
    if (a.table) checkPagesOf(a.table, b * a.tableStride, length + count, a.pageSize, a.pageCount, b);
  }
}

/** Element of the cache where a token of a sequence goes, head 0. */
function slot(a: Append, cache: View, b: number, position: number): number {
  if (!a.table) return b * cache.batchStride + position * cache.rowStride;
  const page = a.table[b * a.tableStride + Math.floor(position / a.pageSize)]!;
  return page * cache.batchStride + (position % a.pageSize) * cache.rowStride;
}

/** Checks, then appends; yields after each sequence. */
export function* append(desc: AppendDesc): Generator<void, void> {
  const a = appendOf(desc);
  check(a);
  const k = rowsView(desc.k, memoryOf);
  const v = rowsView(desc.v, memoryOf);
  const cacheK = rowsView(desc.cacheK, memoryOf);
  const cacheV = rowsView(desc.cacheV, memoryOf);
  const kScale = vectorAt<Float32Array>(desc.kScale, memoryOf);
  const vScale = vectorAt<Float32Array>(desc.vScale, memoryOf);
  const rotate = desc.rope && rotationOf(desc.rope, a.dim);
  const positions = vectorAt<Int32Array>(desc.rope?.positions, memoryOf);
  const positionsStride = a.cuSeqLens ? 0 : (desc.rope?.positions?.strides[0] ?? 0);
  const row = new Float64Array(Math.max(a.dim, a.valueDim));

  for (let b = 0; b < a.batch; b++) {
    const first = a.cuSeqLens?.[b] ?? 0;
    const count = newTokens(a, b);
    const positionOf = (t: number) => (positions ? positions[b * positionsStride + first + t]! : a.lengths[b]! + t);
    for (let t = 0; t < count; t++) {
      const at = a.lengths[b]! + t;
      for (let head = 0; head < a.kvHeads; head++) {
        const from = (view: View) => b * view.batchStride + (first + t) * view.rowStride + head * view.headStride;
        readRow(k, from(k), a.dim, row, 0);
        rotate?.(row, positionOf(t));
        store(cacheK, slot(a, cacheK, b, at) + head * cacheK.headStride, a.dim, row, kScale?.[head]);
        readRow(v, from(v), a.valueDim, row, 0);
        store(cacheV, slot(a, cacheV, b, at) + head * cacheV.headStride, a.valueDim, row, vScale?.[head]);
      }
    }
    if (desc.q && desc.qOut) rotateQueries(desc, b, first, count, rotate, positionOf);
    yield;
  }
  if (desc.advance) for (let b = 0; b < a.batch; b++) a.lengths[b]! += newTokens(a, b);
}

function store(cache: View, at: number, count: number, row: Float64Array, scale: number | undefined): void {
  if (scale !== undefined && scale !== 1) for (let d = 0; d < count; d++) row[d]! /= scale;
  writeElements(cache.dtype as CacheDType, cache.elements, at, count, row, 0);
}

function rotateQueries(
  desc: AppendDesc,
  b: number,
  first: number,
  count: number,
  rotate: Rotate | undefined,
  positionOf: (t: number) => number,
): void {
  const [rows, heads, dim] = desc.q!.shape.slice(-3) as [number, number, number];
  const q = rowsView(desc.q!, memoryOf);
  const out = rowsView(desc.qOut!, memoryOf);
  const row = new Float64Array(dim);
  // Padding comes along unrotated, so that no row of the result is left as it was.
  const end = desc.cuSeqLens ? count : rows;
  for (let t = 0; t < end; t++) {
    for (let head = 0; head < heads; head++) {
      readRow(q, b * q.batchStride + (first + t) * q.rowStride + head * q.headStride, dim, row, 0);
      if (t < count) rotate?.(row, positionOf(t));
      const to = b * out.batchStride + (first + t) * out.rowStride + head * out.headStride;
      writeElements(out.dtype as CacheDType, out.elements, to, dim, row, 0);
    }
  }
}
