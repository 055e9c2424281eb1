/** Element types, alone and mixed. */
import { attention, type Case } from "../case.js";

const plain = ["f32", "f16", "bf16"];
const cache = ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"];

export const elementTypes: Case[] = [
  ...plain.flatMap((q) =>
    cache.flatMap((k) =>
      cache.flatMap((v) => [
        attention(
          `types/${q}-${k}-${v}`,
          "every mix of q, K and V types (llama.cpp #28455: K q8_0 with V q4_0)",
          [1, 7, 45, 4, 2, 64],
          {
            types: `${q}/${k}/${v}`,
            causal: true,
            ...(k === "f8_e4m3" || v === "f8_e4m3" ? { cacheScales: true } : {}),
            level: k === v || (k === "q8_0" && v === "q4_0") || (q === "f32" && k === "f16") ? "quick" : "full",
          },
        ),
        ...(q === "f16" || k === v
          ? [
              attention(`types/${q}-${k}-${v}/one`, "the same, one query over many keys", [2, 1, 131, 4, 2, 64], {
                types: `${q}/${k}/${v}`,
                level: k === v ? "quick" : "full",
              }),
            ]
          : []),
      ]),
    ),
  ),
  ...plain.flatMap((q) =>
    plain
      .filter((out) => out !== q)
      .map((out) =>
        attention(`types/${q}-out-${out}`, "out of another type", [1, 9, 33, 2, 1, 40], {
          types: `${q}/${q}/${q}/${out}`,
        }),
      ),
  ),
  ...["f8_e4m3", "q8_0", "q4_0"].flatMap((kv) =>
    [32, 96, 128, 192, 256].map((d) =>
      attention(`types/${kv}/dim-${d}`, "quantised, head dims that are multiples of 32", [1, 3, 67, 2, 1, d], {
        types: `f16/${kv}`,
        level: d === 128 ? "quick" : "full",
      }),
    ),
  ),
  attention("types/f8_e4m3/dim-40", "8-bit keys with a head dim that is no multiple of 32", [1, 3, 67, 2, 1, 40], {
    types: "f16/f8_e4m3",
    cacheScales: true,
  }),
  ...[127, 128, 129, 256].map((sk) =>
    attention(
      `types/f8_e4m3/keys-${sk}`,
      "P in 8 bits saturates while the sum counts it in full (flash-attention #2577)",
      [1, 16, sk, 2, 1, 64],
      {
        types: "bf16/f8_e4m3",
        input: "sharp",
      },
    ),
  ),
  attention("types/q8_0-heads", "quantised with many heads, one query (ik_llama.cpp #92)", [2, 1, 130, 12, 3, 128], {
    types: "f32/q8_0/q4_0",
    level: "full",
  }),
  attention(
    "types/f16-q-large-norm",
    "finite f32 q and f16 K of large norm (llama.cpp #23577)",
    [1, 6, 40, 2, 1, 256],
    { types: "f32/f16", input: "large-norm" },
  ),
];
