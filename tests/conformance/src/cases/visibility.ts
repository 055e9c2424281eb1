/** Causality, alignment, offsets and windows. */
import { attention, type Case } from "../case.js";

const align = ["bottom-right", "top-left"] as const;
const pairs: readonly [number, number][] = [
  [2, 5],
  [5, 2],
  [4, 12],
  [1, 9],
  [9, 1],
  [64, 65],
  [65, 64],
  [33, 100],
  [100, 33],
  [3, 130],
];
const windows: readonly [number, number][] = [
  [0, 0],
  [1, 0],
  [3, 0],
  [-1, 0],
  [0, -1],
  [-1, -1],
  [0, 3],
  [3, 3],
  [7, 2],
  [-1, 4],
  [4, -1],
  [63, 0],
  [64, 64],
  [1000, 1000],
];

export const visibility: Case[] = [
  ...pairs.flatMap(([sq, sk]) =>
    align.map((a) =>
      attention(
        `causal/${sq}x${sk}/${a}`,
        "Sq and Sk differ (flash-attention #282, #1778; pytorch #108108; sparkinfer #3)",
        [2, sq, sk, 2, 1, 16],
        {
          causal: true,
          align: a,
        },
      ),
    ),
  ),
  ...[
    [0, 0],
    [3, 7],
    [-2, 1],
    [-40, 40],
    [5, -1],
    [10, 28],
  ].map((queryOffset) =>
    attention(
      `offset/${queryOffset.join(",")}`,
      "an explicit offset for each entry, negative too",
      [2, 12, 40, 2, 1, 16],
      { causal: true, queryOffset },
    ),
  ),
  attention("offset/window", "an explicit offset moves a window", [2, 12, 40, 2, 1, 16], {
    queryOffset: [20, -3],
    window: [4, 2],
  }),
  attention(
    "offset/past-the-end",
    "queries beyond every key: a window sees nothing, causality all",
    [2, 5, 10, 2, 1, 16],
    { queryOffset: [30, 9], window: [4, 0] },
  ),
  attention("offset/chunk", "a chunk inside the cache (input_pos)", [1, 33, 200, 4, 2, 32], {
    causal: true,
    queryOffset: [100],
  }),
  ...windows.flatMap(([left, right]) => [
    attention(
      `window/${left},${right}`,
      "inclusive bounds, -1 is unbounded (transformers #39408: off by one between libraries)",
      [1, 20, 20, 2, 1, 16],
      { window: [left, right] },
    ),
    attention(`window/${left},${right}/causal`, "a window with causality", [1, 70, 90, 2, 1, 16], {
      window: [left, right],
      causal: true,
      level: "full",
    }),
    attention(`window/${left},${right}/one`, "a window, one query", [2, 1, 140, 2, 1, 16], {
      window: [left, right],
      level: "full",
    }),
  ]),
  attention("window/2-of-4", "W keys, self included, is left = W - 1", [1, 4, 4, 1, 1, 8], {
    window: [1, 0],
    causal: true,
  }),
  attention("window/long", "most tiles are left of the window, and NaN", [1, 64, 700, 2, 1, 32], {
    window: [30, 0],
    causal: true,
  }),
  attention("window/long/f16", "most tiles are left of the window, and NaN", [2, 3, 900, 4, 1, 64], {
    window: [100, 0],
    causal: true,
    types: "f16",
  }),
  attention("window/top-left", "rows past the last key see nothing", [1, 40, 10, 2, 1, 16], {
    window: [3, 3],
    align: "top-left",
  }),
  attention("window/negative-gap", "a window that lies before every key for the first queries", [1, 30, 12, 2, 1, 16], {
    window: [2, 0],
  }),
];
