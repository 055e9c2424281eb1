/** Merging partial results. */
import { type Case, merge } from "../case.js";

export const merges: Case[] = [
  ...[1, 2, 3, 8].map((parts) => merge(`merge/${parts}`, "this many parts", { parts })),
  ...(["f16", "bf16"] as const).map((type) => merge(`merge/${type}`, "16-bit parts", { type, parts: 3 })),
  merge("merge/f32-to-f16", "fp32 parts, 16-bit result", { parts: 3, outType: "f16" }),
  merge("merge/no-lse", "lse isn't wanted", { wantLse: false }),
  merge("merge/first-empty", "an empty part is neutral, whatever it holds", { empty: ["all", "none"] }),
  merge("merge/last-empty", "an empty part is neutral", { empty: ["none", "all"] }),
  merge("merge/all-empty", "two empty parts give an empty one: out 0, lse -inf", { empty: ["all", "all"] }),
  merge("merge/some-empty", "some rows are empty", { parts: 3, empty: ["some", "none", "some"] }),
  merge("merge/one-empty", "one part, empty", { parts: 1, empty: ["all"] }),
  merge("merge/far-apart", "weights far apart", { parts: 3, input: "far-apart" }),
  merge("merge/large", "lse of 8e4, equal for all", { parts: 3, input: "large" }),
  merge("merge/attention", "parts of one attention are the whole", {
    heads: 2,
    valueDim: 32,
    attention: { ranges: [10, 33, 64], dim: 32 },
  }),
  merge("merge/attention-empty", "with a part of no key", {
    heads: 2,
    valueDim: 32,
    attention: { ranges: [20, 0, 45], dim: 32 },
  }),
  merge("merge/attention-f16", "16-bit input", {
    heads: 2,
    valueDim: 64,
    type: "f16",
    outType: "f16",
    attention: { ranges: [100, 1], dim: 64 },
  }),
  merge("merge/wide", "a large head dim", { valueDim: 512, parts: 2, batch: 1, queries: 3 }),
];
