import { expect, it } from "vitest";
import { type AttentionCase, attention } from "../src/case.js";
import { buildProblem } from "../src/problem.js";
import { scoreShift, withRoundedQ } from "../src/rounded-q.js";
import { solve } from "../src/truth.js";

const rounded: AttentionCase[] = [
  attention("rounded-q/plain", "scores of both signs", [2, 3, 40, 4, 2, 64], { types: "f32/q8_0" }),
  attention("rounded-q/cap", "a soft cap only shrinks differences", [1, 5, 33, 2, 2, 96], {
    types: "f16/q4_0",
    softcap: 2,
    causal: true,
  }),
  attention("rounded-q/steep", "a scale that makes one key win", [1, 2, 50, 2, 1, 32], { types: "f32/q8_0", scale: 4 }),
];

for (const c of rounded) {
  it(`${c.name}: rounding Q moves lse and out no further than semantics.md says`, () => {
    const problem = buildProblem(c);
    const before = solve(problem, c.types);
    const after = solve(withRoundedQ(problem), c.types);
    const shift = scoreShift(problem) * 1.0001; // fp32 rounds x / scale
    const largest = Math.max(...problem.v.values.map(Math.abs));
    const furthest = (a: Float64Array, b: Float64Array) => Math.max(...a.map((x, i) => Math.abs(x - (b[i] as number))));
    const lse = furthest(before.lse, after.lse);
    expect(lse).toBeLessThanOrEqual(shift);
    expect(furthest(before.out, after.out)).toBeLessThanOrEqual(largest * shift);
    expect(lse, "it does move them").toBeGreaterThan(before.lseBound(1));
  });
}

it("rounds to the nearest multiple, and a block with a NaN to NaN", () => {
  const problem = buildProblem(attention("rounded-q/values", "", [1, 1, 1, 1, 1, 64], { types: "f32/q8_0" }));
  const values = new Float32Array(64);
  values.set([127, 0.5, 1.5, -2.5, 63.4]);
  values[40] = Number.NaN;
  const { q } = withRoundedQ({ ...problem, q: { ...problem.q, values } });
  expect([...q.values.slice(0, 6)]).toEqual([127, 0, 2, -2, 63, 0]);
  expect([...q.values.slice(32)].every(Number.isNaN)).toBe(true);
});
