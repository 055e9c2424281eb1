/** Options of `attention`, as unions that leave contradictory combinations uncompiled. */
import type { CacheDType, FloatDType } from "./dtype.js";
import type { HostBool, HostInts, HostKv, HostTensor } from "./host-tensor.js";
import type { Tensor } from "./tensor.js";

/** Whole numbers, one per sequence (or one more, for `cuSeqLens`). A tensor has dtype "i32". */
export type Ints = readonly number[] | Int32Array | Tensor<"i32">;
/** One float32 per head. */
export type PerHead = readonly number[] | Float32Array | Tensor<"f32">;
/** A float input: a tensor of the engine or a host array. */
export type Operand = Tensor<FloatDType> | HostTensor;
/** A key or value input. */
export type KvOperand = Tensor<CacheDType> | HostKv;
/** true = visible. Bare arrays hold [Sq, Sk], or all of [B, Hq, Sq, Sk]. */
export type Mask = Tensor<"bool"> | HostBool | Uint8Array | readonly boolean[];

/** Order of the middle dimensions of q, k, v, out and pages. */
export type Layout = "bshd" | "bhsd";

/** Options that mean the same whatever the form of the input. */
export interface ScoreOptions {
  /** Factor of q·k; any finite number. Default 1/√D. */
  readonly scale?: number | undefined;
  /** Query i sees keys j <= i + offset only. Default false. */
  readonly causal?: boolean | undefined;
  /** `[left, right]`: query i sees keys i + offset - left to i + offset + right, inclusive; -1 = unbounded. Default none. */
  readonly window?: readonly [left: number, right: number] | undefined;
  /** s = softcap · tanh(s / softcap), before bias and mask. 0 = off, the default. */
  readonly softcap?: number | undefined;
  /** s -= slope · |i + offset - j|, one slope per query head. */
  readonly alibiSlopes?: PerHead | undefined;
  /** Added to the score: [B or 1, Hq or 1, Sq, Sk], leading dimensions may be left out. -∞ hides a key. */
  readonly bias?: Operand | undefined;
  /** Keys that may be seen: [B or 1, Hq or 1, Sq, Sk], leading dimensions may be left out. */
  readonly mask?: Mask | undefined;
  /** Attention sinks: one logit per query head, in the softmax's denominator only. */
  readonly sinks?: PerHead | undefined;
  /** Kernel variant to force, by its name in `engine.kernels()`. Default: the engine chooses. */
  readonly kernel?: string | undefined;
  /** Parts to split the keys into. 0 = the engine chooses, the default. */
  readonly numSplits?: number | undefined;
  /** Also return the log-sum-exp of each row. Default false. */
  readonly returnLse?: boolean | undefined;
  /** Aborts the call: it rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
}

/** How queries line up with keys. */
export type Alignment =
  | {
      /**
       * "bottom-right": the last query stands at the last key, the default. "top-left": query 0 stands at key 0, which
       * is what PyTorch's `is_causal` does.
       */
      readonly align?: "bottom-right" | "top-left" | undefined;
      readonly queryOffset?: undefined;
    }
  | {
      /** Key position of query 0, per sequence, in place of `align`: a chunk that starts inside the keys. */
      readonly queryOffset: Ints;
      readonly align?: undefined;
    };

/** q [B,Sq,Hq,D], k [B,Sk,Hkv,D], v [B,Sk,Hkv,Dv]. */
export interface Padded {
  /** Queries of each sequence; rows beyond come out as 0 with lse -∞. Default: all. */
  readonly seqLensQ?: Ints | undefined;
  /** Keys of each sequence; rows beyond are never read. Default: all. */
  readonly seqLensK?: Ints | undefined;
  readonly cuSeqLensQ?: undefined;
  readonly cuSeqLensK?: undefined;
  readonly pageTable?: undefined;
}

/** q [T,Hq,D], k [Tk,Hkv,D], v [Tk,Hkv,Dv]: sequences one after the other. */
export interface Packed {
  /** B + 1 row numbers, from 0 to T: where each sequence's queries start. */
  readonly cuSeqLensQ: Ints;
  /** The same for keys, from 0 to Tk. */
  readonly cuSeqLensK: Ints;
  readonly seqLensQ?: undefined;
  readonly seqLensK?: undefined;
  readonly pageTable?: undefined;
}

/** q [T,Hq,D] over padded k [B,Sk,Hkv,D]. */
export interface PackedQueries {
  readonly cuSeqLensQ: Ints;
  readonly seqLensK?: Ints | undefined;
  readonly cuSeqLensK?: undefined;
  readonly seqLensQ?: undefined;
  readonly pageTable?: undefined;
}

/** q [B,Sq,Hq,D] over packed k [Tk,Hkv,D]. */
export interface PackedKeys {
  readonly cuSeqLensK: Ints;
  readonly seqLensQ?: Ints | undefined;
  readonly cuSeqLensQ?: undefined;
  readonly seqLensK?: undefined;
  readonly pageTable?: undefined;
}

/** k [pages,pageSize,Hkv,D], v [pages,pageSize,Hkv,Dv], with padded or packed queries. */
export type Paged = {
  /** `[B, pages per sequence]`: pages in order. Entries beyond a length are never read; rows may be ragged. */
  readonly pageTable: readonly (readonly number[])[] | HostInts | Tensor<"i32">;
  /** Keys of each sequence. Required: pages don't say where a sequence ends. */
  readonly seqLensK: Ints;
  readonly cuSeqLensK?: undefined;
} & (
  | { readonly seqLensQ?: Ints | undefined; readonly cuSeqLensQ?: undefined }
  | { readonly cuSeqLensQ: Ints; readonly seqLensQ?: undefined }
);

/** How sequences lie in q, k and v. */
export type Sequences = Padded | Packed | PackedQueries | PackedKeys | Paged;

/** `true` for what may hold f8_e4m3, as far as its type tells; else never. */
type MayBeF8<T extends KvOperand> =
  T extends Tensor<infer D>
    ? "f8_e4m3" extends D
      ? true
      : never
    : T extends { readonly dtype: infer D }
      ? "f8_e4m3" extends D
        ? true
        : never
      : never;

/** Scales go with f8_e4m3 only. */
type ScaleOf<T extends KvOperand> = [MayBeF8<T>] extends [never] ? undefined : PerHead | undefined;

/** The tensors of a call. */
export interface Inputs<
  Q extends Operand,
  Out extends Operand = Q,
  K extends KvOperand = KvOperand,
  V extends KvOperand = KvOperand,
> {
  readonly q: Q;
  readonly k: K;
  readonly v: V;
  /** Where the result goes; f32, f16 or bf16. Default: new memory, q's dtype, on the host if q is. */
  readonly out?: Out | undefined;
  /** Order of dimensions: "bshd" [B,S,H,D], the default, or "bhsd" [B,H,S,D] ([H,T,D] packed). */
  readonly layout?: Layout | undefined;
  /** What stored f8_e4m3 keys are multiplied by, per KV head. Default 1. */
  readonly kScale?: ScaleOf<K>;
  /** The same for values. */
  readonly vScale?: ScaleOf<V>;
}

/** Everything `attention` takes. */
export type AttentionOptions<
  Q extends Operand = Operand,
  Out extends Operand = Q,
  K extends KvOperand = KvOperand,
  V extends KvOperand = KvOperand,
> = Inputs<Q, Out, K, V> & ScoreOptions & Alignment & Sequences;

/** The host array that comes back for a host q: the same kind of array. */
export interface HostResult<Q extends HostTensor> {
  readonly data: Q["data"];
  readonly dtype: DTypeOf<Q>;
  readonly shape: readonly number[];
}

/** Element type of an operand, as far as its type tells. */
export type DTypeOf<Q extends Operand> =
  Q extends Tensor<infer D>
    ? D
    : Q extends { readonly data: Float32Array }
      ? "f32"
      : Q extends { readonly dtype: infer D extends FloatDType }
        ? D
        : "f16";

/** float32 values on the host, contiguous. */
export interface HostLse {
  readonly data: Float32Array;
  readonly dtype: "f32";
  readonly shape: readonly number[];
}

/** What `attention` gives: tensors for a tensor q, host arrays for a host q. */
export interface AttentionResult<Q extends Operand> {
  /** [B,Sq,Hq,Dv], or [T,Hq,Dv] packed; in the call's layout. */
  readonly out: Q extends HostTensor ? HostResult<Q> : Tensor<DTypeOf<Q>>;
  /** Only with `returnLse`. */
  readonly lse?: (Q extends HostTensor ? HostLse : Tensor<"f32">) | undefined;
}

/** What `attention` gives with `returnLse: true`. */
export interface AttentionResultWithLse<Q extends Operand> extends AttentionResult<Q> {
  /** [B,Hq,Sq], or [Hq,T] packed: natural log of the sum of exp(score) over visible keys and the sink. */
  readonly lse: Q extends HostTensor ? HostLse : Tensor<"f32">;
}
