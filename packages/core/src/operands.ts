/** Whatever users hand over as a tensor, checked and turned into the one form that back ends take. */
import type { TensorDesc } from "./backend.js";
import { ofAnotherCopy, otherCopy } from "./copies.js";
import type { DType } from "./dtype.js";
import { describe, dtypeOf, isFloat16Array, list } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { checkBlocks, checkReach, checkShape, checkStrides, contiguousStrides, shapeText } from "./strides.js";
import { isTensor } from "./tensor-brand.js";

/** The engine whose tensors are welcome; undefined where only host arrays are (oracle). */
export type Owner = object | undefined;

export const floatDTypes: readonly DType[] = ["f32", "f16", "bf16"];
export const cacheDTypes: readonly DType[] = ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"];

/** Memory behind a host array; half floats as their bits, with no copy. */
export function hostView(data: ArrayBufferView): ArrayBufferView {
  if (!isFloat16Array(data)) return data;
  return new Uint16Array(data.buffer, data.byteOffset, data.byteLength / 2);
}

function tensorOperand(
  value: { disposed: boolean; owner: object; desc: TensorDesc },
  name: string,
  owner: Owner,
): TensorDesc {
  if (value.disposed) throw invalid(`${name} is a tensor that was disposed`);
  if (owner === undefined)
    throw invalid(`${name} is a tensor of an engine; this call takes host arrays: await ${name}.read()`);
  const other = otherCopy(value.owner);
  if (other !== undefined) throw invalid(ofAnotherCopy(name, "tensor", other));
  if (value.owner !== owner)
    throw invalid(`${name} is a tensor of another engine; read() it there and make it with this engine's tensor()`);
  return value.desc;
}

/**
 * A tensor, or `{ data, shape, dtype?, strides? }`.
 *
 * @param fallback dtype of a Uint8Array that doesn't say (masks)
 */
export function operandOf(
  value: unknown,
  name: string,
  allowed: readonly DType[],
  owner: Owner,
  fallback?: DType,
): TensorDesc {
  const desc = isTensor(value) ? tensorOperand(value, name, owner) : hostOperand(value, name, fallback);
  const last = desc.shape.length - 1;
  if (desc.strides[last] !== 1 && desc.shape[last]! > 1) {
    throw invalid(
      `${name} has strides ${shapeText(desc.strides)}; allowed: 1 in the last dimension, it must be contiguous`,
    );
  }
  if (!allowed.includes(desc.dtype))
    throw invalid(`${name} has dtype ${JSON.stringify(desc.dtype)}; allowed: ${list(allowed)}`);
  return desc;
}

const memberNames = new Set(["data", "shape", "dtype", "strides"]);

function hostOperand(value: unknown, name: string, fallback: DType | undefined): TensorDesc {
  if (ArrayBuffer.isView(value) || Array.isArray(value)) {
    throw invalid(`${name} is ${describe(value)} with no shape; pass { data, shape } or a tensor of the engine`);
  }
  if (typeof value !== "object" || value === null) {
    throw invalid(
      `${name} is ${describe(value)}; allowed: a tensor of the engine or { data, shape, dtype?, strides? }`,
    );
  }
  for (const member in value) {
    if (!memberNames.has(member))
      throw invalid(`${name} has a member ${JSON.stringify(member)}; allowed: data, shape, dtype, strides`);
  }
  const { data: given, shape, dtype: said, strides: givenStrides } = value as Record<string, unknown>;
  const data = fallback === "bool" && Array.isArray(given) ? boolBytes(given, name) : given;
  const dtype = dtypeOf(data, said === undefined && data instanceof Uint8Array ? fallback : said, name);
  checkShape(shape, name);
  checkBlocks(shape, dtype, name);
  const strides = givenStrides === undefined ? contiguousStrides(shape) : givenStrides;
  checkStrides(strides, shape, dtype, name);
  const view = hostView(data as ArrayBufferView);
  checkReach(shape, strides, dtype, view.byteLength, name);
  return { data: view, byteOffset: 0, dtype, shape, strides };
}

/** Booleans as bytes. */
export function boolBytes(values: readonly unknown[], name: string): Uint8Array {
  const bytes = new Uint8Array(values.length);
  for (let i = 0; i < bytes.length; i++) {
    const value = values[i];
    if (typeof value !== "boolean") throw invalid(`${name}[${i}] is ${describe(value)}; allowed: true or false`);
    bytes[i] = value ? 1 : 0;
  }
  return bytes;
}

/** One number per head, as f32. */
export function perHead(value: unknown, name: string, heads: number, owner: Owner): TensorDesc {
  if (isTensor(value)) return vector(tensorOperand(value, name, owner), name, "f32", heads);
  let data: Float32Array;
  if (value instanceof Float32Array) data = value;
  else if (Array.isArray(value)) {
    for (const [i, one] of value.entries()) {
      if (typeof one !== "number") throw invalid(`${name}[${i}] is ${describe(one)}; allowed: numbers`);
    }
    data = Float32Array.from(value as number[]);
  } else if (typeof value === "object" && value !== null && "data" in value) {
    return vector(operandOf(value, name, ["f32"], owner), name, "f32", heads);
  } else throw invalid(`${name} is ${describe(value)}; allowed: number[], Float32Array or an f32 tensor of ${heads}`);
  if (data.length !== heads) throw invalid(`${name} has ${data.length} values; allowed: ${heads}, one per head`);
  return { data, byteOffset: 0, dtype: "f32", shape: [heads], strides: [1] };
}

function vector(desc: TensorDesc, name: string, dtype: DType, length: number): TensorDesc {
  if (desc.dtype !== dtype)
    throw invalid(`${name} has dtype ${JSON.stringify(desc.dtype)}; allowed: ${JSON.stringify(dtype)}`);
  if (desc.shape.length !== 1 || desc.shape[0] !== length) {
    throw invalid(`${name} has shape ${shapeText(desc.shape)}; allowed: [${length}]`);
  }
  if (length > 1 && desc.strides[0] !== 1) throw invalid(`${name} has stride ${desc.strides[0]}; allowed: 1`);
  return desc;
}

/** Whole numbers with, if the host can see them, their values. */
export interface CheckedInts {
  readonly desc: TensorDesc;
  readonly values: Int32Array | undefined;
}

/** `length` whole numbers. Values of a tensor stay unseen here: its back end checks them. */
export function intsOf(value: unknown, name: string, length: number, owner: Owner): CheckedInts {
  if (isTensor(value))
    return { desc: vector(tensorOperand(value, name, owner), name, "i32", length), values: undefined };
  const values = int32(value, name);
  if (values.length !== length) throw invalid(`${name} has ${values.length} values; allowed: ${length}`);
  return { desc: { data: values, byteOffset: 0, dtype: "i32", shape: [length], strides: [1] }, values };
}

/** Length of a list of whole numbers, whatever form it has; undefined if it is none. */
export function intsLength(value: unknown): number | undefined {
  if (isTensor(value)) return value.desc.shape.length === 1 ? value.desc.shape[0] : undefined;
  return Array.isArray(value) || value instanceof Int32Array ? value.length : undefined;
}

/** number[] or Int32Array as Int32Array. */
export function int32(value: unknown, name: string): Int32Array {
  if (value instanceof Int32Array) return value;
  if (!Array.isArray(value))
    throw invalid(`${name} is ${describe(value)}; allowed: number[], Int32Array or an i32 tensor`);
  const values = new Int32Array(value.length);
  for (let i = 0; i < values.length; i++) {
    const one: unknown = value[i];
    if (typeof one !== "number" || (one | 0) !== one)
      throw invalid(`${name}[${i}] is ${describe(one)}; allowed: 32-bit whole numbers`);
    values[i] = one;
  }
  return values;
}
