/** One thing to be measured, as suites list them. */
import type { CacheDType, Engine, FloatDType } from "@tessera/core";
import type { Shape } from "./result.js";

/** Options beside q, k and v. */
export interface Extra {
  readonly options: { readonly [name: string]: unknown };
  /** What the oracle is told for query `i` of head `h` in batch entry `b` alone. */
  row?(b: number, i: number, h: number): { readonly [name: string]: unknown };
  /** How q, k and v lie in memory; the order of their elements is the same. */
  readonly form?: "packed" | { readonly pageSize: number };
  /** Tensors to be disposed with the case. */
  readonly owned?: readonly { dispose(): void }[];
}

export interface AttentionCase {
  readonly kind: "prefill" | "decode";
  readonly suite: string;
  readonly name: string;
  readonly shape: Shape;
  readonly q: FloatDType;
  readonly kv: CacheDType;
  readonly causal: boolean;
  readonly window?: number | undefined;
  readonly kernel?: string | undefined;
  /** Instead of `kernel`: the fastest of these on this problem, found first. */
  readonly candidates?: readonly string[] | undefined;
  readonly feature?: string | undefined;
  readonly step?: string | undefined;
  readonly extra?: ((engine: Engine, shape: Shape) => Extra) | undefined;
}

export interface MemoryCase {
  readonly kind: "memory";
  readonly suite: string;
  readonly name: string;
  readonly shape: Shape;
  readonly q: FloatDType;
  readonly kv: CacheDType;
  readonly causal: boolean;
}

/** Library product, softmax, library product: what fused attention is the answer to. */
export interface UnfusedCase {
  readonly kind: "unfused";
  readonly suite: string;
  readonly name: string;
  readonly shape: Shape;
}

export interface OverheadCase {
  readonly kind: "overhead";
  readonly suite: string;
  readonly name: string;
  /** Gives what is timed: a call that returns without waiting, and what ends a burst of them. */
  prepare(engine: Engine): Promise<{ call(): unknown; end(): Promise<void>; dispose(): void; kernel?: string }>;
}

export type Case = AttentionCase | MemoryCase | OverheadCase | UnfusedCase;

/** Keys that queries see, over all queries of one head. */
export function visiblePairs({ queries, keys }: Shape, causal: boolean, window?: number): number {
  if (!causal) return queries * keys;
  // Half of all, as everyone counts it, where both are equally many.
  if (queries === keys && window === undefined) return (queries * keys) / 2;
  let pairs = 0;
  for (let i = 0; i < queries; i++) {
    const seen = Math.max(0, i + keys - queries + 1);
    pairs += window === undefined ? seen : Math.min(seen, window);
  }
  return pairs;
}

export function flopsOf(one: Pick<AttentionCase, "shape" | "causal" | "window">): number {
  const { batch, heads, dim } = one.shape;
  return 4 * batch * heads * dim * visiblePairs(one.shape, one.causal, one.window);
}
