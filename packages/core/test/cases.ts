import type { AttentionOptions } from "../src/attention-options.js";
import type { HostTensor } from "../src/host-tensor.js";
import { random, stored, tensor } from "./support.js";

export type Options = AttentionOptions<HostTensor>;
/** The same numbers in every file that imports this. */
const next = random(2024);
export const [B, Sq, Sk, H, Hkv, D, Dv] = [2, 37, 71, 6, 2, 16, 12] as const;
export const q = tensor([B, Sq, H, D], next);
export const k = tensor([B, Sk, Hkv, D], next);
export const v = tensor([B, Sk, Hkv, Dv], next);
const mask = { data: Uint8Array.from({ length: B * Sq * Sk }, () => (next() > 0.3 ? 1 : 0)), shape: [B, 1, Sq, Sk] };
const bias = tensor([1, H, Sq, Sk], next, "f16", 4);
(bias.data as Uint16Array).fill(0xfc00, 0, 2 * Sk); // two rows of -infinity

export const pages = (dtype: "f32" | "q8_0" = "f32") => ({
  k: stored([12, 16, Hkv, 32], next, dtype),
  v: stored([12, 16, Hkv, 32], next, dtype),
  q: tensor([B, Sq, H, 32], next),
  pageTable: [
    [7, 2, 9],
    [4, 0],
  ],
  seqLensK: [41, 32],
});

/** Every option, alone and together. */
export const cases: Record<string, Options> = {
  plain: { q, k, v },
  causal: { q, k, v, causal: true },
  "causal, top left": { q, k, v, causal: true, align: "top-left" },
  "causal, more queries than keys": {
    q: k as HostTensor,
    k: tensor([B, Sq, Hkv, D], next),
    v: tensor([B, Sq, Hkv, D], next),
    causal: true,
  },
  "query offsets": { q, k, v, causal: true, queryOffset: [3, -5] },
  window: { q, k, v, window: [9, 2] },
  "window, causal": { q, k, v, window: [5, -1], causal: true },
  "window to the right only": { q, k, v, window: [-1, 0], align: "top-left" },
  softcap: { q, k, v, softcap: 1.5, scale: 3 },
  "scale, negative": { q, k, v, scale: -0.7 },
  alibi: { q, k, v, causal: true, alibiSlopes: [0.5, 0.25, 0.125, 1, 2, 0] },
  mask: { q, k, v, mask },
  bias: { q, k, v, bias },
  "bias and mask and cap, causal": { q, k, v, bias, mask, softcap: 2, causal: true },
  sinks: { q, k, v, mask, sinks: [0, 1, -1, 30, -30, 2] },
  lengths: { q, k, v, causal: true, seqLensQ: [5, 37], seqLensK: [71, 0] },
  "lengths with offset": { q, k, v, causal: true, seqLensQ: [0, 20], seqLensK: [13, 70], queryOffset: [0, 50] },
  packed: {
    q: tensor([30, H, D], next),
    k: tensor([50, Hkv, D], next),
    v: tensor([50, Hkv, Dv], next),
    cuSeqLensQ: [0, 0, 11, 12, 30],
    cuSeqLensK: [0, 7, 7, 40, 50],
    causal: true,
    sinks: [0, 1, 2, 3, 4, 5],
  },
  "packed queries over padded keys": {
    q: tensor([30, H, D], next),
    k,
    v,
    cuSeqLensQ: [0, 11, 30],
    seqLensK: [71, 9],
    causal: true,
  },
  "padded queries over packed keys": {
    q,
    k: tensor([50, Hkv, D], next),
    v: tensor([50, Hkv, Dv], next),
    cuSeqLensK: [0, 41, 50],
    causal: true,
  },
  "packed with bias": {
    q: tensor([30, H, D], next),
    k: tensor([50, Hkv, D], next),
    v: tensor([50, Hkv, Dv], next),
    cuSeqLensQ: [0, 11, 30],
    cuSeqLensK: [0, 40, 50],
    bias: tensor([2, 1, 19, 40], next),
  },
  paged: { ...pages(), causal: true },
  "paged, quantised": { ...pages("q8_0"), causal: true },
  "bhsd layout": {
    q: tensor([B, H, Sq, D], next),
    k: tensor([B, Hkv, Sk, D], next),
    v: tensor([B, Hkv, Sk, Dv], next),
    layout: "bhsd",
    causal: true,
  },
  "f16 queries over f8 keys and q4_0 values": {
    q: tensor([1, 9, 4, 64], next, "f16"),
    k: stored([1, 33, 2, 64], next, "f8_e4m3"),
    v: stored([1, 33, 2, 32], next, "q4_0"),
    kScale: [0.5, 3],
  },
  bf16: {
    q: tensor([1, 9, 4, 64], next, "bf16"),
    k: tensor([1, 33, 2, 64], next, "bf16"),
    v: tensor([1, 33, 2, 64], next, "bf16"),
  },
  "f32 over f16": {
    q: tensor([1, 9, 4, 64], next),
    k: tensor([1, 33, 2, 64], next, "f16"),
    v: tensor([1, 33, 2, 64], next, "bf16"),
  },
  "ratio 7": { q: tensor([1, 5, 28, 8], next), k: tensor([1, 9, 4, 8], next), v: tensor([1, 9, 4, 8], next) },
  "no keys": { q, k: tensor([B, 0, Hkv, D], next), v: tensor([B, 0, Hkv, Dv], next), causal: true },
  "no queries": { q: tensor([B, 0, H, D], next), k, v, causal: true },
  "no batch": { q: tensor([0, 4, H, D], next), k: tensor([0, 4, Hkv, D], next), v: tensor([0, 4, Hkv, D], next) },
  "D = 512": { q: tensor([1, 2, 1, 512], next), k: tensor([1, 3, 1, 512], next), v: tensor([1, 3, 1, 512], next) },
  "D = 1": { q: tensor([1, 2, 1, 1], next), k: tensor([1, 3, 1, 1], next), v: tensor([1, 3, 1, 5], next) },
};
