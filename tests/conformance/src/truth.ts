/**
 * The float64 answer to a problem and how far a kernel may be from it. Written straight from semantics.md, one key after
 * the other, and on purpose apart from the oracle of @tessera/core: the two check each other (test/truth.test.ts).
 */
import type { FloatDType } from "@tessera/core";
import type { Types } from "./case.js";
import { rounded } from "./codec.js";
import { type Problem, sees } from "./problem.js";

export interface Truth {
  /** In the order of a contiguous out and lse. */
  readonly out: Float64Array;
  readonly lse: Float64Array;
  readonly outBound: number;
  /** For each lse. */
  readonly lseBound: (truth: number) => number;
}

const biasLimit = 2 ** 126;

/** Type that storage forces on P before PV: none if any input is fp32, else V's if that has 16 bits, else q's. */
function probabilityType({ q, k, v }: Types): FloatDType {
  if (q === "f32" || k === "f32" || v === "f32") return "f32";
  return v === "f16" || v === "bf16" ? v : q;
}

export function solve(problem: Problem, types: Types): Truth {
  const { heads, kvHeads, dim, valueDim, scale, softcap, q, k, v } = problem;
  const group = heads / kvHeads;
  const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
  const out = new Float64Array(size(problem.outShape));
  const lse = new Float64Array(size(problem.lseShape)).fill(Number.NEGATIVE_INFINITY);
  const pType = probabilityType(types);
  const exactP = pType === "f32";
  const exact = exactP && types.out === "f32";
  const longest = Math.max(0, ...problem.keyCounts);
  const weights = new Float64Array(longest);
  const seen = new Int32Array(longest);
  const row = new Float64Array(valueDim);
  const forced = new Float64Array(valueDim);
  let sumOfProducts = 0;
  let largestShift = 0;
  let largestValue = 0;
  let forcedError = 0;

  for (let b = 0; b < problem.batch; b++) {
    const keys = problem.keyCounts[b] as number;
    for (let h = 0; h < heads; h++) {
      const kv = Math.floor(h / group);
      const kScale = problem.kScale?.values[kv] ?? 1;
      const vScale = problem.vScale?.values[kv] ?? 1;
      const sink = problem.sinks?.values[h];
      for (let i = 0; i < (problem.queryCounts[b] as number); i++) {
        const at = i + (problem.offsets[b] as number);
        const qAt = (problem.queryRow(b, i) * heads + h) * dim;
        let count = 0;
        let max = sink ?? Number.NEGATIVE_INFINITY;
        let shift = 0; // what bias and ALiBi add to the largest score
        for (let j = 0; j < keys; j++) {
          if (!sees(problem, b, i, j)) continue;
          const overlay = (t: { shape: readonly number[] }) =>
            (((t.shape[0] === 1 ? 0 : b) * (t.shape[1] as number) + (t.shape[1] === 1 ? 0 : h)) *
              (t.shape[2] as number) +
              i) *
              (t.shape[3] as number) +
            j;
          if (problem.mask && problem.mask.values[overlay(problem.mask)] === 0) continue;
          const bias = problem.bias ? (problem.bias.values[overlay(problem.bias)] as number) : 0;
          if (bias === Number.NEGATIVE_INFINITY) continue;
          const kAt = (problem.keyRow(b, j) * kvHeads + kv) * dim;
          let dot = 0;
          let absolute = 0;
          for (let d = 0; d < dim; d++) {
            const product = (q.values[qAt + d] as number) * (k.values[kAt + d] as number) * kScale;
            dot += product;
            absolute += Math.abs(product);
          }
          if (absolute > sumOfProducts && Number.isFinite(absolute)) sumOfProducts = absolute;
          let s = scale * dot;
          if (softcap > 0) s = softcap * Math.tanh(s / softcap);
          const add =
            Math.max(-biasLimit, Math.min(biasLimit, bias)) -
            (problem.alibi ? (problem.alibi.values[h] as number) * Math.abs(at - j) : 0);
          s += add;
          if (!(s <= max)) {
            max = s;
            shift = Math.abs(add);
          }
          weights[count] = s;
          seen[count++] = j;
        }
        // A sum with a large bias is rounded in fp32 like a large product is; beyond 2^20 the score itself is absorbed.
        if (shift < 2 ** 20) largestShift = Math.max(largestShift, shift);
        const lseAt = problem.lseIndex(b, h, i);
        if (count === 0) {
          lse[lseAt] = sink ?? Number.NEGATIVE_INFINITY;
          continue;
        }
        let total = sink === undefined ? 0 : Math.exp(sink - max);
        row.fill(0);
        forced.fill(0);
        for (let n = 0; n < count; n++) {
          const weight = Math.exp((weights[n] as number) - max);
          total += weight;
          const p = exactP ? weight : rounded(weight, pType);
          const vAt = (problem.keyRow(b, seen[n] as number) * kvHeads + kv) * valueDim;
          for (let d = 0; d < valueDim; d++) {
            const value = (v.values[vAt + d] as number) * vScale;
            const magnitude = Math.abs(value);
            if (magnitude > largestValue && magnitude < Number.POSITIVE_INFINITY) largestValue = magnitude;
            row[d] = (row[d] as number) + weight * value;
            if (!exact) forced[d] = (forced[d] as number) + p * value;
          }
        }
        const outAt = (problem.queryRow(b, i) * heads + h) * valueDim;
        for (let d = 0; d < valueDim; d++) {
          const value = (row[d] as number) / total;
          out[outAt + d] = value;
          if (exact) continue;
          const error = Math.abs(rounded((forced[d] as number) / total, types.out) - value);
          if (error > forcedError && error < Number.POSITIVE_INFINITY) forcedError = error;
        }
        lse[lseAt] = max + Math.log(total);
      }
    }
  }

  const A = Math.max(Math.abs(scale) * sumOfProducts, largestShift);
  return {
    out,
    lse,
    outBound: 2 * forcedError + largestValue * (exactP ? 2e-6 * Math.max(1, A / 8) : 1e-6 + 2 ** -22 * A),
    lseBound: (truth) => 1e-5 + 1e-6 * Math.abs(truth) + 2 ** -22 * A,
  };
}
