/** Head dims, head ratios, and the lengths at which tiles begin and end. */
import { attention, type Case } from "../case.js";

const dims = [1, 8, 33, 40, 64, 80, 88, 96, 128, 192, 224, 256, 512];
const unequal: readonly [number, number][] = [
  [192, 128],
  [64, 128],
  [8, 33],
  [128, 1],
  [40, 64],
];
const ratios: readonly [number, number][] = [
  [1, 1],
  [4, 1],
  [8, 2],
  [7, 1],
  [14, 2],
  [28, 4],
  [8, 1],
  [12, 1],
  [24, 2],
  [16, 1],
  [16, 2],
  [9, 3],
  [71, 1],
];
const lengths = [0, 1, 2, 3, 5, 9, 12, 63, 64, 65, 127, 128, 129, 257];

export const shapes: Case[] = [
  ...dims.flatMap((d) => [
    attention(`dim/${d}`, "head dim: tails of vectors and tiles (llama.cpp PR #20375: 88; flashinfer #528: 224)", [
      1,
      5,
      37,
      2,
      1,
      d,
    ]),
    attention(`dim/${d}/f16`, "head dim in fp16", [1, 5, 37, 2, 1, d], {
      types: "f16",
      level: d % 64 === 0 ? "quick" : "full",
    }),
    attention(`dim/${d}/bf16`, "head dim in bf16, causal", [1, 17, 37, 2, 1, d], {
      types: "bf16",
      causal: true,
      level: "full",
    }),
    attention(`dim/${d}/one`, "one query", [1, 1, 19, 2, 1, d], { level: "full" }),
  ]),
  ...unequal.flatMap(([d, dv]) => [
    attention(`dim/${d}-${dv}`, "V's head dim differs", [1, 9, 41, 2, 1, d, dv]),
    attention(`dim/${d}-${dv}/f16`, "V's head dim differs", [1, 9, 41, 2, 1, d, dv], {
      types: "f16",
      causal: true,
      level: "full",
    }),
    attention(`dim/${d}-${dv}/decode`, "V's head dim differs", [2, 1, 150, 2, 1, d, dv], { level: "full" }),
  ]),
  ...ratios.flatMap(([hq, hkv]) => [
    attention(
      `heads/${hq}-${hkv}`,
      "query head h reads KV head h / ratio (paiml/aprender #559: ratio 7)",
      [2, 6, 33, hq, hkv, 16],
      { causal: true },
    ),
    attention(`heads/${hq}-${hkv}/one`, "the same, one query", [2, 1, 70, hq, hkv, 32], { types: "f16" }),
  ]),
  attention("heads/28-4/128", "ratio 7 at D 128 (paiml/aprender #559)", [1, 20, 65, 28, 4, 128], {
    causal: true,
    level: "full",
  }),
  attention(
    "heads/601-1",
    "one query's heads are more rows than a kernel likes to have at once",
    [2, 3, 21, 601, 1, 8],
    {
      causal: true,
      level: "full",
    },
  ),
  ...lengths.flatMap((sq) =>
    lengths
      .filter((sk) => sq === sk || sq <= 5 || sk <= 3 || (sq + sk) % 3 === 0)
      .map((sk) =>
        attention(
          `length/${sq}x${sk}`,
          "tile edges and empty sides (flash-attention PR #2470: Sk 0)",
          [1, sq, sk, 2, 1, 16],
          {
            causal: (sq + sk) % 2 === 0,
            level: sq === sk || sq <= 1 || sk <= 1 ? "quick" : "full",
          },
        ),
      ),
  ),
  ...[9, 12, 20].map((s) =>
    attention(`length/short-${s}`, "fewer keys than a tile (SageAttention PR #98)", [1, s, s, 20, 20, 128], {
      types: "f16",
    }),
  ),
  ...[64, 129, 300].map((s) =>
    attention(`length/long-${s}`, "several tiles of both", [1, s, s + 171, 2, 1, 64], {
      types: s === 129 ? "bf16" : "f32",
      causal: true,
      level: "full",
    }),
  ),
  attention("length/1025", "an odd length past 1024 (pytorch #153799)", [1, 70, 1025, 1, 1, 32], {
    causal: true,
    level: "full",
    bias: { type: "f32", perBatch: false, perHead: false, fill: "normal" },
  }),
  attention("length/empty-batch", "B is 0", [0, 4, 4, 2, 1, 8]),
  attention("length/empty-q-keys-0", "nothing at all", [2, 0, 0, 2, 1, 8]),
  attention("length/batch-3", "several entries and heads", [3, 33, 47, 4, 2, 24], { causal: true }),
  attention("length/batch-9-one", "more entries than threads", [9, 1, 40, 4, 4, 16]),
];
