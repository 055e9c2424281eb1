/**
 * What a row of the case table says. A case is data: shapes, types, options and the names of generators that fill its
 * tensors from a seed (its own name). problem.ts turns it into tensors; docs/conformance.md explains how to add one.
 */
import type { CacheDType, FloatDType } from "@tessera/core";
import type { BiasFill, InputName, MaskFill } from "./inputs.js";
import type { LayoutName } from "./layout.js";

/**
 * `quick` runs always, `full` in the whole table, `long` only when asked for (much memory or minutes).
 * Benchmarks and `supports` checks may use every level.
 */
export type Level = "quick" | "full" | "long";

export interface Types {
  readonly q: FloatDType;
  readonly k: CacheDType;
  readonly v: CacheDType;
  readonly out: FloatDType;
}

/** One value written over what the generator made. Absent coordinates mean "all". */
export interface Edit {
  readonly tensor: "q" | "k" | "v";
  readonly batch?: number;
  /** Query or key position. */
  readonly row: number;
  readonly head?: number;
  readonly dim?: number;
  readonly value: number;
}

interface Common {
  /** Topic first: `causal/2x5/top-left`. Also the seed. */
  readonly name: string;
  /** What it's for; where it comes from a report elsewhere, which one. */
  readonly about: string;
  readonly level: Level;
}

export interface AttentionCase extends Common {
  readonly kind: "attention";
  readonly batch: number;
  /** Queries and keys of a batch entry; with lengths or packing, of the longest one (the capacity). */
  readonly queries: number;
  readonly keys: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly valueDim: number;
  readonly types: Types;
  readonly input: InputName;
  readonly edits: readonly Edit[];
  /** Dimensions along which a tensor repeats, so that the expanded layout can give them stride 0. */
  readonly repeat: Partial<Record<"q" | "k" | "v" | "bias" | "mask", readonly number[]>>;

  readonly scale?: number;
  readonly softcap?: number;
  readonly causal?: boolean;
  readonly align?: "bottom-right" | "top-left";
  readonly window?: readonly [number, number];
  readonly queryOffset?: readonly number[];
  readonly alibi?: "standard" | readonly number[];
  readonly sinks?: readonly number[];
  /** `perBatch`, `perHead`: false = that dimension is 1 and broadcast. */
  readonly bias?: {
    readonly type: FloatDType;
    readonly perBatch: boolean;
    readonly perHead: boolean;
    readonly fill: BiasFill;
  };
  readonly mask?: { readonly perBatch: boolean; readonly perHead: boolean; readonly fill: MaskFill };

  /** Padded lengths. */
  readonly lengthsQ?: readonly number[];
  readonly lengthsK?: readonly number[];
  /** Lengths of packed sequences. */
  readonly packedQ?: readonly number[];
  readonly packedK?: readonly number[];
  /**
   * K and V live in pages, shuffled over a pool with unused pages between. `share`: that many leading pages are the same
   * ones for every entry. `firstPage`: page ids start there (a large pool).
   */
  readonly pages?: { readonly size: number; readonly share?: number; readonly firstPage?: number };
  /** f8_e4m3 scales per KV head. */
  readonly cacheScales?: boolean;
  readonly splits?: number;
  readonly wantLse: boolean;
  /** Poison that some queries see: only the CPU and the reference must keep it from all others. */
  readonly exactNaN?: boolean;
  /** Only in these layouts: where others would cost much and show nothing new. */
  readonly layouts?: readonly LayoutName[];
  /** Elements between slices of the first dimension of a tensor, so far apart that 32 bits can't count them. */
  readonly spread?: Partial<Record<"q" | "k" | "v" | "out" | "lse" | "bias" | "mask", number>>;
}

export interface AppendCase extends Common {
  readonly kind: "append";
  readonly batch: number;
  readonly capacity: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly valueDim: number;
  /** Types of what is appended (and of q), and of the cache. */
  readonly types: Types;
  readonly pages?: { readonly size: number };
  readonly cacheScales?: boolean;
  /** Tokens each sequence holds before. */
  readonly before: readonly number[];
  /** New tokens of each step (S), and how many of them are real for each sequence; absent = all. */
  readonly steps: readonly { readonly tokens: number; readonly real?: readonly number[] }[];
  /** New tokens come packed. */
  readonly packed?: boolean;
  readonly rope?: {
    readonly pairing: "interleaved" | "half";
    readonly theta: number;
    readonly dims?: number;
    readonly scale?: number;
    /** Positions are the cache position times 3 plus 5, in place of the default. */
    readonly positions?: boolean;
    readonly rotateQ?: "apart" | "in-place";
  };
  /** Queries of the decode step over the cache at the end. */
  readonly decode: number;
  /** The last step and the attention go through `decode`, in one call. */
  readonly fused?: boolean;
}

export interface MergeCase extends Common {
  readonly kind: "merge";
  readonly batch: number;
  readonly queries: number;
  readonly heads: number;
  readonly valueDim: number;
  readonly parts: number;
  readonly type: FloatDType;
  readonly outType: FloatDType;
  readonly wantLse: boolean;
  /** Which parts are empty: for each part, "none", "all" or "some" rows. */
  readonly empty?: readonly ("none" | "all" | "some")[];
  readonly input: "normal" | "far-apart" | "large";
  /** Merge the results of attention over disjoint ranges of keys (lengths of the ranges), and compare with all of them. */
  readonly attention?: { readonly ranges: readonly number[]; readonly dim: number };
}

export type Case = AttentionCase | AppendCase | MergeCase;

type Short = readonly [
  batch: number,
  queries: number,
  keys: number,
  heads: number,
  kvHeads: number,
  dim: number,
  valueDim?: number,
];

type AttentionOptions = Partial<
  Omit<
    AttentionCase,
    "kind" | "name" | "about" | "batch" | "queries" | "keys" | "heads" | "kvHeads" | "dim" | "valueDim" | "types"
  >
> & { readonly types?: string };

/** "f16" = all of it; "f32/f16" = q and out, k and v; "f16/q8_0/q4_0" = q and out, k, v; a fourth part is out's. */
export function types(text: string): Types {
  const [q = "f32", k = q, v = k, out = q] = text.split("/");
  return { q, k, v, out } as Types;
}

/** A row of the table; shape is [B, Sq, Sk, Hq, Hkv, D] and Dv if it differs. */
export function attention(name: string, about: string, shape: Short, options: AttentionOptions = {}): AttentionCase {
  const [batch, queries, keys, heads, kvHeads, dim, valueDim = dim] = shape;
  return {
    level: "quick",
    input: "normal",
    edits: [],
    repeat: {},
    wantLse: true,
    ...options,
    kind: "attention",
    name,
    about,
    batch,
    queries,
    keys,
    heads,
    kvHeads,
    dim,
    valueDim,
    types: types(options.types ?? "f32"),
  };
}

export function append(
  name: string,
  about: string,
  options: Omit<AppendCase, "kind" | "name" | "about" | "level" | "types" | "valueDim" | "decode"> & {
    readonly level?: Level;
    readonly types: string;
    readonly valueDim?: number;
    readonly decode?: number;
  },
): AppendCase {
  return {
    level: "quick",
    decode: 1,
    valueDim: options.dim,
    ...options,
    kind: "append",
    name,
    about,
    types: types(options.types),
  };
}

export function merge(
  name: string,
  about: string,
  options: Partial<Omit<MergeCase, "kind" | "name" | "about" | "outType">> & { readonly outType?: FloatDType } = {},
): MergeCase {
  const type = options.type ?? "f32";
  return {
    level: "quick",
    batch: 2,
    queries: 5,
    heads: 3,
    valueDim: 40,
    parts: 2,
    wantLse: true,
    input: "normal",
    outType: type,
    ...options,
    type,
    kind: "merge",
    name,
    about,
  };
}
