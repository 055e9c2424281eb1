/** Long enough that a pipeline of key tiles gets going: it has a part without edges, which short cases never reach. */
import { attention, type Case } from "../case.js";

export const tiles: Case[] = [
  attention("tiles/causal", "where the part without a mask ends differs by row", [1, 320, 704, 2, 1, 64], {
    causal: true,
    types: "f16",
  }),
  attention("tiles/causal/128", "the same in the other head dim, heads of a group", [1, 300, 640, 4, 2, 128], {
    causal: true,
    types: "bf16",
  }),
  attention("tiles/lengths", "keys end in a tile that is fetched ahead of its use", [2, 200, 640, 2, 1, 128], {
    lengthsK: [640, 449],
    types: "f16",
  }),
  attention("tiles/window", "the first tile has an edge too", [1, 290, 900, 1, 1, 64], {
    window: [450, 0],
    causal: true,
    types: "bf16",
  }),
  attention("tiles/scale", "negative, of which the maximum is the least product", [1, 70, 460, 2, 1, 64], {
    scale: -0.5,
    types: "f16",
  }),
  attention("tiles/scale/0", "zero: keys that are hidden stay so", [1, 70, 130, 2, 1, 64], {
    scale: 0,
    causal: true,
    types: "f16",
  }),
  attention(
    "tiles/scale/1e8",
    "scores so large that rounding them once more is off by whole exponents",
    [1, 70, 130, 2, 1, 64],
    {
      scale: 1e8,
      causal: true,
      types: "f16",
    },
  ),
  attention("tiles/paged", "keys in pages smaller than a tile, shuffled", [2, 70, 590, 2, 1, 64], {
    lengthsK: [590, 451],
    pages: { size: 16 },
    causal: true,
    types: "f16",
  }),
  attention("tiles/paged/128", "in pages larger than a tile, those left of the window NaN", [2, 40, 700, 4, 2, 128], {
    lengthsK: [700, 130],
    pages: { size: 128 },
    window: [500, 0],
    causal: true,
    types: "bf16",
  }),
  attention("tiles/paged/8", "in pages of eight keys", [1, 33, 390, 1, 1, 128], {
    lengthsK: [390],
    pages: { size: 8 },
    types: "f16",
  }),
  // Types and head dims for which back ends have kernels of their own.
  attention("tiles/paged/bf16", "in pages, of the other type and head dim", [1, 40, 330, 2, 1, 64], {
    lengthsK: [330],
    pages: { size: 16 },
    types: "bf16",
  }),
  attention("tiles/dim-256/bf16", "the largest head dim", [1, 40, 70, 2, 1, 256], { causal: true, types: "bf16" }),
  ...(["f16", "bf16"] as const).map((types) =>
    attention(`tiles/dim-256/softcap/${types}`, "the same with an option", [1, 20, 70, 2, 1, 256], {
      softcap: 20,
      types,
    }),
  ),
  ...(["f16/q4_0", "bf16/q4_0"] as const).flatMap((types) =>
    [128, 256].map((dim) =>
      attention(`tiles/dim-${dim}/${types.replace("/", "-")}`, "keys in blocks", [1, 3, 70, 4, 2, dim], { types }),
    ),
  ),
  attention("tiles/packed", "sequences of many tiles next to one of none", [3, 200, 500, 2, 2, 64], {
    packedQ: [200, 0, 130],
    packedK: [500, 0, 450],
    types: "f16",
    level: "full",
  }),
];
