/** Padded lengths, packed sequences and pages. Everything past a length and in an unused page is NaN or Inf. */
import { attention, type Case } from "../case.js";

export const sequences: Case[] = [
  attention("padded/k", "per-entry key counts (flash-attention #2374: NaN past seqused_k)", [4, 1, 128, 8, 8, 64], {
    lengthsK: [32, 64, 96, 48],
  }),
  attention("padded/k-causal", "bottom-right alignment follows each entry's length", [4, 9, 70, 2, 1, 16], {
    lengthsK: [70, 9, 5, 33],
    causal: true,
  }),
  attention("padded/k-0-1", "no key, one key", [3, 5, 20, 2, 1, 16], { lengthsK: [0, 1, 20] }),
  attention("padded/q", "per-entry query counts", [3, 12, 20, 2, 1, 16], { lengthsQ: [0, 1, 12], causal: true }),
  attention("padded/both", "both, skewed", [4, 40, 90, 4, 2, 24], {
    lengthsQ: [40, 3, 0, 17],
    lengthsK: [90, 0, 44, 17],
    causal: true,
  }),
  attention("padded/both/f16", "both, skewed", [4, 40, 90, 4, 2, 64], {
    lengthsQ: [1, 40, 16, 15],
    lengthsK: [65, 64, 63, 90],
    causal: true,
    types: "f16",
  }),
  attention("padded/top-left", "lengths with top-left alignment", [2, 12, 20, 2, 1, 16], {
    lengthsQ: [12, 5],
    lengthsK: [4, 20],
    causal: true,
    align: "top-left",
  }),
  attention("padded/offset-window", "lengths with an explicit offset and a window", [2, 12, 40, 2, 1, 16], {
    lengthsQ: [12, 5],
    lengthsK: [40, 21],
    queryOffset: [5, 30],
    window: [6, 1],
  }),
  attention("padded/decode", "one query over skewed caches", [5, 1, 300, 4, 1, 32], {
    lengthsK: [300, 1, 0, 129, 64],
    types: "f16",
  }),
  attention(
    "padded/tail-65",
    "one key in the last tile, NaN behind it (flash-attention #1395)",
    [1, 3, 128, 2, 1, 64],
    { lengthsK: [65], types: "f16" },
  ),

  attention("packed/both", "packed queries and keys", [3, 7, 20, 4, 2, 16], {
    packedQ: [7, 1, 4],
    packedK: [20, 3, 11],
    causal: true,
  }),
  attention("packed/zero-lengths", "sequences of length 0, ratio 9/3 (flash-attention #1537)", [4, 1, 5, 9, 3, 16], {
    packedQ: [0, 1, 0, 1],
    packedK: [0, 3, 0, 5],
  }),
  attention("packed/zero-q", "segments without queries (flash-attention #2562)", [4, 60, 60, 2, 1, 16], {
    packedQ: [0, 0, 60, 41],
    packedK: [5, 0, 60, 41],
    causal: true,
  }),
  attention("packed/no-keys", "a segment with queries and no key", [3, 5, 9, 2, 1, 16], {
    packedQ: [5, 3, 2],
    packedK: [9, 0, 2],
  }),
  attention("packed/skewed", "one long sequence among short ones", [6, 150, 150, 4, 2, 32], {
    packedQ: [1, 150, 2, 1, 33, 5],
    packedK: [1, 150, 2, 64, 65, 5],
    causal: true,
    types: "bf16",
  }),
  attention("packed/window-sinks", "with a window and sinks", [3, 50, 50, 4, 2, 16], {
    packedQ: [50, 20, 1],
    packedK: [50, 20, 40],
    window: [7, 0],
    sinks: [0, 1, 2, 3],
    causal: true,
  }),
  attention("packed/alibi", "distances within each sequence", [3, 9, 20, 4, 2, 16], {
    packedQ: [9, 4, 1],
    packedK: [9, 20, 7],
    alibi: "standard",
  }),
  attention("packed/bias", "a bias as large as the longest sequence", [3, 9, 20, 4, 2, 16], {
    packedQ: [9, 4, 1],
    packedK: [9, 20, 7],
    bias: { type: "f32", perBatch: true, perHead: true, fill: "normal" },
  }),
  attention("packed/mask", "a mask as large as the longest sequence", [3, 9, 20, 4, 2, 16], {
    packedQ: [9, 4, 1],
    packedK: [9, 20, 7],
    mask: { perBatch: true, perHead: false, fill: "random" },
  }),
  attention("packed/top-left", "packed with top-left alignment", [2, 9, 12, 2, 1, 16], {
    packedQ: [9, 4],
    packedK: [5, 12],
    causal: true,
    align: "top-left",
  }),
  attention("packed/offset", "packed with explicit offsets", [2, 9, 12, 2, 1, 16], {
    packedQ: [9, 4],
    packedK: [5, 12],
    causal: true,
    queryOffset: [-3, 6],
  }),
  attention("packed/q-over-padded", "packed queries over a padded cache", [4, 9, 50, 4, 2, 32], {
    packedQ: [1, 9, 0, 3],
    lengthsK: [50, 20, 5, 3],
    causal: true,
  }),
  attention("packed/q-over-padded/full", "packed queries over full caches", [2, 9, 33, 4, 2, 32], {
    packedQ: [2, 9],
    types: "f16",
  }),
  attention("packed/k-only", "packed keys under padded queries", [3, 6, 20, 2, 1, 16], {
    packedK: [20, 0, 7],
    causal: true,
  }),
  attention("packed/one-token-each", "a decode batch as packed queries", [5, 1, 130, 8, 2, 32], {
    packedQ: [1, 1, 1, 1, 1],
    packedK: [130, 1, 64, 65, 2],
    causal: true,
    types: "f16",
  }),

  ...[16, 64, 128, 256].flatMap((size) => [
    attention(`paged/${size}`, "lengths around a page's end, ids shuffled", [5, 1, size * 2 + 1, 4, 2, 32], {
      lengthsK: [size - 1, size, size + 1, size * 2, 0],
      pages: { size },
      types: "f16",
    }),
    attention(`paged/${size}/chunk`, "a chunk of queries over pages", [2, 19, size * 2 + 7, 4, 2, 16], {
      lengthsK: [size + 3, size * 2 + 7],
      pages: { size },
      causal: true,
      level: size > 64 ? "full" : "quick",
    }),
  ]),
  attention("paged/1", "pages of one key", [2, 3, 12, 2, 1, 16], {
    lengthsK: [12, 5],
    pages: { size: 1 },
    causal: true,
  }),
  attention("paged/48", "a page size that is no power of two", [2, 3, 200, 2, 1, 16], {
    lengthsK: [200, 95],
    pages: { size: 48 },
    causal: true,
  }),
  attention("paged/shared", "two sequences share a prefix", [3, 2, 64, 4, 2, 16], {
    lengthsK: [50, 64, 33],
    pages: { size: 16, share: 2 },
    causal: true,
  }),
  attention("paged/packed-q", "packed queries over pages", [4, 9, 70, 4, 2, 32], {
    packedQ: [9, 0, 1, 4],
    lengthsK: [70, 16, 33, 4],
    pages: { size: 16 },
    causal: true,
  }),
  attention("paged/window", "pages left of the window are NaN", [2, 3, 200, 4, 2, 32], {
    lengthsK: [200, 130],
    pages: { size: 16 },
    window: [20, 0],
    causal: true,
    types: "f16",
  }),
  attention("paged/offset", "an explicit offset over pages", [2, 5, 60, 2, 1, 16], {
    lengthsK: [60, 31],
    pages: { size: 16 },
    queryOffset: [12, 26],
    causal: true,
  }),
  attention("paged/mask", "a mask over whole pages", [2, 5, 40, 2, 1, 16], {
    lengthsK: [40, 21],
    pages: { size: 16 },
    mask: { perBatch: true, perHead: false, fill: "random" },
  }),
  attention("paged/bias-alibi-cap", "with the rest", [2, 5, 40, 4, 2, 16], {
    lengthsK: [40, 21],
    pages: { size: 16 },
    bias: { type: "f16", perBatch: false, perHead: true, fill: "normal" },
    alibi: "standard",
    softcap: 8,
    sinks: [0, 1, 2, 3],
  }),
  ...["bf16", "f8_e4m3", "q8_0", "q4_0"].map((kv) =>
    attention(`paged/${kv}`, "pages of every cache type", [3, 2, 80, 4, 2, 64], {
      lengthsK: [80, 33, 1],
      pages: { size: 16 },
      causal: true,
      types: `f16/${kv}`,
      cacheScales: true,
    }),
  ),
  attention("paged/q8_0-q4_0", "pages of two types", [2, 1, 130, 4, 1, 128], {
    lengthsK: [130, 63],
    pages: { size: 64 },
    types: "f32/q8_0/q4_0",
  }),
];
