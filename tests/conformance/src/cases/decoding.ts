/** Few queries over many keys, and splits of the keys. */
import { attention, type Case } from "../case.js";

export const decoding: Case[] = [
  ...Array.from({ length: 16 }, (_, i) => i + 1).map((n) =>
    attention(`decode/${n}`, "1 ... 16 new tokens over a long cache", [1, n, 520, 4, 2, 64], {
      causal: true,
      types: n % 2 ? "f16" : "f32",
      level: n <= 2 || n >= 15 ? "quick" : "full",
    }),
  ),
  attention("decode/17", "one more than decode kernels take", [1, 17, 520, 4, 2, 64], { causal: true, level: "full" }),
  ...[1, 2, 3, 4, 7, 8, 16, 64].flatMap((splits) => [
    attention(`splits/${splits}`, "forced number of splits, merged", [2, 1, 300, 4, 2, 32], { splits, types: "f16" }),
    attention(`splits/${splits}/f32`, "forced number of splits, several queries", [1, 3, 200, 4, 1, 32], {
      splits,
      causal: true,
    }),
  ]),
  attention("splits/more-than-keys", "more splits than keys", [1, 1, 5, 2, 1, 16], { splits: 9 }),
  attention("splits/empty", "splits of no key", [2, 1, 0, 2, 1, 16], { splits: 4 }),
  attention("splits/lengths", "most splits are empty for short entries", [4, 1, 400, 4, 2, 32], {
    splits: 8,
    lengthsK: [400, 1, 0, 65],
    types: "f16",
  }),
  attention("splits/sinks", "the sink counts once, not once a split", [2, 1, 300, 4, 2, 32], {
    splits: 5,
    sinks: [3, 1, -2, 0],
  }),
  attention("splits/no-lse", "splits without an lse output (flashinfer PR #50)", [1, 1, 300, 4, 2, 32], {
    splits: 4,
    wantLse: false,
  }),
  attention("splits/window", "splits left of the window", [1, 2, 400, 4, 2, 32], {
    splits: 6,
    window: [50, 0],
    causal: true,
  }),
  attention("splits/paged", "splits over pages", [2, 1, 300, 4, 2, 32], {
    splits: 4,
    lengthsK: [300, 77],
    pages: { size: 16 },
    types: "f16",
  }),
  attention("splits/sixty", "splits whose maxima are far apart", [1, 1, 300, 2, 1, 128], {
    splits: 4,
    input: "sixty",
    types: "f16",
  }),
  attention("splits/masked", "splits that a mask empties", [1, 2, 300, 2, 1, 32], {
    splits: 4,
    mask: { perBatch: false, perHead: false, fill: "first-key" },
  }),
  attention("decode/long", "a cache of 4,000 tokens", [1, 1, 4000, 8, 2, 64], { types: "f16", level: "full" }),
  attention("decode/long/q8_0", "a quantised cache of 2,000 tokens", [1, 1, 2000, 8, 1, 128], {
    types: "f16/q8_0",
    level: "full",
  }),
  ...["f16", "f16/q8_0", "f16/q4_0"].map((types) =>
    attention(
      `decode/d96/${types.split("/").at(-1)}`,
      "rows of 192, 102 and 54 bytes, in pages",
      [2, 1, 300, 4, 2, 96],
      {
        lengthsK: [300, 77],
        pages: { size: 16 },
        types,
      },
    ),
  ),
  attention("decode/mqa-32", "32 query heads on one KV head", [2, 1, 257, 32, 1, 64], { types: "bf16" }),
  attention("decode/d512-ratio16", "D 512 with ratio 16 (flash-attention #2750)", [1, 1, 140, 16, 1, 512], {
    types: "bf16",
  }),
];
