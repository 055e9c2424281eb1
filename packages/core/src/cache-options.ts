/** Options of `kvCache`, `append` and `decode`. */
import type { Alignment, Inputs, Layout, Operand, ScoreOptions } from "./attention-options.js";
import { type CacheDType, dtypes } from "./dtype.js";
import { describe, type HostInts } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import type { KvCache } from "./kv-cache.js";
import { cacheDTypes } from "./operands.js";
import { checkNames, checkWhole, checkWord } from "./option-names.js";
import { countOf, shapeText } from "./strides.js";
import type { Tensor } from "./tensor.js";

/** Pages of a cache. */
type CachePages =
  | {
      /** Tokens of a page. Default: not paged, each sequence has its capacity set aside. */
      readonly pageSize?: number | undefined;
      readonly pages?: undefined;
    }
  | {
      readonly pageSize: number;
      /** Pages of the pool, which forks share. Default: enough for this cache alone, batch · ⌈capacity / pageSize⌉. */
      readonly pages?: number | undefined;
    };

/** One float32 per KV head. */
type CacheScale = readonly number[] | Float32Array;

/** Types that a cache stores. */
type CacheStorage =
  | {
      /** Storage of keys and values: one type for both, or each its own. */
      readonly dtype: CacheDType | { readonly k: CacheDType; readonly v: CacheDType };
      readonly scales?: undefined;
    }
  | {
      readonly dtype: "f8_e4m3" | { readonly k: "f8_e4m3"; readonly v: "f8_e4m3" };
      /** What stored f8_e4m3 values are multiplied by, per KV head. Default 1. */
      readonly scales?: { readonly k?: CacheScale | undefined; readonly v?: CacheScale | undefined } | undefined;
    }
  | {
      readonly dtype: { readonly k: "f8_e4m3"; readonly v: CacheDType };
      readonly scales?: { readonly k?: CacheScale | undefined; readonly v?: undefined } | undefined;
    }
  | {
      readonly dtype: { readonly k: CacheDType; readonly v: "f8_e4m3" };
      readonly scales?: { readonly k?: undefined; readonly v?: CacheScale | undefined } | undefined;
    };

/** Options of `engine.kvCache`. */
export type KvCacheOptions = {
  /** Sequences. */
  readonly batch: number;
  readonly kvHeads: number;
  /** D. For q8_0 and q4_0 a multiple of 32. */
  readonly headDim: number;
  /** Dv. Default: headDim. */
  readonly valueDim?: number | undefined;
  /** Tokens that each sequence may hold. */
  readonly capacity: number;
} & CachePages &
  CacheStorage;

/** Rotary embedding: pair i turns by position · scale · theta^(-2i/dims). */
export interface RopeOptions {
  /** "half": pairs (x[i], x[i + dims/2]), as Hugging Face's Llama. "interleaved": (x[2i], x[2i + 1]), as llama.cpp's. */
  readonly pairing: "interleaved" | "half";
  /** Default 10000. */
  readonly theta?: number | undefined;
  /** Leading dimensions to rotate, even. Default: all of headDim. */
  readonly dims?: number | undefined;
  /** Factor of positions. Default 1. */
  readonly scale?: number | undefined;
  /** [B, S] ([T] packed), or as many numbers in a row. Default: length of the cache + index of the new token. */
  readonly positions?:
    | readonly number[]
    | readonly (readonly number[])[]
    | Int32Array
    | HostInts
    | Tensor<"i32">
    | undefined;
}

/** New tokens: k [B,S,Hkv,D] and v [B,S,Hkv,Dv], or packed. */
export interface NewTokens {
  readonly k: Operand;
  readonly v: Operand;
  /** Rotates k (and q) before k is stored. Default: no rotation. */
  readonly rope?: RopeOptions | undefined;
  /** How many of the S tokens of each sequence are real. Default: all. */
  readonly newLens?: readonly number[] | Int32Array | undefined;
}

type AppendRows =
  | { readonly cuSeqLens?: undefined }
  | {
      /** B + 1 row numbers: k and v are packed, [T,Hkv,D]. */
      readonly cuSeqLens?: readonly number[] | Int32Array | undefined;
      readonly newLens?: undefined;
    };

type AppendQueries<Q extends Operand> =
  | { readonly q?: undefined }
  | {
      /** Queries [B,S,Hq,D] ([T,Hq,D]) to rotate at the same positions; they come back. */
      readonly q?: Q | undefined;
      readonly rope: RopeOptions;
    };

/** Options of `cache.append`. */
export type AppendOptions<Q extends Operand = Operand> = NewTokens &
  AppendRows &
  AppendQueries<Q> & {
    /** Default "bshd". */
    readonly layout?: Layout | undefined;
  };

type DecodeQueries =
  | {
      /** With newLens it is left out: new tokens count the queries too. */
      readonly seqLensQ?: readonly number[] | Int32Array | undefined;
      readonly cuSeqLensQ?: undefined;
    }
  | {
      /** q, and k and v if given, are packed. */
      readonly cuSeqLensQ: readonly number[] | Int32Array;
      readonly seqLensQ?: undefined;
      readonly newLens?: undefined;
    };

type MaybeNewTokens =
  | NewTokens
  | { readonly k?: undefined; readonly v?: undefined; readonly rope?: undefined; readonly newLens?: undefined };

/** Options of `engine.decode`. For mask and bias, Sk is the cache's capacity. */
export type DecodeOptions<Q extends Operand = Operand, Out extends Operand = Q> = Pick<
  Inputs<Q, Out>,
  "q" | "out" | "layout"
> &
  ScoreOptions &
  Alignment &
  DecodeQueries &
  MaybeNewTokens & { readonly cache: KvCache };

/** Sizes of a cache, checked. */
export interface CacheShape {
  readonly batch: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly capacity: number;
  readonly k: CacheDType;
  readonly v: CacheDType;
  /** 0 = not paged. */
  readonly pageSize: number;
  readonly pages: number;
}

const names = new Set(["batch", "kvHeads", "headDim", "valueDim", "capacity", "dtype", "pageSize", "pages", "scales"]);
const kvNames = new Set(["k", "v"]);

/** @throws TesseraError `invalid-argument` */
export function checkCacheOptions(options: unknown): CacheShape {
  checkNames(options, names, "kvCache");
  const { batch, kvHeads, headDim, capacity, dtype, pageSize, pages, scales } = options as Record<string, unknown>;
  const valueDim = (options as Record<string, unknown>).valueDim ?? headDim;
  checkWhole(batch, 0, "batch", 0x7fffffff);
  checkWhole(kvHeads, 1, "kvHeads");
  checkWhole(headDim, 1, "headDim");
  checkWhole(valueDim, 1, "valueDim");
  checkWhole(capacity, 0, "capacity", 0x7fffffff);
  const each = typeof dtype === "object" && dtype !== null;
  if (each) checkNames(dtype, kvNames, "kvCache's dtype");
  const { k, v } = each ? (dtype as { k?: unknown; v?: unknown }) : { k: dtype, v: dtype };
  checkWord(k, cacheDTypes as readonly CacheDType[], each ? "dtype.k" : "dtype");
  checkWord(v, cacheDTypes as readonly CacheDType[], each ? "dtype.v" : "dtype");
  checkBlock(headDim, k, "headDim");
  checkBlock(valueDim, v, "valueDim");
  if (pageSize !== undefined) checkWhole(pageSize, 1, "pageSize", 0x7fffffff);
  if (pages !== undefined) {
    if (pageSize === undefined) throw invalid(`pages is ${describe(pages)} without pageSize; allowed: both or neither`);
    checkWhole(pages, 0, "pages", 0x7fffffff);
  }
  if (scales !== undefined) checkScales(scales, k, v);
  const poolPages = pageSize === undefined ? 0 : (pages ?? batch * Math.ceil(capacity / pageSize));
  const rows = pageSize === undefined ? [batch, capacity] : [poolPages, pageSize];
  for (const dim of [headDim, valueDim]) {
    const shape = [...rows, kvHeads, dim];
    if (!Number.isSafeInteger(countOf(shape)))
      throw invalid(`the cache would have shape ${shapeText(shape)}: more than 2^53 - 1 elements`);
  }
  return { batch, kvHeads, headDim, valueDim, capacity, k, v, pageSize: pageSize ?? 0, pages: poolPages };
}

function checkBlock(dim: number, dtype: CacheDType, name: string): void {
  const { block } = dtypes[dtype];
  if (dim % block !== 0) throw invalid(`${name} is ${dim}; allowed for ${dtype}: multiples of ${block}`);
}

function checkScales(scales: unknown, k: CacheDType, v: CacheDType): void {
  checkNames(scales, kvNames, "kvCache's scales");
  for (const [name, dtype] of [
    ["k", k],
    ["v", v],
  ] as const) {
    if ((scales as Record<string, unknown>)[name] !== undefined && dtype !== "f8_e4m3") {
      throw invalid(`scales.${name} is given, but ${name} is stored as ${dtype}; allowed: with f8_e4m3 only`);
    }
  }
}
