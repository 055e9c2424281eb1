/** Large, small and poisoned values. */
import { attention, type Case } from "../case.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

export const numbers: Case[] = [
  ...["f16", "bf16", "f32"].flatMap((type) => [
    attention(`sixty/${type}`, "q and k of +-60 at D 128: scores of 4.6e5 (llama.cpp #6957)", [1, 9, 40, 2, 1, 128], {
      input: "sixty",
      types: type,
    }),
    attention(`sixty/${type}/scale-1`, "the same with scale 1", [1, 4, 70, 2, 1, 128], {
      input: "sixty",
      types: type,
      scale: 1,
      causal: true,
    }),
    attention(`sixty/${type}/one`, "the same, one query", [2, 1, 150, 4, 1, 128], { input: "sixty", types: type }),
  ]),
  attention(
    "equal/4096/f16",
    "V near 3e4 with 4096 equal scores: a sum of unnormalised P V overflows 16 bits",
    [1, 2, 4096, 1, 1, 16],
    { input: "equal-scores", types: "f16" },
  ),
  attention("equal/4096/f32", "the same in fp32: one long chain of additions drifts", [1, 2, 4096, 1, 1, 16], {
    input: "equal-scores",
  }),
  attention("equal/4096/f32-f16", "the same over an fp16 cache", [1, 1, 4096, 4, 1, 16], {
    input: "equal-scores",
    types: "f32/f16",
    level: "full",
  }),
  attention("large-norm/f32", "rows of large norm (llama.cpp #23577)", [1, 9, 40, 2, 1, 256], { input: "large-norm" }),
  attention("large-norm/f16", "rows of large norm", [1, 9, 40, 2, 1, 256], { input: "large-norm", types: "f16" }),
  ...[64, 128, 256, 512].flatMap((d) =>
    [1, 9, 60].map((sq) =>
      attention(
        `positive/${d}/${sq}`,
        "sums of positive products: one long chain of additions drifts",
        [1, sq, 150, 2, 1, d],
        {
          input: "positive",
          scale: 1,
          types: sq === 9 ? "f16" : "f32",
          level: d === 128 ? "quick" : "full",
        },
      ),
    ),
  ),
  attention("zeros", "q and k are 0: the mean of V", [1, 9, 40, 2, 1, 16], { input: "zeros" }),
  attention("tiny-v/f16", "V is subnormal in fp16", [1, 9, 40, 2, 1, 32], { input: "tiny-v", types: "f16" }),
  attention("tiny-v/f32-f16", "V is subnormal in fp16, out is fp32", [1, 3, 40, 2, 1, 32], {
    input: "tiny-v",
    types: "f32/f16",
  }),
  attention("subnormal-v", "V is subnormal in fp32, one key: out is V", [1, 1, 1, 2, 1, 16], { input: "subnormal-v" }),
  ...[1, 40, 200].map((sq) =>
    attention(`subnormal-v/bf16/${sq}`, "V is about the least normal number in bf16", [1, sq, 230, 2, 1, 64], {
      input: "around-least-v",
      types: "bf16",
    }),
  ),
  attention("subnormal-q/bf16", "Q is subnormal in bf16, K large: ordinary scores", [1, 40, 70, 2, 1, 64], {
    input: "subnormal-q",
    types: "bf16",
  }),
  attention("subnormal-k/bf16", "K is subnormal in bf16, Q large", [1, 3, 70, 2, 1, 64], {
    input: "subnormal-k",
    types: "bf16",
  }),
  attention("no-lse", "lse isn't wanted", [2, 9, 70, 4, 2, 32], { wantLse: false, causal: true }),
  attention("no-lse/one", "lse isn't wanted, keys may be split (flashinfer PR #50)", [1, 1, 500, 2, 1, 32], {
    wantLse: false,
    types: "f16",
  }),

  attention("poison/k-causal", "NaN in a K row reaches only queries that see it", [1, 20, 20, 2, 1, 16], {
    causal: true,
    edits: [{ tensor: "k", row: 11, value: nan }],
    exactNaN: true,
  }),
  attention("poison/v-causal", "NaN in a V row shows in queries that see it, in no other", [1, 40, 40, 2, 1, 16], {
    causal: true,
    edits: [{ tensor: "v", row: 23, value: nan }],
    exactNaN: true,
  }),
  attention("poison/v-element", "NaN in one V element shows in that column", [1, 9, 40, 2, 1, 16], {
    edits: [{ tensor: "v", row: 23, dim: 5, value: nan }],
    exactNaN: true,
  }),
  attention("poison/v-infinite", "Inf in a V row", [1, 40, 40, 2, 1, 16], {
    causal: true,
    edits: [{ tensor: "v", row: 30, dim: 3, value: inf }],
    exactNaN: true,
  }),
  attention("poison/v-f16", "NaN in a V row in fp16", [1, 40, 80, 2, 1, 64], {
    causal: true,
    types: "f16",
    edits: [{ tensor: "v", row: 60, value: nan }],
    exactNaN: true,
  }),
  attention("poison/v-head", "NaN in one KV head stays in its group", [1, 9, 40, 4, 2, 16], {
    edits: [{ tensor: "v", row: 3, head: 1, value: nan }],
    exactNaN: true,
  }),
  attention("poison/v-mask", "NaN in a V row that the mask hides from some rows", [1, 8, 8, 2, 1, 16], {
    mask: { perBatch: false, perHead: false, fill: "block-diagonal" },
    edits: [{ tensor: "v", row: 4, value: nan }],
    exactNaN: true,
  }),
  attention("poison/k-mask", "NaN in a K row that the mask hides from some rows", [1, 9, 9, 2, 1, 16], {
    mask: { perBatch: false, perHead: false, fill: "block-diagonal" },
    edits: [{ tensor: "k", row: 4, value: nan }],
    exactNaN: true,
  }),
  attention("poison/k-bias", "NaN in K and V rows that a bias of -inf hides from some rows", [1, 12, 12, 2, 1, 16], {
    bias: { type: "f32", perBatch: false, perHead: false, fill: "minus-infinity" },
    edits: [
      { tensor: "k", row: 4, value: nan },
      { tensor: "v", row: 4, value: nan },
    ],
    exactNaN: true,
  }),
  attention("poison/window-slides", "NaN in a row that leaves the window", [1, 40, 40, 2, 1, 16], {
    window: [5, 0],
    causal: true,
    edits: [
      { tensor: "v", row: 12, value: nan },
      { tensor: "k", row: 30, value: nan },
    ],
    exactNaN: true,
  }),
  attention("poison/q", "NaN in a query stays in its row", [1, 9, 40, 4, 2, 16], {
    edits: [{ tensor: "q", row: 3, head: 2, dim: 1, value: nan }],
    exactNaN: true,
  }),
  attention("poison/v-q8_0", "NaN in a block of V that some queries see (found by fuzzing)", [1, 6, 40, 2, 1, 64], {
    causal: true,
    types: "f32/f32/q8_0",
    edits: [{ tensor: "v", row: 37, dim: 5, value: nan }],
    exactNaN: true,
  }),
  attention("poison/v-q4_0", "NaN in a block of V that some queries see (found by fuzzing)", [1, 6, 40, 2, 1, 64], {
    causal: true,
    types: "f32/f32/q4_0",
    edits: [{ tensor: "v", row: 37, dim: 5, value: nan }],
    exactNaN: true,
  }),
  attention("poison/decode", "NaN in a V row, few queries", [2, 4, 140, 4, 2, 32], {
    causal: true,
    types: "f16",
    edits: [{ tensor: "v", batch: 1, row: 138, value: nan }],
    exactNaN: true,
  }),
  attention("poison/decode-k", "NaN in a K row, few queries", [2, 4, 140, 4, 2, 32], {
    causal: true,
    edits: [{ tensor: "k", batch: 0, row: 137, value: nan }],
    exactNaN: true,
  }),
];
