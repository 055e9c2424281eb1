/**
 * A checked attention in one form: what TypeScript code computes from (the reference back end, the oracle). The mirror
 * of backends/common/include/tessera/common/problem.h: behind it nobody sees padded, packed or paged any more.
 */
import type { AttentionDesc, TensorDesc } from "./backend.js";
import { type Elements, elementsOf, readElements } from "./codec.js";
import type { DType } from "./dtype.js";
import { makeVisibility, type Visibility } from "./visibility.js";

/** Memory behind a descriptor, for whoever owns the buffers. */
export type Memory = (data: TensorDesc["data"]) => ArrayBufferView;

/** Host arrays only. */
export const hostMemory: Memory = (data) => data as ArrayBufferView;

/** Strided view with named dimensions, in elements. Packed tensors have batch stride 0: the row says it all. */
export interface View {
  readonly elements: Elements;
  readonly dtype: DType;
  readonly batchStride: number;
  /** Query or key position; for pages: slot in the page. */
  readonly rowStride: number;
  readonly headStride: number;
}

/** One batch entry, wherever its rows live. */
export interface Sequence {
  readonly queryCount: number;
  /** Row of query 0 in a packed q; 0 if padded. */
  readonly queryRow: number;
  /** Row of key 0 in a packed k; 0 if padded or paged. */
  readonly keyRow: number;
  readonly visibility: Visibility;
}

export interface Problem {
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** heads / kvHeads */
  readonly group: number;
  readonly dim: number;
  readonly valueDim: number;
  /** Rows of q: Sq padded, T packed. */
  readonly queryRows: number;
  /** Rows of k: Sk, T, or the page size. */
  readonly keyRows: number;
  readonly q: View;
  readonly k: View;
  readonly v: View;
  readonly bias: View | undefined;
  readonly mask: View | undefined;
  readonly scale: number;
  /** 0 = off. */
  readonly softcap: number;
  readonly causal: boolean;
  readonly topLeft: boolean;
  readonly window: readonly [left: number, right: number];
  readonly alibiSlopes: Float32Array | undefined;
  readonly sinks: Float32Array | undefined;
  readonly kScale: Float32Array | undefined;
  readonly vScale: Float32Array | undefined;
  readonly seqLensQ: Int32Array | undefined;
  readonly seqLensK: Int32Array | undefined;
  readonly cuSeqLensQ: Int32Array | undefined;
  readonly cuSeqLensK: Int32Array | undefined;
  readonly queryOffset: Int32Array | undefined;
  readonly pageTable: Int32Array | undefined;
  readonly pageTableStride: number;
  readonly pagesPerSequence: number;
  /** 0 = not paged. */
  readonly pageSize: number;
  readonly pageCount: number;
}

/** Elements from a descriptor's first one on. */
export function elementsAt(desc: TensorDesc, memory: Memory): Elements {
  const view = memory(desc.data);
  return elementsOf(desc.dtype, view.buffer, view.byteOffset + desc.byteOffset, view.byteLength - desc.byteOffset);
}

/** [B,S,H,D] or [rows,H,D] as rows of heads. */
export function rowsView(desc: TensorDesc, memory: Memory): View {
  const at = desc.shape.length - 3;
  return {
    elements: elementsAt(desc, memory),
    dtype: desc.dtype,
    batchStride: at > 0 ? desc.strides[0]! : 0,
    rowStride: desc.strides[at]!,
    headStride: desc.strides[at + 1]!,
  };
}

/** [B,H,S] or [H,rows]: lse. */
export function lseView(desc: TensorDesc, memory: Memory): View {
  const at = desc.shape.length - 2;
  return {
    elements: elementsAt(desc, memory),
    dtype: desc.dtype,
    batchStride: at > 0 ? desc.strides[0]! : 0,
    rowStride: desc.strides[at + 1]!,
    headStride: desc.strides[at]!,
  };
}

function pairsView(desc: TensorDesc | undefined, memory: Memory): View | undefined {
  if (!desc) return undefined;
  // An extent of 1 is broadcast, whatever its stride says.
  const [batchStride, headStride, rowStride] = desc.strides.map((stride, d) => (desc.shape[d] === 1 ? 0 : stride)) as [
    number,
    number,
    number,
  ];
  return { elements: elementsAt(desc, memory), dtype: desc.dtype, batchStride, rowStride, headStride };
}

/** A vector of f32 or i32, as the typed array that it is. */
export function vectorAt<T extends Float32Array | Int32Array>(desc: TensorDesc, memory: Memory): T;
export function vectorAt<T extends Float32Array | Int32Array>(
  desc: TensorDesc | undefined,
  memory: Memory,
): T | undefined;
export function vectorAt(desc: TensorDesc | undefined, memory: Memory): Elements | undefined {
  if (!desc) return undefined;
  // Length arrays are contiguous; of a page table every row is needed.
  return elementsAt(desc, memory);
}

/** A descriptor that problem and contract agree on, in one form. `out` and `lse` are the caller's to look at. */
export function problemOf(desc: Omit<AttentionDesc, "out" | "lse">, memory: Memory): Problem {
  const [queryRows, heads, dim] = desc.q.shape.slice(-3) as [number, number, number];
  const [keyRows, kvHeads] = desc.k.shape.slice(-3) as [number, number];
  return {
    batch: desc.cuSeqLensQ ? desc.cuSeqLensQ.shape[0]! - 1 : desc.q.shape[0]!,
    heads,
    kvHeads,
    group: heads / kvHeads,
    dim,
    valueDim: desc.v.shape.at(-1)!,
    queryRows,
    keyRows,
    q: rowsView(desc.q, memory),
    k: rowsView(desc.k, memory),
    v: rowsView(desc.v, memory),
    bias: pairsView(desc.bias, memory),
    mask: pairsView(desc.mask, memory),
    scale: desc.scale ?? 1 / Math.sqrt(dim),
    softcap: desc.softcap ?? 0,
    causal: desc.causal ?? false,
    topLeft: desc.align === "top-left",
    window: desc.window ?? [-1, -1],
    alibiSlopes: vectorAt(desc.alibiSlopes, memory),
    sinks: vectorAt(desc.sinks, memory),
    kScale: vectorAt(desc.kScale, memory),
    vScale: vectorAt(desc.vScale, memory),
    seqLensQ: vectorAt(desc.seqLensQ, memory),
    seqLensK: vectorAt(desc.seqLensK, memory),
    cuSeqLensQ: vectorAt(desc.cuSeqLensQ, memory),
    cuSeqLensK: vectorAt(desc.cuSeqLensK, memory),
    queryOffset: vectorAt(desc.queryOffset, memory),
    pageTable: vectorAt(desc.pageTable, memory),
    pageTableStride: desc.pageTable?.strides[0] ?? 0,
    pagesPerSequence: desc.pageTable?.shape[1] ?? 0,
    pageSize: desc.pageTable ? keyRows : 0,
    pageCount: desc.pageTable ? desc.k.shape[0]! : 0,
  };
}

/** Batch entry b. Reads the length arrays. */
export function sequenceOf(p: Problem, b: number): Sequence {
  const { cuSeqLensQ, cuSeqLensK } = p;
  const queryCount = cuSeqLensQ ? cuSeqLensQ[b + 1]! - cuSeqLensQ[b]! : (p.seqLensQ?.[b] ?? p.queryRows);
  const keys = cuSeqLensK ? cuSeqLensK[b + 1]! - cuSeqLensK[b]! : (p.seqLensK?.[b] ?? p.keyRows);
  const offset = p.queryOffset ? p.queryOffset[b]! : p.topLeft ? 0 : keys - queryCount;
  return {
    queryCount,
    queryRow: cuSeqLensQ?.[b] ?? 0,
    keyRow: cuSeqLensK?.[b] ?? 0,
    visibility: makeVisibility(keys, offset, p.causal, p.window[0], p.window[1]),
  };
}

/** Element number of a key's or value's row. */
export function keyAt(p: Problem, view: View, b: number, sequence: Sequence, j: number, kvHead: number): number {
  const head = kvHead * view.headStride;
  if (p.pageSize === 0) return b * view.batchStride + (sequence.keyRow + j) * view.rowStride + head;
  const page = p.pageTable![b * p.pageTableStride + Math.floor(j / p.pageSize)]!;
  return page * view.batchStride + (j % p.pageSize) * view.rowStride + head;
}

/** Reads one row, as numbers. */
export function readRow(view: View, at: number, count: number, out: Float64Array, offset: number, scale = 1): void {
  readElements(view.dtype, view.elements, at, count, out, offset);
  if (scale !== 1) for (let i = 0; i < count; i++) out[offset + i]! *= scale;
}
