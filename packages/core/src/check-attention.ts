/**
 * Options of `attention`, checked and brought to the one form that back ends and the oracle take. Every rule of
 * docs/semantics.md that doesn't depend on a device is here, so `attention`, `supports`, `explain`, `tune` and `oracle`
 * can't disagree about it.
 */
import type { AttentionDesc, TensorDesc } from "./backend.js";
import { checkScalars, checkScoreTensors, type Mutable, type Options, type Sizes } from "./check-scores.js";
import { batchOfStarts, checkCombinations, checkSequences } from "./check-sequences.js";
import type { FloatDType } from "./dtype.js";
import { invalid } from "./invalid.js";
import { cacheDTypes, floatDTypes, type Owner, operandOf } from "./operands.js";
import { checkBoolean, checkNames, checkSignal, checkWord } from "./option-names.js";
import { checkApart, overlapsItself } from "./overlap.js";
import { shapeText } from "./strides.js";
import { isTensor } from "./tensor-brand.js";

export const layouts = ["bshd", "bhsd"] as const;

/** Names of the options that say what is computed. */
const scoreNames = [
  "scale",
  "causal",
  "align",
  "queryOffset",
  "window",
  "softcap",
  "alibiSlopes",
  "bias",
  "mask",
  "sinks",
];
const callNames = ["kernel", "numSplits", "returnLse", "signal", "layout", "out"];
const sequenceNames = ["seqLensQ", "seqLensK", "cuSeqLensQ", "cuSeqLensK", "pageTable"];
export const attentionNames: ReadonlySet<string> = new Set([
  "q",
  "k",
  "v",
  ...scoreNames,
  ...callNames,
  ...sequenceNames,
  "kScale",
  "vScale",
]);
/** Of `decode`: the cache brings its own lengths, pages and scales. */
export const decodeAttentionNames: readonly string[] = ["q", ...scoreNames, ...callNames, "seqLensQ", "cuSeqLensQ"];

/** A call that is free of contradictions. */
export interface CheckedAttention {
  /** Complete but for `out` and `lse`. */
  readonly desc: Mutable<AttentionDesc>;
  readonly sizes: Sizes;
  /** Given by the caller, in the order of the contract. */
  readonly out: TensorDesc | undefined;
  /** Of the result, in the caller's layout. */
  readonly outShape: readonly number[];
  readonly outDType: FloatDType;
  readonly lseShape: readonly number[];
  readonly bhsd: boolean;
  /** q came as a host array: so does the result. */
  readonly onHost: boolean;
  readonly returnLse: boolean;
  readonly signal: AbortSignal | undefined;
}

/** Swaps the dimensions of positions and heads: "bhsd" seen as "bshd" and back. */
export function swapHeads(desc: TensorDesc): TensorDesc {
  return { ...desc, shape: swapped(desc.shape), strides: swapped(desc.strides) };
}

/** The same for a shape. */
export function swapped(list: readonly number[]): number[] {
  const result = [...list];
  const s = result.length - 3;
  [result[s], result[s + 1]] = [result[s + 1]!, result[s]!];
  return result;
}

const forms = {
  q: { rank4: "[B, Sq, Hq, D]", rank3: "[T, Hq, D] (with cuSeqLensQ)" },
  k: { rank4: "[B, Sk, Hkv, D]", rank3: "[Tk, Hkv, D] (with cuSeqLensK)" },
  v: { rank4: "[B, Sk, Hkv, Dv]", rank3: "[Tk, Hkv, Dv] (with cuSeqLensK)" },
};

function input(name: "q" | "k" | "v", value: unknown, rank: number, bhsd: boolean, owner: Owner): TensorDesc {
  if (value === undefined)
    throw invalid(`${name} is missing; required: a tensor of the engine or { data, shape, dtype?, strides? }`);
  const desc = operandOf(value, name, name === "q" ? floatDTypes : cacheDTypes, owner);
  if (desc.shape.length !== rank) {
    const { rank4, rank3 } = forms[name];
    const hint = rank === 4 && desc.shape.length === 3 ? `; one sequence alone is a batch of 1, or packed` : "";
    throw invalid(`${name} has shape ${shapeText(desc.shape)}; allowed here: ${rank === 4 ? rank4 : rank3}${hint}`);
  }
  return bhsd ? swapHeads(desc) : desc;
}

function mustBe(desc: TensorDesc, name: string, dimension: number, value: number, what: string): void {
  if (desc.shape[dimension] === value) return;
  throw invalid(
    `${name} has shape ${shapeText(desc.shape)} (as [..., rows, heads, dim]): dimension ${dimension} is ${desc.shape[dimension]}; allowed: ${value}, ${what}`,
  );
}

/**
 * Checks options of `attention`.
 *
 * @param owner the engine whose tensors are welcome; undefined: host arrays only
 * @throws TesseraError `invalid-argument`, naming the argument, its value and the allowed ones
 */
export function checkAttention(options: unknown, owner: Owner, call = "attention"): CheckedAttention {
  checkNames(options, attentionNames, call);
  return checkedAttention(options as Options, owner);
}

/** The same for options whose names are known ones. */
export function checkedAttention(given: Options, owner: Owner): CheckedAttention {
  checkCombinations(given);
  checkBoolean(given.returnLse, "returnLse");
  checkSignal(given.signal);
  const layout = given.layout ?? "bshd";
  checkWord(layout, layouts, "layout");
  const bhsd = layout === "bhsd";

  const packedQ = given.cuSeqLensQ !== undefined;
  const packedK = given.cuSeqLensK !== undefined;
  const q = input("q", given.q, packedQ ? 3 : 4, bhsd, owner);
  const k = input("k", given.k, packedK ? 3 : 4, bhsd, owner);
  const v = input("v", given.v, packedK ? 3 : 4, bhsd, owner);

  const paged = given.pageTable !== undefined;
  const [queryRows, heads, dim] = q.shape.slice(-3) as [number, number, number];
  const [keyRows, kvHeads] = k.shape.slice(-3) as [number, number];
  const batch = packedQ ? batchOfStarts(given.cuSeqLensQ, "cuSeqLensQ") : q.shape[0]!;
  const kr = packedK ? 0 : 1;
  const valueDim = v.shape[kr + 2]!;
  if (dim < 1) throw invalid(`q has shape ${shapeText(q.shape)}: the head dim is 0; allowed: >= 1`);
  if (valueDim < 1) throw invalid(`v has shape ${shapeText(v.shape)}: the head dim is 0; allowed: >= 1`);
  mustBe(k, "k", kr + 2, dim, "the head dim of q");
  if (!packedK && !paged) mustBe(k, "k", 0, batch, packedQ ? "the batch that cuSeqLensQ tells" : "the batch of q");
  if (kvHeads < 1) throw invalid(`k has shape ${shapeText(k.shape)}: 0 heads; allowed: >= 1`);
  if (heads % kvHeads !== 0) throw invalid(`q has ${heads} heads and k ${kvHeads}; allowed: a multiple of k's heads`);
  if (!packedK) mustBe(v, "v", 0, k.shape[0]!, paged ? "the pages of k" : "the batch of k");
  mustBe(v, "v", kr, keyRows, paged ? "the page size of k" : "the rows of k");
  mustBe(v, "v", kr + 1, kvHeads, "the heads of k");
  if (paged && keyRows < 1) throw invalid(`k has shape ${shapeText(k.shape)}: a page size of 0; allowed: >= 1`);

  const desc = { q, k, v } as Mutable<AttentionDesc>;
  checkScalars(given, desc);
  checkSequences(given, desc, batch, queryRows, keyRows, owner);
  const sizes: Sizes = {
    batch,
    heads,
    kvHeads,
    dim,
    valueDim,
    queryRows,
    maxQueries: desc.maxSeqLenQ ?? queryRows,
    maxKeys: desc.pageTable ? desc.pageTable.shape[1]! * keyRows : (desc.maxSeqLenK ?? keyRows),
    packedQ,
    looseKeys: packedK || paged,
  };
  checkScoreTensors(given, sizes, desc, owner);

  const outShape = packedQ ? [queryRows, heads, valueDim] : [batch, queryRows, heads, valueDim];
  const out = given.out === undefined ? undefined : output(given.out, outShape, bhsd, owner);
  if (out) checkApart(out, desc);
  return {
    desc,
    sizes,
    out,
    outShape: bhsd ? swapped(outShape) : outShape,
    outDType: (out ?? q).dtype as FloatDType,
    lseShape: packedQ ? [heads, queryRows] : [batch, heads, queryRows],
    bhsd,
    onHost: !isTensor(given.out ?? given.q),
    returnLse: given.returnLse === true,
    signal: given.signal,
  };
}

function output(value: unknown, shape: readonly number[], bhsd: boolean, owner: Owner): TensorDesc {
  const given = operandOf(value, "out", floatDTypes, owner);
  const desc = bhsd && given.shape.length === shape.length ? swapHeads(given) : given;
  if (desc.shape.length !== shape.length || desc.shape.some((extent, i) => extent !== shape[i])) {
    throw invalid(`out has shape ${shapeText(given.shape)}; allowed: ${shapeText(bhsd ? swapped(shape) : shape)}`);
  }
  if (overlapsItself(desc)) {
    throw invalid(
      `out has strides ${shapeText(given.strides)}: its elements overlap; allowed: a dense array, slices and transposes of one`,
    );
  }
  return desc;
}
