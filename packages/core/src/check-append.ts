/** New tokens of `append` and `decode`, checked against the cache they go to. */
import type { RopeDesc, TensorDesc } from "./backend.js";
import type { CacheShape } from "./cache-options.js";
import { layouts, swapHeads } from "./check-attention.js";
import { checkStarts } from "./check-sequences.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { leastF32, vanishes } from "./numeric.js";
import { floatDTypes, int32, type Owner, operandOf } from "./operands.js";
import { checkNames, checkWord } from "./option-names.js";
import { countOf, shapeText } from "./strides.js";
import { isTensor } from "./tensor-brand.js";

/** Tokens that are fit to be appended, in the order of the contract. */
export interface CheckedTokens {
  readonly k: TensorDesc;
  readonly v: TensorDesc;
  readonly q: TensorDesc | undefined;
  readonly rope: RopeDesc | undefined;
  /** How many tokens each sequence gets. */
  readonly counts: Int32Array;
  readonly newLens: Int32Array | undefined;
  readonly cuSeqLens: Int32Array | undefined;
  readonly bhsd: boolean;
}

const appendNames = new Set(["k", "v", "q", "rope", "newLens", "cuSeqLens", "layout"]);
const ropeNames = new Set(["pairing", "theta", "dims", "scale", "positions"]);
const pairings = ["interleaved", "half"] as const;

/** Options of `append`. @throws TesseraError `invalid-argument` */
export function checkAppend(options: unknown, cache: CacheShape, owner: Owner): CheckedTokens {
  checkNames(options, appendNames, "append");
  return checkedTokens(options as Record<string, unknown>, cache, owner);
}

/** The same for options whose names are known ones. */
export function checkedTokens(options: Record<string, unknown>, cache: CacheShape, owner: Owner): CheckedTokens {
  const {
    k: givenK,
    v: givenV,
    q: givenQ,
    rope: givenRope,
    newLens: givenLens,
    cuSeqLens: givenStarts,
    layout,
  } = options;
  if (layout !== undefined) checkWord(layout, layouts, "layout");
  const bhsd = layout === "bhsd";
  if (givenLens !== undefined && givenStarts !== undefined)
    throw invalid("newLens and cuSeqLens are both given; allowed: one of them");
  const cuSeqLens = givenStarts === undefined ? undefined : int32(givenStarts, "cuSeqLens");
  const packed = cuSeqLens !== undefined;
  const tokens = (value: unknown, name: string, heads: number | undefined, dim: number, rows?: number) => {
    const desc = operandOf(value, name, floatDTypes, owner);
    const turned = bhsd && desc.shape.length >= 3 ? swapHeads(desc) : desc;
    const [b, s, h, d] = packed ? [undefined, ...turned.shape] : turned.shape;
    const fits =
      turned.shape.length === (packed ? 3 : 4) &&
      (packed || b === cache.batch) &&
      (rows === undefined || s === rows) &&
      (heads === undefined || h === heads) &&
      d === dim;
    if (!fits) {
      const wanted = [...(packed ? [] : [cache.batch]), rows ?? (packed ? "T" : "S"), heads ?? "Hq", dim];
      throw invalid(
        `${name} has shape ${shapeText(desc.shape)}; allowed, as ${packed ? "[T, H, D]" : "[B, S, H, D]"}: [${wanted.join(", ")}]`,
      );
    }
    return turned;
  };
  const k = tokens(givenK, "k", cache.kvHeads, cache.headDim);
  const rows = k.shape.at(-3)!;
  const v = tokens(givenV, "v", cache.kvHeads, cache.valueDim, rows);
  if (givenQ !== undefined && givenRope === undefined)
    throw invalid("q is given without rope; allowed: q to be rotated, with rope");
  const q = givenQ === undefined ? undefined : tokens(givenQ, "q", undefined, cache.headDim, rows);

  const counts = new Int32Array(cache.batch).fill(rows);
  let newLens: Int32Array | undefined;
  if (givenLens !== undefined) {
    newLens = int32(givenLens, "newLens").slice();
    if (newLens.length !== cache.batch) throw invalid(`newLens has ${newLens.length} values; allowed: ${cache.batch}`);
    for (const [b, count] of newLens.entries()) {
      if (count < 0 || count > rows) throw invalid(`newLens[${b}] is ${count}; allowed: 0 to ${rows}, the new rows`);
    }
    counts.set(newLens);
  }
  if (cuSeqLens) {
    if (cuSeqLens.length !== cache.batch + 1)
      throw invalid(`cuSeqLens has ${cuSeqLens.length} values; allowed: ${cache.batch + 1}`);
    checkStarts({ desc: k, values: cuSeqLens }, "cuSeqLens", rows);
    for (let b = 0; b < counts.length; b++) counts[b] = cuSeqLens[b + 1]! - cuSeqLens[b]!;
  }
  const positionsShape = packed ? [rows] : [cache.batch, rows];
  const rope = givenRope === undefined ? undefined : checkRope(givenRope, cache.headDim, positionsShape, owner);
  return { k, v, q, rope, counts, newLens, cuSeqLens: cuSeqLens?.slice(), bhsd };
}

function checkRope(value: unknown, headDim: number, positionsShape: readonly number[], owner: Owner): RopeDesc {
  checkNames(value, ropeNames, "rope");
  const { pairing, theta = 10000, dims = headDim, scale = 1, positions } = value as Record<string, unknown>;
  checkWord(pairing, pairings, "rope.pairing");
  if (typeof theta !== "number" || !(theta > 0) || !Number.isFinite(Math.fround(theta))) {
    throw invalid(`rope.theta is ${describe(theta)}; allowed: a finite number > 0`);
  }
  if (typeof dims !== "number" || !Number.isInteger(dims) || dims < 2 || dims > headDim || dims % 2 !== 0) {
    throw invalid(`rope.dims is ${describe(dims)}; allowed: even numbers from 2 to ${headDim}, the head dim`);
  }
  // The contract's 0 means 1: a caller who writes 0 wants something else.
  if (typeof scale !== "number" || scale === 0 || !Number.isFinite(Math.fround(scale))) {
    throw invalid(`rope.scale is ${describe(scale)}; allowed: a finite number other than 0`);
  }
  for (const [name, value] of [
    ["theta", theta],
    ["scale", scale],
  ] as const) {
    if (vanishes(value)) throw invalid(`rope.${name} is ${value}; allowed: a size of at least ${leastF32}`);
  }
  const rope = { pairing, theta, dims, scale };
  return positions === undefined ? rope : { ...rope, positions: positionsOf(positions, positionsShape, owner) };
}

function positionsOf(value: unknown, shape: readonly number[], owner: Owner): TensorDesc {
  const name = "rope.positions";
  const wrong = (got: string) => invalid(`${name} has ${got}; allowed: ${shapeText(shape)}`);
  if (Array.isArray(value) && Array.isArray(value[0])) {
    const rows = value.map((row, b) => int32(row, `${name}[${b}]`));
    if (shape.length !== 2 || rows.length !== shape[0] || rows.some((row) => row.length !== shape[1])) {
      throw wrong(`${rows.length} rows of ${rows.map((row) => row.length).join(", ")}`);
    }
    return flat(Int32Array.from(rows.flatMap((row) => [...row])), shape);
  }
  if (Array.isArray(value) || value instanceof Int32Array) {
    const data = int32(value, name);
    if (data.length !== countOf(shape)) throw wrong(`${data.length} values`);
    return flat(data, shape);
  }
  const desc = operandOf(value, name, ["i32"], owner);
  if (desc.shape.length !== shape.length || desc.shape.some((extent, i) => extent !== shape[i])) {
    throw wrong(`shape ${shapeText(desc.shape)}${isTensor(value) ? "" : " on the host"}`);
  }
  return desc;
}

function flat(data: Int32Array, shape: readonly number[]): TensorDesc {
  const strides = shape.length === 2 ? [shape[1]!, 1] : [1];
  return { data, byteOffset: 0, dtype: "i32", shape, strides };
}
