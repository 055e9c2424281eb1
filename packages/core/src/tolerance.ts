/**
 * How far a result may be from the oracle: docs/semantics.md, "Numbers". One truth for the conformance suite, the tests
 * and `tessera attend --check`.
 */
import { checkAttention } from "./check-attention.js";
import { decode, readElements } from "./codec.js";
import type { DType, FloatDType } from "./dtype.js";
import type { HostTensor } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { floatDTypes, operandOf } from "./operands.js";
import { finish, finishInSlices, type LongRun, type OracleOptions, solveOptions } from "./oracle.js";
import type { Rounding, Solution } from "./oracle-solve.js";
import { elementsAt, hostMemory } from "./problem.js";
import { countOf } from "./strides.js";

/** A result to be judged. */
export interface ResultToCheck {
  /** What was asked for. */
  readonly options: OracleOptions;
  /** What came out: a host tensor of the result's shape, or its values in order (then float32 unless q is narrower). */
  readonly out: HostTensor | ArrayLike<number>;
  /** Natural-log LSE, in order. Not judged if left out. */
  readonly lse?: { readonly data: ArrayLike<number> } | ArrayLike<number> | undefined;
}

/** Where a result is furthest off. */
export interface Deviation {
  /** Position in the result, row-major. */
  readonly index: number;
  readonly expected: number;
  readonly actual: number;
}

/** The verdict. */
export interface OracleCheck {
  /** Everything within its bound. */
  readonly ok: boolean;
  /** Largest |actual - expected| of `out`; Infinity where one is NaN or infinite and the other not. */
  readonly maxError: number;
  /** What `maxError` may be. */
  readonly bound: number;
  /** Error of the reference that rounds only where storage forces it; part of the bound. */
  readonly referenceError: number;
  /** Largest error of `lse`, relative to its own bound: |actual - expected| where that ratio is largest. */
  readonly lseMaxError: number;
  /** Bound at that place. */
  readonly lseBound: number;
  readonly worst: Deviation | undefined;
  readonly worstLse: Deviation | undefined;
  /** A = |scale| · max over visible pairs of Σ|q·k|, or the largest |bias - alibi| on a winning key. */
  readonly magnitude: number;
  /** max |v| over visible values. */
  readonly largestValue: number;
}

const narrow = (dtype: DType) => dtype !== "f32";

/** Where the reference rounds for these types. */
export function roundingOf(q: DType, k: DType, v: DType, out: FloatDType): Rounding {
  if (!narrow(q) || !narrow(k) || !narrow(v)) return { p: undefined, out };
  // P meets V in V's type if that is 16 bits wide, else in q's.
  return { p: v === "f16" || v === "bf16" ? v : (q as "f16" | "bf16"), out };
}

/** NaN is as good as NaN, an infinity as the same infinity; otherwise the distance. */
export function distance(actual: number, expected: number): number {
  if (Object.is(actual, expected) || actual === expected) return 0;
  const error = Math.abs(actual - expected);
  return Number.isNaN(error) ? Number.POSITIVE_INFINITY : error;
}

/**
 * Compares a result with the oracle.
 *
 * @throws TesseraError `invalid-argument` if the options are wrong or the result has not as many values as they say
 */
export function checkAgainstOracle(result: ResultToCheck): OracleCheck {
  const prepared = prepare(result);
  return judge(prepared, finish(solveOptions(result.options, prepared.rounding)));
}

/** The same without blocking the event loop for more than about 20 ms at a time. */
export async function checkAgainstOracleAsync(result: ResultToCheck, run: LongRun = {}): Promise<OracleCheck> {
  const prepared = prepare(result);
  return judge(prepared, await finishInSlices(solveOptions(result.options, prepared.rounding), run));
}

interface Prepared {
  readonly out: ArrayLike<number>;
  readonly lse: ArrayLike<number> | undefined;
  readonly rounding: Rounding;
}

function prepare({ options, out, lse }: ResultToCheck): Prepared {
  const { desc, outShape, lseShape, outDType } = checkAttention(options, undefined, "oracle");
  const given = resultValues(out, outDType);
  const lseValues = lse === undefined ? undefined : "data" in lse ? lse.data : lse;
  if (given.values.length !== countOf(outShape)) {
    throw invalid(`out has ${given.values.length} values; allowed: ${countOf(outShape)}, as the options say`);
  }
  if (lseValues && lseValues.length !== countOf(lseShape)) {
    throw invalid(`lse has ${lseValues.length} values; allowed: ${countOf(lseShape)}, as the options say`);
  }
  return {
    out: given.values,
    lse: lseValues,
    rounding: roundingOf(desc.q.dtype, desc.k.dtype, desc.v.dtype, given.dtype),
  };
}

function resultValues(
  out: HostTensor | ArrayLike<number>,
  fallback: FloatDType,
): { values: ArrayLike<number>; dtype: FloatDType } {
  if ("shape" in out) {
    const desc = operandOf(out, "out", floatDTypes, undefined);
    const values = new Float64Array(countOf(desc.shape));
    readStrided(desc, values);
    return { values, dtype: desc.dtype as FloatDType };
  }
  if (out instanceof Uint16Array) {
    if (fallback === "f32") throw invalid("out is a Uint16Array with no dtype; pass { data, shape, dtype }");
    return { values: decode(out, fallback), dtype: fallback };
  }
  return { values: out, dtype: fallback };
}

function readStrided(desc: ReturnType<typeof operandOf>, values: Float64Array): void {
  const elements = elementsAt(desc, hostMemory);
  const inner = desc.shape.at(-1)!;
  const outer = desc.shape.slice(0, -1);
  const index = outer.map(() => 0);
  for (let at = 0; at < values.length; at += inner) {
    let from = 0;
    for (let d = 0; d < outer.length; d++) from += index[d]! * desc.strides[d]!;
    readElements(desc.dtype, elements, from, inner, values, at);
    for (let d = outer.length - 1; d >= 0 && ++index[d]! === outer[d]; d--) index[d] = 0;
  }
}

function judge({ out, lse, rounding }: Prepared, truth: Solution): OracleCheck {
  const { magnitude, largestValue } = truth;
  const slack = rounding.p
    ? largestValue * (1e-6 + 2 ** -22 * magnitude)
    : 2e-6 * largestValue * Math.max(1, magnitude / 8);

  let referenceError = 0;
  let maxError = -1;
  let worst = 0;
  for (let i = 0; i < truth.out.length; i++) {
    const expected = truth.out[i]!;
    const rounded = truth.rounded[i]!;
    const actual = out[i]!;
    // A value that the output type can't hold: its infinity is right.
    const overflows = Number.isFinite(expected) && !Number.isFinite(rounded);
    if (!overflows && Number.isFinite(expected))
      referenceError = Math.max(referenceError, Math.abs(rounded - expected));
    const error = overflows && actual === rounded ? 0 : distance(actual, expected);
    if (error > maxError) {
      maxError = error;
      worst = i;
    }
  }
  const bound = 2 * referenceError + slack;

  let lseError = 0;
  let lseBound = 1e-5 + 2 ** -22 * magnitude;
  let worstRatio = -1;
  let worstLse = 0;
  for (let i = 0; lse !== undefined && i < truth.lse.length; i++) {
    const expected = truth.lse[i]!;
    const error = distance(lse[i]!, expected);
    const allowed = 1e-5 + (Number.isFinite(expected) ? 1e-6 * Math.abs(expected) : 0) + 2 ** -22 * magnitude;
    if (error / allowed > worstRatio) {
      worstRatio = error / allowed;
      worstLse = i;
      lseError = error;
      lseBound = allowed;
    }
  }
  return {
    ok: maxError <= bound && lseError <= lseBound,
    maxError: Math.max(maxError, 0),
    bound,
    referenceError,
    lseMaxError: lseError,
    lseBound,
    worst: maxError < 0 ? undefined : { index: worst, expected: truth.out[worst]!, actual: out[worst]! },
    worstLse: worstRatio < 0 ? undefined : { index: worstLse, expected: truth.lse[worstLse]!, actual: lse![worstLse]! },
    magnitude,
    largestValue,
  };
}
