// What run.mjs measures. type: of k and v, and of q where that is a prefill; copies of k and v that take turns.
const grouped = { heads: 32, kvHeads: 8, dim: 128 };
const small = { heads: 8, kvHeads: 8, sq: 77, sk: 77, causal: false, type: "f32", atLeast: 1.2 };

export const cases = [
  { name: "512² causal f32", ...grouped, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.5 },
  { name: "1024² causal f32", ...grouped, sq: 1024, sk: 1024, causal: true, type: "f32", atLeast: 1.5 },
  { name: "4096² causal f32", ...grouped, sq: 4096, sk: 4096, causal: true, type: "f32", atLeast: 2 },
  { name: "1024² causal bf16", ...grouped, sq: 1024, sk: 1024, causal: true, type: "bf16", atLeast: 2.5 },
  { name: "1024² causal f16", ...grouped, sq: 1024, sk: 1024, causal: true, type: "f16" },
  { name: "1×4096 f16", ...grouped, sq: 1, sk: 4096, type: "f16", copies: 8, atLeast: 1.5 },
  { name: "1×16384 f16", ...grouped, sq: 1, sk: 16384, type: "f16", copies: 3, atLeast: 1.5 },
  { name: "1×16384 q8_0", ...grouped, sq: 1, sk: 16384, type: "q8_0", copies: 4, atLeast: 2 },
  { name: "1×16384 q4_0", ...grouped, sq: 1, sk: 16384, type: "q4_0", copies: 8, atLeast: 2 },
  { name: "512² causal f32 D 64", ...grouped, dim: 64, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.2 },
  { name: "512² causal f32 D 80", ...grouped, dim: 80, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.2 },
  { name: "512² causal f32 D 256", ...grouped, dim: 256, sq: 512, sk: 512, causal: true, type: "f32", atLeast: 1.2 },
  { name: "8 heads × 77² f32 D 64", ...small, dim: 64 },
  { name: "8 heads × 77² f32 D 80", ...small, dim: 80 },
  { name: "8 heads × 77² f32 D 256", ...small, dim: 256 },
];

/** The type of q. */
export const queryType = (c) => (c.sq > 1 ? c.type : "f32");

/** Untimed calls of a turn, and timed ones: more of those that take a fraction of a millisecond. */
export const callsOf = (c) => {
  if (c.sq >= 4096) return { before: 0, timed: 1 };
  return c.sq * c.sk < 1e4 ? { before: 10, timed: 20 } : { before: 2, timed: 4 };
};
