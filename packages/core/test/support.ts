import { readFileSync } from "node:fs";
import { encode } from "../src/codec.js";
import type { CacheDType } from "../src/dtype.js";
import type { HostKv, HostTensor } from "../src/host-tensor.js";
import { countOf } from "../src/strides.js";

/** Repeatable numbers in [-1, 1). */
export function random(seed: number): () => number {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 31 - 1;
  };
}

export function numbers(count: number, next: () => number, size = 1): Float32Array {
  return Float32Array.from({ length: count }, () => next() * size);
}

/** Random values of a shape in a type. */
export function tensor(
  shape: readonly number[],
  next: () => number,
  dtype: "f32" | "f16" | "bf16" = "f32",
  size = 1,
): HostTensor {
  const data = encode(numbers(countOf(shape), next, size), dtype);
  return { data, shape, dtype } as HostTensor;
}

export function stored(shape: readonly number[], next: () => number, dtype: CacheDType): HostKv {
  return { data: encode(numbers(countOf(shape), next), dtype), shape, dtype } as HostKv;
}

export interface FileTensor {
  readonly dtype: string;
  readonly shape: number[];
  readonly bytes: Uint8Array;
}

/** The least reader of safetensors that the repository's own file needs. */
export function readSafetensors(url: URL): Map<string, FileTensor> {
  const file = readFileSync(url);
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, 8 + length).toString()) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const tensors = new Map<string, FileTensor>();
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const bytes = Uint8Array.from(file.subarray(8 + length + data_offsets[0], 8 + length + data_offsets[1]));
    tensors.set(name, { dtype, shape, bytes });
  }
  return tensors;
}
