/** Tensors as shaders see them: a buffer, where it begins, and strides by name. */
import { bytesOf, type DType, dtypes, type TensorDesc, TesseraError } from "@tessera/core/web";
import { type Memory, WebGpuBuffer } from "./memory.js";

export interface Operand {
  readonly buffer: WebGpuBuffer | undefined;
  readonly dtype: DType;
  readonly byteOffset: number;
  readonly batch: number;
  readonly row: number;
  readonly head: number;
  readonly shape: readonly number[];
}

/** A range of each dimension: entries (or pages), rows, heads, and the elements of a row. */
export interface Box {
  readonly batch: readonly [from: number, to: number];
  readonly row: readonly [from: number, to: number];
  readonly head: readonly [from: number, to: number];
  readonly width: number;
}

/** @throws TesseraError `invalid-argument` for memory of another device */
export function bufferOf(desc: TensorDesc, name: string, memory: Memory): WebGpuBuffer | undefined {
  const { data } = desc;
  if (data instanceof WebGpuBuffer && data.owner === memory) return data;
  // Descriptors without memory only ask.
  if (ArrayBuffer.isView(data) && data.byteLength === 0) return undefined;
  const what = ArrayBuffer.isView(data) ? "host memory" : "a buffer of another context";
  throw new TesseraError("invalid-argument", `${name} is in ${what}; allowed: a buffer of this context`);
}

/** @param order which of the last dimensions are rows and heads: [B,S,H,D], or [B,H,S] and [B,H,Sq,Sk] */
export function operandOf(desc: TensorDesc, name: string, memory: Memory, order: "rows" | "logs" | "pairs"): Operand {
  const { shape, strides, dtype, byteOffset } = desc;
  const buffer = bufferOf(desc, name, memory);
  const { bytes, block } = dtypes[dtype];
  if (block === 1 && byteOffset % bytes !== 0) {
    throw new TesseraError("invalid-argument", `${name} begins at byte ${byteOffset}; allowed: multiples of ${bytes}`);
  }
  if (block > 1 && byteOffset % 2 !== 0)
    throw new TesseraError("invalid-argument", `${name} begins at byte ${byteOffset}; allowed: multiples of 2`);
  const at = order === "rows" ? shape.length - 3 : shape.length - (order === "logs" ? 2 : 3);
  const [row, head] = order === "rows" ? [at, at + 1] : [at + 1, at];
  // An extent of 1 is broadcast, whatever its stride says.
  const stride = (d: number) => (d < 0 || (order === "pairs" && shape[d] === 1) ? 0 : strides[d]!);
  return { buffer, dtype, byteOffset, batch: stride(at - 1), row: stride(row), head: stride(head), shape };
}

/** Where a part of a tensor lies. */
export interface Window {
  readonly buffer: GPUBuffer | undefined;
  /** Of the binding, in bytes. */
  readonly offset: number;
  readonly size: number;
  /** Bytes of element `first` in it. */
  readonly base: number;
  readonly first: number;
}

/** The least that has to be bound for a box of a tensor. */
export function windowOf(operand: Operand, box: Box, alignment = 256): Window {
  const { dtype, byteOffset, batch, row, head, buffer } = operand;
  // Nothing is read of it, but something has to be bound.
  if (box.width === 0 || [box.batch, box.row, box.head].some(([from, to]) => to <= from))
    return { buffer: buffer?.gpu, offset: 0, size: 16, base: 0, first: 0 };
  const first = box.batch[0] * batch + box.row[0] * row + box.head[0] * head;
  const end = (box.batch[1] - 1) * batch + (box.row[1] - 1) * row + (box.head[1] - 1) * head + box.width;
  const { block } = dtypes[dtype];
  const from = byteOffset + bytesOf(dtype, Math.floor(first / block) * block);
  const to = byteOffset + bytesOf(dtype, Math.ceil(end / block) * block);
  const offset = Math.floor(from / alignment) * alignment;
  const size = Math.max(4, Math.ceil((to - offset) / 4) * 4);
  return { buffer: buffer?.gpu, offset, size, base: from - offset, first };
}
