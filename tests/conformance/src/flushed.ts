/**
 * What variants are held to that take numbers below 2^-126 for 0 (docs/semantics.md, "Numbers"): the same bounds against the truth
 * of q, k and v with zeros there, and a little more, since each sum of a matrix instruction that is as small may be 0, too.
 */
import type { Types } from "./case.js";
import type { HostTensor } from "./codec.js";
import type { Problem } from "./problem.js";
import { solve, type Truth } from "./truth.js";

const least = 2 ** -126;

const flushed = (tensor: HostTensor): HostTensor => ({
  ...tensor,
  values: tensor.values.map((x) => (Math.abs(x) < least ? 0 : x)),
});

export function solveFlushed(problem: Problem, types: Types): Truth {
  const { q, k, v, scale, dim } = problem;
  const truth = solve({ ...problem, q: flushed(q), k: flushed(k), v: flushed(v) }, types);
  // Each of at most `dim` additions to a score, and of as many to an element of out as there are keys.
  const score = Math.abs(scale) * dim * least;
  const largest = v.values.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0);
  return {
    ...truth,
    outBound: truth.outBound + largest * score + Math.max(0, ...problem.keyCounts) * least,
    lseBound: (x) => truth.lseBound(x) + score,
  };
}
