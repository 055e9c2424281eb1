/** Cases whose point is where the tensors lie; every other case runs in all layouts too. */
import { attention, type Case } from "../case.js";

export const layoutCases: Case[] = [
  attention("layout/repeat-batch", "K and V shared by the batch: stride 0", [3, 7, 40, 4, 2, 16], {
    repeat: { k: [0], v: [0] },
    causal: true,
  }),
  attention("layout/repeat-heads", "KV heads expanded from one", [2, 7, 40, 4, 4, 16], { repeat: { k: [2], v: [2] } }),
  attention("layout/repeat-rows", "every key is the same row", [1, 7, 70, 4, 2, 16], { repeat: { k: [1], v: [1] } }),
  attention("layout/repeat-q", "queries expanded over batch, rows and heads", [2, 9, 40, 4, 2, 16], {
    repeat: { q: [0, 1, 2] },
    causal: true,
  }),
  attention(
    "layout/repeat-k-only",
    "K expanded, V not: strides of one aren't those of the other",
    [2, 9, 70, 4, 2, 24],
    { repeat: { k: [0] }, types: "f16" },
  ),
  attention("layout/repeat-v-only", "V expanded, K not (FlagAttention #45)", [2, 9, 70, 4, 2, 24], {
    repeat: { v: [0] },
    types: "f16",
  }),
  attention("layout/repeat-q8_0", "expanded blocks", [2, 3, 40, 4, 2, 64], {
    repeat: { k: [0], v: [2] },
    types: "f16/q8_0/q4_0",
  }),
  attention("layout/repeat-decode", "one query, expanded cache", [3, 1, 140, 4, 2, 32], {
    repeat: { k: [0], v: [0] },
    types: "f16",
  }),
  attention(
    "layout/qkv-mqa",
    "q, k and v split off one buffer, 16 heads on 1 (TransformerEngine #1195)",
    [1, 65, 65, 16, 1, 64],
    { types: "f16", causal: true },
  ),
  attention(
    "layout/decode-out",
    "an output with strides of its own, few queries (FlagGems #5235)",
    [1, 1, 300, 8, 8, 64],
  ),
  attention("layout/f16-odd", "rows off every alignment", [2, 20, 77, 3, 3, 40], { types: "f16", causal: true }),
  attention("layout/f8-odd", "bytes off every alignment", [2, 5, 77, 2, 2, 33], { types: "bf16/f8_e4m3" }),
];
