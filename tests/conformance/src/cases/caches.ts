/** Appending to a cache, rotating, and decoding over it. */
import { append, type Case } from "../case.js";

const cacheTypes = ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"];
const base = { batch: 2, capacity: 40, heads: 4, kvHeads: 2, dim: 32, before: [0, 7], steps: [{ tokens: 3 }, { tokens: 1 }] };

export const caches: Case[] = [
  ...cacheTypes.flatMap((type) => [
    append(`append/${type}`, "exact conversion to the cache's type", { ...base, types: `f32/${type}` }),
    append(`append/${type}/paged`, "into pages", { ...base, types: `f16/${type}`, pages: { size: 16 } }),
    append(`append/${type}/rope`, "rotated, then converted", { ...base, types: `f32/${type}`, rope: { pairing: "half", theta: 10000 } }),
    append(`append/${type}/fused`, "append and attention in one call", { ...base, types: `f16/${type}`, fused: true }),
  ]),
  append("append/q8_0-q4_0", "K and V of two types", { ...base, types: "bf16/q8_0/q4_0", dim: 64 }),
  append("append/f16-f8", "K and V of two types, scaled", { ...base, types: "f32/f16/f8_e4m3", cacheScales: true }),
  append("append/f8-scales", "one scale a KV head, K and V apart", { ...base, types: "f16/f8_e4m3", cacheScales: true }),
  append("append/value-dim", "V's head dim differs", { ...base, types: "f32/f16", valueDim: 48 }),
  ...(["half", "interleaved"] as const).flatMap((pairing) => [
    append(`rope/${pairing}`, "this pairing, all dims, q rotated too", { ...base, types: "f32/f16", rope: { pairing, theta: 10000, rotateQ: "apart" } }),
    append(`rope/${pairing}/f16`, "16-bit input", { ...base, types: "f16", rope: { pairing, theta: 500000, rotateQ: "in-place" } }),
    append(`rope/${pairing}/dims`, "fewer dims than D", { ...base, types: "f32", dim: 40, rope: { pairing, theta: 10000, dims: 24, rotateQ: "apart" } }),
    append(`rope/${pairing}/positions`, "positions given", { ...base, types: "f32", rope: { pairing, theta: 10000, positions: true, rotateQ: "apart" } }),
    append(`rope/${pairing}/scale`, "positions scaled", { ...base, types: "f32/bf16", rope: { pairing, theta: 10000, scale: 0.25, rotateQ: "apart" } }),
    append(`rope/${pairing}/paged`, "into pages", { ...base, types: "f32/f16", pages: { size: 16 }, rope: { pairing, theta: 10000, positions: true } }),
    append(`rope/${pairing}/packed`, "packed new tokens, positions given", { ...base, types: "f32", steps: [{ tokens: 5, real: [5, 2] }], packed: true, rope: { pairing, theta: 10000, positions: true, rotateQ: "apart" } }),
    append(`rope/${pairing}/fused`, "rotated q attends in the same call", { ...base, types: "f32/f16", fused: true, rope: { pairing, theta: 10000, rotateQ: "apart" } }),
    append(`rope/${pairing}/q8_0`, "rotated into blocks", { ...base, types: "f16/q8_0", dim: 64, rope: { pairing, theta: 10000, rotateQ: "apart" } }),
    append(`rope/${pairing}/far`, "positions in the thousands", { ...base, capacity: 3010, before: [3000, 5], types: "f32/f16", dim: 16, level: "full", rope: { pairing, theta: 10000, rotateQ: "apart" } }),
  ]),
  append("append/ragged", "some new tokens are padding, and NaN (transformers PR #46765)", { ...base, batch: 3, before: [0, 7, 15], types: "f32/f16", steps: [{ tokens: 4, real: [4, 0, 2] }, { tokens: 2, real: [0, 2, 1] }] }),
  append("append/ragged/paged", "padding, into pages", { ...base, batch: 3, before: [0, 15, 16], types: "f16", pages: { size: 16 }, steps: [{ tokens: 4, real: [4, 0, 2] }, { tokens: 2, real: [1, 2, 1] }] }),
  append("append/ragged/rope", "padding with rotation", { ...base, batch: 3, before: [0, 7, 15], types: "f32", steps: [{ tokens: 4, real: [4, 0, 2] }], rope: { pairing: "half", theta: 10000, rotateQ: "apart" } }),
  append("append/packed", "packed new tokens", { ...base, batch: 3, before: [0, 7, 15], types: "f32/f16", steps: [{ tokens: 4, real: [4, 0, 2] }, { tokens: 2, real: [1, 1, 2] }], packed: true }),
  append("append/packed/paged", "packed new tokens into pages", { ...base, batch: 3, before: [0, 7, 15], types: "f32/q8_0", pages: { size: 16 }, steps: [{ tokens: 4, real: [4, 0, 2] }], packed: true }),
  append("append/page-edge", "across the end of a page", { ...base, capacity: 64, before: [15, 16], types: "f16", pages: { size: 16 }, steps: [{ tokens: 1 }, { tokens: 18 }] }),
  append("append/to-capacity", "up to the last slot", { ...base, capacity: 12, before: [8, 7], types: "f32", steps: [{ tokens: 4, real: [4, 4] }] }),
  append("append/prefill", "a whole prompt, then chunks", { ...base, capacity: 100, before: [0, 0], types: "f16", steps: [{ tokens: 65 }, { tokens: 20 }], decode: 5, rope: { pairing: "half", theta: 10000 } }),
  append("append/chunk-fused", "a chunk appended and attended in one call", { ...base, capacity: 100, before: [33, 64], types: "f32/f16", steps: [{ tokens: 20 }], fused: true }),
  append("append/nothing", "no new token", { ...base, types: "f32", before: [3, 7], steps: [{ tokens: 0 }] }),
  append("append/gqa-12", "ratio 12 over the cache", { ...base, heads: 24, kvHeads: 2, types: "f16/q8_0/q4_0", dim: 128 }),
];
