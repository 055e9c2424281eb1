/** The options that shape a score: numbers, words, and tensors over heads or over query-key pairs. */
import type { AttentionDesc, TensorDesc } from "./backend.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { leastF32, vanishes } from "./numeric.js";
import { boolBytes, type CheckedInts, floatDTypes, type Owner, operandOf, perHead } from "./operands.js";
import { checkBoolean, checkWhole, checkWord } from "./option-names.js";
import { countOf, shapeText } from "./strides.js";

export type Mutable<T> = { -readonly [K in keyof T]: T[K] };
export type Options = Readonly<Record<string, unknown>>;

/** Sizes of a call, as far as shapes tell. */
export interface Sizes {
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly valueDim: number;
  /** Sq, or T packed. */
  readonly queryRows: number;
  /** Longest that a sequence's queries and keys can be. */
  readonly maxQueries: number;
  readonly maxKeys: number;
  readonly packedQ: boolean;
  /** Keys have no common extent: packed or paged. */
  readonly looseKeys: boolean;
}

const aligns = ["bottom-right", "top-left"] as const;

/** Numbers and words into `desc`. */
export function checkScalars(options: Options, desc: Mutable<AttentionDesc>): void {
  const { scale, softcap, causal, align, window, numSplits, kernel } = options;
  if (scale !== undefined) {
    // Back ends hold it in float32, where 1e300 is infinite.
    if (typeof scale !== "number" || !Number.isFinite(Math.fround(scale))) {
      throw invalid(`scale is ${describe(scale)}; allowed: any finite float32`);
    }
    desc.scale = scale;
  }
  if (softcap !== undefined) {
    if (typeof softcap !== "number" || !(softcap >= 0) || !Number.isFinite(Math.fround(softcap))) {
      throw invalid(`softcap is ${describe(softcap)}; allowed: 0 (off) or a finite number > 0`);
    }
    if (vanishes(softcap)) throw invalid(`softcap is ${softcap}; allowed: 0 (off) or at least ${leastF32}`);
    desc.softcap = softcap;
  }
  checkBoolean(causal, "causal");
  if (causal !== undefined) desc.causal = causal;
  if (align !== undefined) {
    checkWord(align, aligns, "align");
    if (options.queryOffset !== undefined)
      throw invalid(`align is ${JSON.stringify(align)} and queryOffset is given; allowed: one of them`);
    desc.align = align;
  }
  if (window !== undefined) desc.window = checkWindow(window);
  if (numSplits !== undefined) {
    checkWhole(numSplits, 0, "numSplits", 0x7fffffff);
    desc.numSplits = numSplits;
  }
  if (kernel !== undefined) {
    if (typeof kernel !== "string" || kernel === "")
      throw invalid(`kernel is ${describe(kernel)}; allowed: a name that engine.kernels() lists`);
    desc.kernel = kernel;
  }
}

function checkWindow(window: unknown): [number, number] {
  const sides: readonly unknown[] = Array.isArray(window) ? window : [];
  const good = (side: unknown) => typeof side === "number" && Number.isSafeInteger(side) && side >= -1;
  if (sides.length !== 2 || !good(sides[0]) || !good(sides[1])) {
    const text = Array.isArray(window) ? `[${window.join(", ")}]` : describe(window);
    throw invalid(
      `window is ${text}; allowed: [left, right], each a whole number >= -1 (-1 = unbounded; left = W - 1 for W keys, self included)`,
    );
  }
  return [sides[0] as number, sides[1] as number];
}

/** Per-head numbers, bias and mask into `desc`. */
export function checkScoreTensors(options: Options, sizes: Sizes, desc: Mutable<AttentionDesc>, owner: Owner): void {
  const { alibiSlopes, sinks, bias, mask, kScale, vScale } = options;
  if (alibiSlopes !== undefined) desc.alibiSlopes = perHead(alibiSlopes, "alibiSlopes", sizes.heads, owner);
  if (sinks !== undefined) desc.sinks = perHead(sinks, "sinks", sizes.heads, owner);
  if (kScale !== undefined) desc.kScale = cacheScale(kScale, "k", desc.k, sizes, owner);
  if (vScale !== undefined) desc.vScale = cacheScale(vScale, "v", desc.v, sizes, owner);
  if (bias !== undefined) desc.bias = overPairs(operandOf(bias, "bias", floatDTypes, owner), "bias", sizes);
  if (mask !== undefined) {
    const shaped = Array.isArray(mask) || mask instanceof Uint8Array ? bareMask(mask, sizes) : mask;
    desc.mask = overPairs(operandOf(shaped, "mask", ["bool"], owner, "bool"), "mask", sizes);
  }
}

function cacheScale(value: unknown, of: "k" | "v", stored: TensorDesc, sizes: Sizes, owner: Owner): TensorDesc {
  const name = `${of}Scale`;
  if (stored.dtype !== "f8_e4m3")
    throw invalid(`${name} is given, but ${of} is ${stored.dtype}; allowed: with f8_e4m3 only`);
  return perHead(value, name, sizes.kvHeads, owner);
}

function bareMask(mask: readonly unknown[] | Uint8Array, sizes: Sizes) {
  const { batch, heads, maxQueries, maxKeys } = sizes;
  const data = mask instanceof Uint8Array ? mask : boolBytes(mask, "mask");
  const one = [maxQueries, maxKeys];
  const all = [batch, heads, maxQueries, maxKeys];
  const shape = [one, all].find((candidate) => countOf(candidate) === data.length);
  if (!shape) {
    throw invalid(
      `mask has ${data.length} values; allowed without a shape: ${shapeText(one)} or ${shapeText(all)}; otherwise pass { data, shape }`,
    );
  }
  return { data, shape };
}

/** A tensor over query-key pairs as [B or 1, Hq or 1, Sq, Sk], broadcast dimensions with stride 0. */
function overPairs(given: TensorDesc, name: string, sizes: Sizes): TensorDesc {
  const { batch, heads, maxQueries, maxKeys, packedQ, looseKeys } = sizes;
  const missing = 4 - given.shape.length;
  const shape = [...new Array<number>(Math.max(missing, 0)).fill(1), ...given.shape];
  const strides = [...new Array<number>(Math.max(missing, 0)).fill(0), ...given.strides];
  const rows = shape[2]!;
  const columns = shape[3]!;
  const fits =
    given.shape.length >= 2 &&
    (shape[0] === 1 || shape[0] === batch) &&
    (shape[1] === 1 || shape[1] === heads) &&
    (packedQ ? rows >= maxQueries : rows === maxQueries) &&
    (looseKeys ? columns >= maxKeys : columns === maxKeys);
  if (!fits) {
    const atLeast = (loose: boolean) => (loose ? ">= " : "");
    throw invalid(
      `${name} has shape ${shapeText(given.shape)}; allowed: [${batch} or 1, ${heads} or 1, ` +
        `${atLeast(packedQ)}${maxQueries}, ${atLeast(looseKeys)}${maxKeys}], leading dimensions may be left out`,
    );
  }
  if (shape[0] === 1) strides[0] = 0;
  if (shape[1] === 1) strides[1] = 0;
  return { data: given.data, byteOffset: given.byteOffset, dtype: given.dtype, shape, strides };
}

/** Checks numbers that the host can see against a range. */
export function checkRange(ints: CheckedInts | undefined, name: string, most: number, what: string): void {
  const values = ints?.values;
  if (!values) return;
  for (let b = 0; b < values.length; b++) {
    const value = values[b]!;
    if (value < 0 || value > most) throw invalid(`${name}[${b}] is ${value}; allowed: 0 to ${most}, ${what}`);
  }
}
