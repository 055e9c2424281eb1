/** Types that q, k, v, out and bias may have. */
export type FloatDType = "f32" | "f16" | "bf16";
/** Types that a KV cache may have. */
export type CacheDType = FloatDType | "f8_e4m3" | "q8_0" | "q4_0";
/** Every element type of a tensor. */
export type DType = CacheDType | "bool" | "i32";

interface DTypeFacts {
  /** The contract's number for it (`tsr_dtype`). */
  readonly id: number;
  /** Elements stored together. */
  readonly block: number;
  /** Bytes of a block. */
  readonly bytes: number;
}

/** One truth about element types; ids are those of tessera.h. */
export const dtypes: { readonly [K in DType]: DTypeFacts } = {
  f32: { id: 1, block: 1, bytes: 4 },
  f16: { id: 2, block: 1, bytes: 2 },
  bf16: { id: 3, block: 1, bytes: 2 },
  f8_e4m3: { id: 4, block: 1, bytes: 1 },
  q8_0: { id: 5, block: 32, bytes: 34 },
  q4_0: { id: 6, block: 32, bytes: 18 },
  bool: { id: 7, block: 1, bytes: 1 },
  i32: { id: 8, block: 1, bytes: 4 },
};

/** Bytes of `count` contiguous elements (a whole number of blocks). */
export function bytesOf(dtype: DType, count: number): number {
  const { block, bytes } = dtypes[dtype];
  return (count / block) * bytes;
}
