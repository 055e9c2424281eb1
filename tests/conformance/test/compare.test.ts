import { expect, it } from "vitest";
import { encode } from "../src/codec.js";
import { worst } from "../src/compare.js";

const off = (got: number, want: number, bound: number | ((truth: number) => number) = 0.1) =>
  worst(encode([got], "f32"), "f32", [want], bound) !== null;
const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

it("finite values are held to the bound", () => {
  expect(off(1.05, 1)).toBe(false);
  expect(off(1.2, 1)).toBe(true);
  expect(off(nan, 1)).toBe(true);
  expect(off(inf, 1, 1e30)).toBe(true);
});

it("an empty lse is -inf and nothing else, however its bound is computed", () => {
  const relative = (truth: number) => 1e-5 + 1e-6 * Math.abs(truth);
  expect(off(-inf, -inf, relative)).toBe(false);
  for (const wrong of [nan, inf, -1e30, 0]) expect(off(wrong, -inf, relative), String(wrong)).toBe(true);
});

it("where poison shows, the result isn't finite either", () => {
  expect(off(nan, nan)).toBe(false);
  expect(off(inf, nan)).toBe(false);
  expect(off(0, nan)).toBe(true);
  expect(off(3, inf)).toBe(true);
});
