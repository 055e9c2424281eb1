/** Scale, soft cap, ALiBi, bias and sinks. */
import { attention, type Case } from "../case.js";

const floats = ["f32", "f16", "bf16"] as const;
const broadcast = [
  [true, true],
  [true, false],
  [false, true],
  [false, false],
] as const;
const fills = ["normal", "minus-infinity", "lowest", "minus-1e4", "highest"] as const;

export const scores: Case[] = [
  ...[0.5, -0.25, -1, 0, 2 ** -20, 2].map((scale) =>
    attention(
      `scale/${scale}`,
      "any finite scale: negative turns the maximum round, 0 makes the mean",
      [1, 9, 40, 2, 1, 16],
      { scale, causal: scale < 0 },
    ),
  ),
  attention("scale/-0.5/one", "negative scale, one query", [2, 1, 140, 4, 2, 32], { scale: -0.5, types: "f16" }),
  ...[0.5, 1, 5, 20, 50].flatMap((softcap) => [
    attention(`softcap/${softcap}`, "s = cap tanh(s / cap)", [1, 9, 40, 2, 1, 16], { softcap, input: "sharp" }),
    attention(`softcap/${softcap}/causal`, "cap, then mask", [1, 30, 30, 2, 1, 16], {
      softcap,
      causal: true,
      input: "sharp",
    }),
  ]),
  attention("softcap/leak", "a cap applied after the mask leaks key 1 (flash-attention PR #1025)", [1, 2, 2, 1, 1, 8], {
    softcap: 1,
    causal: true,
    input: "steps",
  }),
  attention("softcap/one", "one query", [2, 1, 140, 4, 2, 32], { softcap: 5, input: "sharp" }),
  attention("softcap/bias", "cap, then bias", [1, 9, 40, 2, 1, 16], {
    softcap: 3,
    bias: { type: "f32", perBatch: true, perHead: true, fill: "normal" },
  }),
  attention("softcap/sixty", "tanh of a huge score is 1", [1, 9, 40, 2, 1, 64], {
    softcap: 30,
    input: "sixty",
    types: "f16",
  }),

  ...[1, 2, 4, 8, 12, 20].flatMap((h) => [
    attention(
      `alibi/heads-${h}`,
      "published slopes, the interleave rule for counts like 12 (mlx #343)",
      [1, 20, 33, h, 1, 16],
      { alibi: "standard", causal: true },
    ),
    attention(`alibi/heads-${h}/both-sides`, "|distance| without causality", [1, 20, 33, h, 1, 16], {
      alibi: "standard",
      level: "full",
    }),
  ]),
  attention("alibi/one", "one query over many keys", [2, 1, 300, 12, 4, 32], { alibi: "standard", types: "f16" }),
  attention(
    "alibi/head-offset",
    "slopes are input: those of another rank's heads (flashinfer #1606)",
    [1, 9, 20, 4, 2, 16],
    { alibi: [0.0625, 0.03125, 0.015625, 0.0078125] },
  ),
  attention("alibi/negative", "a slope may be negative or 0", [1, 9, 20, 3, 1, 16], { alibi: [-0.25, 0, 0.5] }),
  attention("alibi/offset", "distance counts from i + offset", [2, 6, 40, 2, 1, 16], {
    alibi: [0.5, 0.25],
    queryOffset: [10, 33],
    causal: true,
  }),
  attention("alibi/top-left", "distance with offset 0", [1, 6, 40, 2, 1, 16], {
    alibi: [0.5, 0.25],
    align: "top-left",
  }),
  attention("alibi/lengths", "offset comes from each entry's lengths", [3, 6, 40, 2, 1, 16], {
    alibi: [0.5, 0.25],
    lengthsK: [40, 7, 20],
  }),

  ...floats.flatMap((type) =>
    broadcast.map(([perBatch, perHead]) =>
      attention(
        `bias/${type}/${perBatch ? "b" : "1"}${perHead ? "h" : "1"}`,
        "bias of every type and broadcast",
        [2, 9, 21, 4, 2, 16],
        {
          bias: { type, perBatch, perHead, fill: "normal" },
        },
      ),
    ),
  ),
  ...fills.flatMap((fill) =>
    floats.flatMap((type) => [
      attention(`bias/${fill}/${type}`, "-inf hides, a large finite bias does not", [1, 12, 70, 2, 1, 16], {
        bias: { type, perBatch: false, perHead: false, fill },
        input: "coarse",
        scale: 1,
      }),
      attention(`bias/${fill}/${type}/one`, "the same, one query", [2, 1, 140, 2, 1, 16], {
        bias: { type, perBatch: true, perHead: false, fill },
        input: "coarse",
        scale: 1,
        level: "full",
      }),
    ]),
  ),
  ...[8, 16, 32, 17].map((sk) =>
    attention(`bias/keys-${sk}`, "rows of a bias that are not aligned (onnxruntime #28376)", [1, 9, sk, 2, 1, 32], {
      bias: { type: "f16", perBatch: false, perHead: true, fill: "normal" },
      types: "f16",
    }),
  ),
  attention("bias/causal-window", "bias under causality and a window", [2, 40, 60, 2, 1, 16], {
    causal: true,
    window: [12, -1],
    bias: { type: "bf16", perBatch: true, perHead: true, fill: "minus-infinity" },
    types: "bf16",
  }),
  attention(
    "bias/lowest-causal",
    "rows where every key has the lowest bias are averages of what is visible",
    [1, 12, 12, 1, 1, 16],
    {
      causal: true,
      bias: { type: "f32", perBatch: false, perHead: false, fill: "lowest" },
    },
  ),
  attention("bias/repeated", "an expanded bias", [3, 5, 20, 4, 2, 16], {
    bias: { type: "f32", perBatch: true, perHead: true, fill: "normal" },
    repeat: { bias: [0, 1] },
  }),
  attention("bias/alibi", "both", [1, 9, 30, 2, 1, 16], {
    alibi: [0.25, 0.125],
    bias: { type: "f32", perBatch: false, perHead: true, fill: "normal" },
  }),

  attention("sinks/plain", "exp(sink) joins the denominator only", [2, 9, 30, 4, 2, 16], { sinks: [0, 1, -2, 3] }),
  attention("sinks/large", "a sink above every score, and one below", [1, 9, 30, 3, 1, 16], {
    sinks: [50, -80, 8],
    causal: true,
  }),
  attention("sinks/one", "one query", [2, 1, 140, 4, 1, 32], { sinks: [0.5, 1, -2, 3], types: "f16" }),
  attention("sinks/empty", "no visible key: out 0, lse = sink", [2, 6, 3, 2, 1, 16], {
    sinks: [1.5, -4],
    causal: true,
  }),
  attention("sinks/no-keys", "Sk 0: out 0, lse = sink", [1, 6, 0, 2, 1, 16], { sinks: [1.5, -4] }),
  attention("sinks/lengths", "a row past its length has no sink: lse -inf", [3, 6, 12, 2, 1, 16], {
    sinks: [1.5, -4],
    lengthsQ: [6, 0, 2],
    lengthsK: [0, 5, 12],
  }),
  attention("sinks/lengths/f16", "the same through kernels of 16 bits", [3, 30, 40, 2, 1, 64], {
    types: "f16",
    sinks: [1.5, -4],
    lengthsQ: [30, 0, 17],
    lengthsK: [0, 5, 12],
  }),
  attention("sinks/softcap-window", "with everything else", [1, 30, 50, 2, 1, 16], {
    sinks: [1, 2],
    softcap: 4,
    window: [9, 0],
    causal: true,
    types: "bf16",
  }),
];
