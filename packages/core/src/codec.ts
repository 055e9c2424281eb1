/** Runs of elements of any type, to and from numbers. */
import { BLOCK, decodeQ4Block, decodeQ8Block, encodeQ4Block, encodeQ8Block } from "./block-formats.js";
import { type CacheDType, type DType, dtypes } from "./dtype.js";
import { TesseraError } from "./error.js";
import { describe, hostArray, list } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { bf16Table, f8Table, f16Table, toBF16, toF8, toF16 } from "./numeric.js";

/** Typed array that holds elements of a type: blocks and bytes in a Uint8Array. */
export type Elements = Float32Array | Uint16Array | Uint8Array | Int32Array;

/** Memory seen as elements of `dtype`. For block formats the elements are bytes. */
export function elementsOf(dtype: DType, memory: ArrayBufferLike, byteOffset: number, byteLength: number): Elements {
  const size = dtypes[dtype].block === 1 ? dtypes[dtype].bytes : 1;
  if (byteOffset % size !== 0) {
    throw new TesseraError(
      "invalid-argument",
      `byteOffset is ${byteOffset}; allowed for ${dtype}: multiples of ${size}`,
    );
  }
  const length = Math.floor(byteLength / size);
  switch (dtype) {
    case "f32":
      return new Float32Array(memory, byteOffset, length);
    case "f16":
    case "bf16":
      return new Uint16Array(memory, byteOffset, length);
    case "i32":
      return new Int32Array(memory, byteOffset, length);
    default:
      return new Uint8Array(memory, byteOffset, length);
  }
}

/** Reads elements [at, at + count) into `out` from `offset`. Of block formats `at` and `count` are multiples of 32. */
export function readElements(
  dtype: DType,
  elements: Elements,
  at: number,
  count: number,
  out: Float64Array | Float32Array,
  offset: number,
): void {
  if (dtype === "q8_0" || dtype === "q4_0") {
    const bytes = dtypes[dtype].bytes;
    const decodeBlock = dtype === "q8_0" ? decodeQ8Block : decodeQ4Block;
    for (let i = 0; i < count; i += BLOCK) {
      decodeBlock(elements as Uint8Array, ((at + i) / BLOCK) * bytes, out, offset + i);
    }
    return;
  }
  const values = dtype === "f16" ? f16Table() : dtype === "bf16" ? bf16Table() : dtype === "f8_e4m3" ? f8Table() : null;
  if (values) for (let i = 0; i < count; i++) out[offset + i] = values[elements[at + i]!]!;
  else for (let i = 0; i < count; i++) out[offset + i] = elements[at + i]!;
}

/** Rounds `count` values from `offset` once and writes them at element `at`. */
export function writeElements(
  dtype: CacheDType,
  elements: Elements,
  at: number,
  count: number,
  values: ArrayLike<number>,
  offset: number,
): void {
  switch (dtype) {
    case "f32":
      for (let i = 0; i < count; i++) elements[at + i] = values[offset + i]!;
      return;
    case "f16":
      for (let i = 0; i < count; i++) elements[at + i] = toF16(values[offset + i]!);
      return;
    case "bf16":
      for (let i = 0; i < count; i++) elements[at + i] = toBF16(values[offset + i]!);
      return;
    case "f8_e4m3":
      for (let i = 0; i < count; i++) elements[at + i] = toF8(values[offset + i]!);
      return;
    default: {
      const bytes = dtypes[dtype].bytes;
      const encodeBlock = dtype === "q8_0" ? encodeQ8Block : encodeQ4Block;
      for (let i = 0; i < count; i += BLOCK) {
        encodeBlock(values, offset + i, elements as Uint8Array, ((at + i) / BLOCK) * bytes);
      }
    }
  }
}

/** The typed array that stores a type on the host. */
export interface HostArray {
  f32: Float32Array;
  f16: Uint16Array;
  bf16: Uint16Array;
  f8_e4m3: Uint8Array;
  q8_0: Uint8Array;
  q4_0: Uint8Array;
}

const storageDTypes: readonly CacheDType[] = ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"];

function checkStorage(dtype: unknown): void {
  if (!storageDTypes.includes(dtype as CacheDType))
    throw invalid(`dtype is ${describe(dtype)}; allowed: ${list(storageDTypes)}`);
}

/**
 * Numbers as a typed array of a storage type.
 *
 * @param values any numbers; for q8_0 and q4_0 a multiple of 32 of them
 * @param dtype storage type; values are rounded to nearest even once, f8_e4m3 saturates at 448, and q8_0 and q4_0 are
 *   quantised as ggml's reference does
 * @throws TesseraError `invalid-argument`: an unknown type, something else than numbers, no whole number of blocks
 */
export function encode<T extends CacheDType>(values: ArrayLike<number>, dtype: T): HostArray[T] {
  checkStorage(dtype);
  const length = typeof values === "object" && values !== null ? values.length : undefined;
  if (!Number.isSafeInteger(length)) throw invalid(`values is ${describe(values)}; allowed: an array of numbers`);
  for (let i = 0; i < values.length; i++) {
    if (typeof values[i] !== "number") throw invalid(`values[${i}] is ${describe(values[i])}; allowed: numbers`);
  }
  const { block, bytes } = dtypes[dtype];
  if (values.length % block !== 0) {
    throw new TesseraError(
      "invalid-argument",
      `${dtype} stores blocks of ${block} values; got ${values.length} values`,
    );
  }
  const size = (values.length / block) * bytes;
  const elements = elementsOf(dtype, new ArrayBuffer(size), 0, size);
  writeElements(dtype, elements, 0, values.length, values, 0);
  return elements as HostArray[T];
}

/**
 * A typed array of a storage type as float32, exactly.
 *
 * @throws TesseraError `invalid-argument`: an unknown type, another array, no whole number of blocks
 */
export function decode<T extends CacheDType>(data: HostArray[T], dtype: T): Float32Array {
  checkStorage(dtype);
  const wanted = hostArray(dtype, 0).constructor as new () => HostArray[T];
  if (!(data instanceof wanted)) throw invalid(`data is ${describe(data)}; allowed for ${dtype}: ${wanted.name}`);
  const { block, bytes } = dtypes[dtype];
  if (block > 1 && data.length % bytes !== 0) {
    throw new TesseraError("invalid-argument", `${dtype} stores blocks of ${bytes} bytes; got ${data.length} bytes`);
  }
  const count = block > 1 ? (data.length / bytes) * block : data.length;
  const out = new Float32Array(count);
  readElements(dtype, data, 0, count, out, 0);
  return out;
}
