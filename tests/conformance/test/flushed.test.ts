import { expect, it } from "vitest";
import { attention } from "../src/case.js";
import { solveFlushed } from "../src/flushed.js";
import { buildProblem } from "../src/problem.js";
import { solve } from "../src/truth.js";

const types = "bf16" as const;

it("tells variants that take subnormal Q for 0 from those that don't", () => {
  const c = attention("flushed/q", "", [1, 9, 40, 2, 1, 64], { input: "subnormal-q", types });
  const problem = buildProblem(c);
  const exact = solve(problem, c.types);
  const flushed = solveFlushed(problem, c.types);
  const apart = Math.max(...exact.out.map((x, i) => Math.abs(x - (flushed.out[i] as number))));
  expect(apart).toBeGreaterThan(2 * Math.max(exact.outBound, flushed.outBound));
});

it("has the bounds of ordinary numbers where there are no others", () => {
  const c = attention("flushed/none", "", [1, 9, 40, 2, 1, 64], { types });
  const problem = buildProblem(c);
  const exact = solve(problem, c.types);
  const flushed = solveFlushed(problem, c.types);
  expect(flushed.out).toEqual(exact.out);
  expect(flushed.outBound).toBeCloseTo(exact.outBound, 30);
  expect(flushed.lseBound(1)).toBeCloseTo(exact.lseBound(1), 30);
});

it("lets each key lose one sum below 2^-126", () => {
  const c = attention("flushed/v", "", [1, 1, 40, 1, 1, 64], { input: "around-least-v", types });
  const problem = buildProblem(c);
  const { v } = problem;
  expect(v.values.some((x) => x !== 0 && Math.abs(x) < 2 ** -126)).toBe(true);
  expect(solveFlushed(problem, c.types).outBound).toBeGreaterThanOrEqual(40 * 2 ** -126);
});
