/** Random problems for fast-check, which makes a failing one small. Each becomes a case, so it runs like the table's. */
import type { CacheDType, FloatDType } from "@tessera/core";
import type fc from "fast-check";
import { type AttentionCase, attention } from "./case.js";
import type { BiasFill, InputName, MaskFill } from "./inputs.js";
import { type LayoutName, layouts } from "./layout.js";

export interface FuzzProblem {
  readonly case: AttentionCase;
  readonly layout: LayoutName;
}

const floats: readonly FloatDType[] = ["f32", "f16", "bf16"];
const stored: readonly CacheDType[] = ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"];
const inputs: readonly InputName[] = ["normal", "sharp", "large-norm", "zeros", "tiny-v", "positive"];
const biasFills: readonly BiasFill[] = ["normal", "minus-infinity", "lowest"];
const maskFills: readonly MaskFill[] = ["random", "sparse", "rows-false", "all-false", "block-diagonal", "causal"];

/** What fast-check draws; everything is valid, `toCase` makes it fit together. */
export function problems(check: typeof fc): fc.Arbitrary<FuzzProblem> {
  const some = <T>(arbitrary: fc.Arbitrary<T>) => check.option(arbitrary, { nil: undefined, freq: 3 });
  const int = (min: number, max: number) => check.integer({ min, max });
  const overlay = <T>(fills: readonly T[]) =>
    check.record({ fill: check.constantFrom(...fills), perBatch: check.boolean(), perHead: check.boolean() });
  return check
    .record({
      seed: int(0, 0x7fffffff),
      batch: int(1, 3),
      queries: check.oneof({ arbitrary: int(0, 6), weight: 2 }, int(0, 70)),
      keys: check.oneof(int(0, 20), int(0, 150)),
      kvHeads: int(1, 3),
      ratio: int(1, 5),
      dim: check.oneof(int(1, 40), check.constantFrom(32, 64, 96, 128)),
      valueDim: some(int(1, 70)),
      q: check.constantFrom(...floats),
      k: check.constantFrom(...stored),
      v: check.constantFrom(...stored),
      out: some(check.constantFrom(...floats)),
      input: check.constantFrom(...inputs),
      causal: check.boolean(),
      topLeft: check.boolean(),
      offsets: some(check.array(int(-20, 60), { minLength: 3, maxLength: 3 })),
      window: some(check.tuple(int(-1, 40), int(-1, 40))),
      softcap: some(check.constantFrom(0.5, 4, 30)),
      scale: some(check.constantFrom(0, 0.25, -0.5, 1)),
      alibi: some(check.array(check.constantFrom(0.5, 0.25, 0.0625, -0.125, 0), { minLength: 15, maxLength: 15 })),
      sinks: some(check.array(int(-6, 6), { minLength: 15, maxLength: 15 })),
      bias: some(check.tuple(overlay(biasFills), check.constantFrom(...floats))),
      mask: some(overlay(maskFills)),
      shape: check.constantFrom("full", "padded", "packed", "packed-q", "paged", "packed-paged"),
      lengths: check.array(check.double({ min: 0, max: 1, noNaN: true }), { minLength: 6, maxLength: 6 }),
      pageSize: check.constantFrom(1, 3, 16, 64),
      splits: some(int(1, 9)),
      wantLse: check.boolean(),
      layout: check.constantFrom(...layouts.filter((name) => name !== "expanded")),
    })
    .map((draw) => ({ case: toCase(draw), layout: draw.layout }));
}

interface Draw {
  readonly seed: number;
  readonly batch: number;
  readonly queries: number;
  readonly keys: number;
  readonly kvHeads: number;
  readonly ratio: number;
  readonly dim: number;
  readonly valueDim: number | undefined;
  readonly q: FloatDType;
  readonly k: CacheDType;
  readonly v: CacheDType;
  readonly out: FloatDType | undefined;
  readonly input: InputName;
  readonly causal: boolean;
  readonly topLeft: boolean;
  readonly offsets: number[] | undefined;
  readonly window: [number, number] | undefined;
  readonly softcap: number | undefined;
  readonly scale: number | undefined;
  readonly alibi: number[] | undefined;
  readonly sinks: number[] | undefined;
  readonly bias: [{ fill: BiasFill; perBatch: boolean; perHead: boolean }, FloatDType] | undefined;
  readonly mask: { fill: MaskFill; perBatch: boolean; perHead: boolean } | undefined;
  readonly shape: "full" | "padded" | "packed" | "packed-q" | "paged" | "packed-paged";
  readonly lengths: number[];
  readonly pageSize: number;
  readonly splits: number | undefined;
  readonly wantLse: boolean;
}

const isBlock = (dtype: CacheDType) => dtype === "q8_0" || dtype === "q4_0";
const blocks = (n: number) => Math.max(32, Math.ceil(n / 32) * 32);

function toCase(d: Draw): AttentionCase {
  const { batch, shape } = d;
  const heads = d.kvHeads * d.ratio;
  const dim = isBlock(d.k) ? blocks(d.dim) : d.dim;
  const valueDim = isBlock(d.v) ? blocks(d.valueDim ?? dim) : (d.valueDim ?? dim);
  const share = (from: number, whole: number) => d.lengths.slice(from, from + batch).map((x) => Math.round(x * whole));
  const lengthsQ = share(0, d.queries);
  const lengthsK = share(3, d.keys);
  const packedQ = shape.startsWith("packed");
  const packedK = shape === "packed";
  const paged = shape.endsWith("paged");
  // A packed tensor is as long as its sequences: the longest one is the extent of a bias or mask.
  const queries = packedQ ? Math.max(0, ...lengthsQ) : d.queries;
  const keys = packedK ? Math.max(0, ...lengthsK) : d.keys;
  return attention(`fuzz/${d.seed}`, "random", [batch, queries, keys, heads, d.kvHeads, dim, valueDim], {
    types: [d.q, d.k, d.v, d.out ?? d.q].join("/"),
    input: d.input,
    causal: d.causal,
    wantLse: d.wantLse,
    ...(d.offsets ? { queryOffset: d.offsets.slice(0, batch) } : d.topLeft ? { align: "top-left" } : {}),
    ...(d.window && { window: d.window }),
    ...(d.softcap !== undefined && { softcap: d.softcap }),
    ...(d.scale !== undefined && { scale: d.scale }),
    ...(d.alibi && { alibi: d.alibi.slice(0, heads) }),
    ...(d.sinks && { sinks: d.sinks.slice(0, heads) }),
    ...(d.bias && { bias: { ...d.bias[0], type: d.bias[1] } }),
    ...(d.mask && { mask: d.mask }),
    ...(packedQ && { packedQ: lengthsQ }),
    ...(packedK && { packedK: lengthsK }),
    ...(shape === "padded" && { lengthsQ, lengthsK }),
    ...(shape === "packed-q" && { lengthsK }),
    ...(paged && { lengthsK, pages: { size: d.pageSize } }),
    ...(d.splits !== undefined && { splits: d.splits }),
  });
}
