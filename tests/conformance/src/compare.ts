import type { DType } from "@tessera/core";
import { decode } from "./codec.js";

/** The worst element of a result. */
export interface Deviation {
  readonly index: number;
  readonly got: number;
  readonly want: number;
  readonly error: number;
  readonly bound: number;
}

/**
 * The element that is furthest over its bound, or null. A truth that is NaN or infinite (poison that a query does see)
 * asks for something that isn't finite; -inf (an empty lse) asks for -inf.
 */
export function worst(
  bytes: Uint8Array,
  dtype: DType,
  truth: ArrayLike<number>,
  bound: number | ((truth: number, index: number) => number),
): Deviation | null {
  const got = decode(bytes, dtype);
  let found: Deviation | null = null;
  for (let index = 0; index < truth.length; index++) {
    const want = truth[index] as number;
    const value = got[index] as number;
    const limit = !Number.isFinite(want) ? 0 : typeof bound === "number" ? bound : bound(want, index);
    let error = Math.abs(value - want);
    if (!Number.isFinite(want)) {
      const fine = want === Number.NEGATIVE_INFINITY && dtype === "f32" ? value === want : !Number.isFinite(value);
      error = fine ? 0 : Number.POSITIVE_INFINITY;
    } else if (!Number.isFinite(value)) error = Number.POSITIVE_INFINITY;
    if (error > limit && (found === null || error - limit > found.error - found.bound)) {
      found = { index, got: value, want, error, bound: limit };
    }
  }
  return found;
}

/** Coordinates of an element of a contiguous tensor. */
export function coordinates(index: number, shape: readonly number[]): number[] {
  const at: number[] = [];
  let rest = index;
  for (const n of [...shape].reverse()) {
    at.unshift(rest % n);
    rest = Math.floor(rest / n);
  }
  return at;
}

const short = (x: number) => (Number.isFinite(x) ? Number(x.toPrecision(7)).toString() : String(x));

export function describe(name: string, deviation: Deviation, shape: readonly number[]): string {
  const { got, want, error, bound, index } = deviation;
  return (
    `${name}[${coordinates(index, shape).join(",")}] is ${short(got)}, must be ${short(want)}: ` +
    `error ${error.toExponential(2)}, bound ${bound.toExponential(2)}`
  );
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  // No Buffer: the table runs in pages too.
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
