/** Arrays in host memory, as users hand them over and get them back. */

import type { CacheDType, DType } from "./dtype.js";
import { TesseraError } from "./error.js";

/** `Float16Array`, where the runtime has it (Node 24). Structural, so that no polyfill's type is needed. */
export interface Float16ArrayLike extends ArrayBufferView {
  readonly length: number;
  readonly BYTES_PER_ELEMENT: number;
  readonly [Symbol.toStringTag]: "Float16Array";
}

interface Shaped {
  /** Extents, outermost first. */
  readonly shape: readonly number[];
  /** Distance between neighbours of each dimension, in elements; default: contiguous. The last must be 1. */
  readonly strides?: readonly number[] | undefined;
}

/** float32 values with their shape. */
export interface HostF32 extends Shaped {
  readonly data: Float32Array;
  readonly dtype?: "f32" | undefined;
}

/** Bits of 16-bit floats with their shape. `dtype` is required: a Uint16Array may hold either. */
export interface HostHalf extends Shaped {
  readonly data: Uint16Array;
  readonly dtype: "f16" | "bf16";
}

/** A runtime's own half floats with their shape. */
export interface HostF16 extends Shaped {
  readonly data: Float16ArrayLike;
  readonly dtype?: "f16" | undefined;
}

/** Cache-only types: bytes with the logical shape and, for block formats, strides in multiples of 32. */
export interface HostBytes extends Shaped {
  readonly data: Uint8Array;
  readonly dtype: "f8_e4m3" | "q8_0" | "q4_0";
}

/** true = visible. */
export interface HostBool extends Shaped {
  readonly data: Uint8Array | readonly boolean[];
  readonly dtype?: "bool" | undefined;
}

/** Integers with a shape. */
export interface HostInts extends Shaped {
  readonly data: Int32Array;
  readonly dtype?: "i32" | undefined;
}

/** A float array on the host: q, k, v, out, bias. */
export type HostTensor = HostF32 | HostHalf | HostF16;
/** k and v may also come in a cache's storage types. */
export type HostKv = HostTensor | HostBytes;

/** Typed arrays that carry tensor data. */
export type HostData = Float32Array | Float16ArrayLike | Uint16Array | Uint8Array | Int32Array;

export function isFloat16Array(data: unknown): data is Float16ArrayLike {
  return ArrayBuffer.isView(data) && (data as Partial<Float16ArrayLike>)[Symbol.toStringTag] === "Float16Array";
}

/** A short word for what a value is, for messages. */
export function describe(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "object") return (value as object).constructor?.name ?? "an object";
  if (typeof value === "string") return JSON.stringify(value);
  return typeof value === "function" ? "a function" : String(value);
}

/**
 * The element type of a typed array, given what the caller says of it.
 *
 * @throws TesseraError `invalid-argument`: a Uint16Array or Uint8Array without a dtype, or a dtype that contradicts
 *   the array
 */
export function dtypeOf(data: unknown, said: unknown, name: string): DType {
  const allowed = allowedDTypes(data);
  if (allowed.length === 0) {
    throw new TesseraError(
      "invalid-argument",
      `${name}.data is ${describe(data)}; allowed: Float32Array, Float16Array, Uint16Array with dtype "f16" or "bf16", ` +
        `Uint8Array with dtype "f8_e4m3", "q8_0", "q4_0" or "bool", Int32Array`,
    );
  }
  if (said === undefined) {
    if (allowed.length === 1) return allowed[0]!;
    throw new TesseraError(
      "invalid-argument",
      `${name}.dtype is missing: a ${describe(data)} may hold ${list(allowed)}; say which`,
    );
  }
  if (!allowed.includes(said as DType)) {
    throw new TesseraError(
      "invalid-argument",
      `${name}.dtype is ${describe(said)}; allowed for a ${describe(data)}: ${list(allowed)}`,
    );
  }
  return said as DType;
}

function allowedDTypes(data: unknown): readonly DType[] {
  if (isFloat16Array(data)) return ["f16"];
  if (data instanceof Float32Array) return ["f32"];
  if (data instanceof Uint16Array) return ["f16", "bf16"];
  if (data instanceof Int32Array) return ["i32"];
  if (data instanceof Uint8Array) return ["f8_e4m3", "q8_0", "q4_0", "bool"];
  return [];
}

export const list = (values: readonly string[]) => values.map((value) => JSON.stringify(value)).join(", ");

/** A new host array for `bytes` bytes of `dtype`. */
export function hostArray(dtype: CacheDType, bytes: number): Float32Array | Uint16Array | Uint8Array {
  if (dtype === "f32") return new Float32Array(bytes / 4);
  return dtype === "f16" || dtype === "bf16" ? new Uint16Array(bytes / 2) : new Uint8Array(bytes);
}
