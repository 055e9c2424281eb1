/** Boolean masks. */
import { attention, type Case } from "../case.js";

const broadcast = [
  [true, true],
  [true, false],
  [false, true],
  [false, false],
] as const;

export const masks: Case[] = [
  ...broadcast.map(([perBatch, perHead]) =>
    attention(
      `mask/random/${perBatch ? "b" : "1"}${perHead ? "h" : "1"}`,
      "a random mask, broadcast or not",
      [2, 9, 37, 4, 2, 16],
      {
        mask: { perBatch, perHead, fill: "random" },
      },
    ),
  ),
  attention("mask/rows-false", "rows 4-7 see nothing (pytorch #103963)", [1, 8, 8, 1, 1, 8], {
    mask: { perBatch: false, perHead: false, fill: "rows-false" },
  }),
  attention("mask/all-false", "nobody sees anything (NVIDIA/apex #1390: average of V)", [2, 5, 70, 2, 1, 16], {
    mask: { perBatch: false, perHead: false, fill: "all-false" },
  }),
  attention("mask/all-false/one", "the same, one query", [2, 1, 140, 2, 1, 16], {
    mask: { perBatch: false, perHead: false, fill: "all-false" },
    sinks: [1, 2],
  }),
  attention("mask/all-true", "a mask that does nothing", [1, 9, 37, 2, 1, 16], {
    mask: { perBatch: false, perHead: false, fill: "all-true" },
  }),
  attention("mask/hidden-nan", "NaN in a hidden K element (pytorch #101967)", [1, 2, 2, 1, 1, 4], {
    mask: { perBatch: false, perHead: false, fill: "first-key" },
    edits: [{ tensor: "k", row: 1, dim: 0, value: Number.NaN }],
  }),
  attention("mask/hidden-row-nan", "NaN in a whole K row that the mask hides", [1, 12, 70, 2, 1, 16], {
    mask: { perBatch: false, perHead: false, fill: "first-key" },
    edits: [
      { tensor: "k", row: 33, value: Number.NaN },
      { tensor: "k", row: 69, value: Number.POSITIVE_INFINITY },
    ],
  }),
  attention("mask/sparse", "whole tiles are hidden for some rows", [1, 20, 200, 2, 1, 16], {
    mask: { perBatch: false, perHead: true, fill: "sparse" },
  }),
  ...[3, 7, 15].map((n) =>
    attention(`mask/tree-${n}`, "a tree of speculated tokens over a cache", [2, n, n + 50, 4, 2, 32], {
      mask: { perBatch: false, perHead: false, fill: "tree" },
      types: "f16",
    }),
  ),
  attention("mask/block-diagonal", "three sequences in one entry don't meet (llama.cpp #7903)", [1, 24, 24, 2, 2, 32], {
    mask: { perBatch: false, perHead: false, fill: "block-diagonal" },
  }),
  attention("mask/block-diagonal/decode", "three sequences, few queries", [1, 3, 96, 4, 2, 32], {
    mask: { perBatch: false, perHead: false, fill: "block-diagonal" },
    types: "f16",
  }),
  attention(
    "mask/interleaved-window",
    "two sequences take turns in a cache, the mask is their window (ik_llama.cpp #2186)",
    [1, 4, 60, 2, 1, 32],
    { mask: { perBatch: false, perHead: false, fill: "interleaved-window" } },
  ),
  attention("mask/causal-as-mask", "causality written as a mask", [1, 33, 50, 2, 1, 16], {
    mask: { perBatch: false, perHead: false, fill: "causal" },
  }),
  attention("mask/with-all", "mask, causality, window, bias, ALiBi, cap and sinks", [2, 30, 70, 4, 2, 24], {
    mask: { perBatch: true, perHead: false, fill: "random" },
    causal: true,
    window: [40, -1],
    bias: { type: "f16", perBatch: false, perHead: true, fill: "normal" },
    alibi: "standard",
    softcap: 10,
    sinks: [0, 1, 2, -1],
    types: "f16",
  }),
  attention("mask/repeated", "an expanded mask", [3, 5, 20, 4, 2, 16], {
    mask: { perBatch: true, perHead: true, fill: "random" },
    repeat: { mask: [0, 1] },
  }),
  attention("mask/lengths", "a mask wider than the lengths", [2, 5, 40, 2, 1, 16], {
    mask: { perBatch: true, perHead: true, fill: "random" },
    lengthsK: [13, 40],
  }),
];
