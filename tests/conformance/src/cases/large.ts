/** Offsets and counts that 32 bits can't hold. Memory is reserved, hardly touched; marked long where it is gigabytes. */
import { attention, type Case } from "../case.js";

const beyond = 2 ** 31 + 64;

export const large: Case[] = [
  attention(
    "large/batch-65536",
    "B is more than 65,535 (flashinfer #3125; flash-attention #1500)",
    [65536, 1, 2, 1, 1, 8],
    { types: "f16", level: "full", layouts: ["sliced"] },
  ),
  attention("large/batch-heads", "B x H is more than 65,535", [2100, 1, 2, 32, 8, 8], {
    types: "f16",
    level: "full",
    layouts: ["sliced"],
  }),
  attention("large/page-id", "a page id past 65,535 with pages of 16 (vllm #50427)", [2, 1, 40, 2, 1, 8], {
    types: "f16",
    lengthsK: [40, 17],
    pages: { size: 16, firstPage: 65540 },
    level: "full",
    layouts: ["sliced"],
  }),
  attention("large/k-stride", "K's slices lie 2^31 elements apart (pytorch #190857)", [2, 3, 40, 2, 1, 16], {
    types: "f16",
    spread: { k: beyond },
    level: "long",
  }),
  attention("large/v-stride", "V's slices lie 2^31 elements apart", [2, 3, 40, 2, 1, 16], {
    types: "f16",
    spread: { v: beyond },
    level: "long",
  }),
  attention("large/q-out-stride", "q and out lie 2^31 elements apart (flash-attention #1311)", [2, 3, 40, 2, 1, 16], {
    types: "f16",
    spread: { q: beyond, out: beyond },
    level: "long",
  }),
  attention("large/lse-stride", "lse's slices lie 2^31 elements apart", [2, 3, 40, 2, 1, 16], {
    types: "f16",
    spread: { lse: beyond },
    level: "long",
  }),
  attention("large/mask-stride", "a mask's slices lie 2^33 bytes apart (llama.cpp #24912)", [2, 3, 40, 2, 1, 16], {
    types: "f16",
    mask: { perBatch: true, perHead: false, fill: "random" },
    spread: { mask: 2 ** 33 },
    level: "long",
  }),
  attention("large/bias-stride", "a bias' slices lie 2^31 elements apart", [2, 3, 40, 2, 1, 16], {
    types: "f16",
    bias: { type: "f16", perBatch: true, perHead: false, fill: "normal" },
    spread: { bias: beyond },
    level: "long",
  }),
  attention("large/k-f8-stride", "8-bit K, slices 2^32 elements apart", [2, 1, 140, 2, 1, 16], {
    types: "f16/f8_e4m3",
    spread: { k: 2 ** 32 + 5, v: 2 ** 31 + 7 },
    level: "long",
  }),
  attention("large/page-stride", "pages lie so far apart that page x stride passes 2^31", [2, 1, 40, 2, 1, 16], {
    types: "f16",
    lengthsK: [40, 17],
    pages: { size: 16 },
    spread: { k: 2 ** 30 + 16, v: 2 ** 30 + 32 },
    level: "long",
  }),
];
