import { afterAll, describe, expect, it } from "vitest";
import type { AttentionOptions } from "../src/attention-options.js";
import type { Engine } from "../src/engine.js";
import type { HostTensor } from "../src/host-tensor.js";
import { oracle } from "../src/oracle.js";
import { checkAgainstOracle } from "../src/tolerance.js";
import { numbers, random, reference, stored, tensor } from "./support.js";

type Options = AttentionOptions<HostTensor>;
const next = random(2024);
const engine: Engine = await reference();
afterAll(() => engine.dispose());

const [B, Sq, Sk, H, Hkv, D, Dv] = [2, 37, 71, 6, 2, 16, 12] as const;
const q = tensor([B, Sq, H, D], next);
const k = tensor([B, Sk, Hkv, D], next);
const v = tensor([B, Sk, Hkv, Dv], next);
const mask = { data: Uint8Array.from({ length: B * Sq * Sk }, () => (next() > 0.3 ? 1 : 0)), shape: [B, 1, Sq, Sk] };
const bias = tensor([1, H, Sq, Sk], next, "f16", 4);
(bias.data as Uint16Array).fill(0xfc00, 0, 2 * Sk); // two rows of -infinity

const pages = (dtype: "f32" | "q8_0" = "f32") => ({
  k: stored([12, 16, Hkv, 32], next, dtype),
  v: stored([12, 16, Hkv, 32], next, dtype),
  q: tensor([B, Sq, H, 32], next),
  pageTable: [
    [7, 2, 9],
    [4, 0],
  ],
  seqLensK: [41, 32],
});

const cases: Record<string, Options> = {
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

describe("the reference back end agrees with the oracle", () => {
  for (const [name, options] of Object.entries(cases)) {
    it(name, async () => {
      expect(engine.supports(options)).toEqual({ supported: true });
      const { out, lse } = await engine.attention({ ...options, returnLse: true });
      const check = checkAgainstOracle({ options, out, lse });
      expect(check).toMatchObject({ ok: true });
      // Far better than the bound asks: float64 against float64, rounded once.
      expect(check.maxError).toBeLessThanOrEqual(check.referenceError + 1e-6);
      expect(out.shape).toEqual(
        options.layout === "bhsd" ? [B, H, Sq, Dv] : [...options.q.shape.slice(0, -1), options.v.shape.at(-1)],
      );
    });
  }
});

describe("structure decides what is read", () => {
  it("keys that no query may see can hold anything", async () => {
    const poison = (source: HostTensor, rows: (b: number, j: number) => boolean) => {
      const [b, s, h, d] = source.shape as [number, number, number, number];
      const data = Float32Array.from(source.data as Float32Array);
      for (let i = 0; i < b * s; i++)
        if (rows(Math.floor(i / s), i % s)) data.fill(Number.NaN, i * h * d, (i + 1) * h * d);
      return { data, shape: source.shape };
    };
    const lengths = { seqLensK: [30, 64] };
    const beyond = (b: number, j: number) => j >= lengths.seqLensK[b]!;
    const clean = await engine.attention({ q, k, v, ...lengths, causal: true });
    const dirty = await engine.attention({
      q,
      k: poison(k as HostTensor, beyond),
      v: poison(v as HostTensor, beyond),
      ...lengths,
      causal: true,
    });
    expect(dirty.out.data).toEqual(clean.out.data);

    // Left of every window.
    const left = (_: number, j: number) => j < Sk - Sq - 4;
    const window: readonly [number, number] = [4, 0];
    const seen = await engine.attention({ q, k, v, window });
    const blind = await engine.attention({
      q,
      k: poison(k as HostTensor, left),
      v: poison(v as HostTensor, left),
      window,
    });
    expect(blind.out.data).toEqual(seen.out.data);
  });

  it("a NaN key hidden by the mask leaves no trace (pytorch #101967)", async () => {
    const one = { data: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8), shape: [1, 2, 1, 4] };
    const key = { data: Float32Array.of(1, 2, 3, 4, Number.NaN, 6, 7, 8), shape: [1, 2, 1, 4] };
    const { out } = await engine.attention({ q: one, k: key, v: one, mask: [true, false, true, false] });
    expect([...out.data]).toEqual([1, 2, 3, 4, 1, 2, 3, 4]);
  });

  it("a NaN value shows in the queries that see it and in no other", async () => {
    const x = { data: Float32Array.of(1, 1, 1), shape: [1, 3, 1, 1] };
    const value = { data: Float32Array.of(5, Number.NaN, 7), shape: [1, 3, 1, 1] };
    const { out } = await engine.attention({ q: x, k: x, v: value, window: [0, 0] });
    expect([...out.data]).toEqual([5, Number.NaN, 7]);
  });

  it("page entries beyond a length are never followed", async () => {
    const paged = pages();
    const table = { data: Int32Array.of(7, 2, 9, 4, 0, 2 ** 30), shape: [2, 3] };
    const { out } = await engine.attention({ ...paged, pageTable: table });
    expect(out.data).toEqual((await engine.attention(paged)).out.data);
  });
});

describe("small cases from elsewhere", () => {
  const f32 = (data: number[], shape: number[]) => ({ data: Float32Array.from(data), shape });

  it("all-false mask rows are 0 with lse -infinity (pytorch #103963)", async () => {
    const x = tensor([1, 8, 1, 8], next);
    const rows = Array.from({ length: 64 }, (_, i) => i < 32);
    const { out, lse } = await engine.attention({ q: x, k: x, v: x, mask: rows, returnLse: true });
    expect([...(out.data as Float32Array).subarray(32)].every((value) => value === 0)).toBe(true);
    expect([...lse.data.subarray(4)].every((value) => value === Number.NEGATIVE_INFINITY)).toBe(true);
    expect([...lse.data.subarray(0, 4)].every(Number.isFinite)).toBe(true);
  });

  it.each([
    [2, 5, [4, 5]],
    [5, 2, [0, 0, 0, 1, 2]],
    [4, 12, [9, 10, 11, 12]],
  ])("causal with %i queries and %i keys sees %j keys", async (sq, sk, counts) => {
    const q = { data: new Float32Array(sq), shape: [1, sq, 1, 1] };
    const k = { data: new Float32Array(sk), shape: [1, sk, 1, 1] };
    const { lse } = await engine.attention({ q, k, v: k, causal: true, returnLse: true });
    expect([...lse.data].map((x) => Math.round(Math.exp(x)))).toEqual(counts);
  });

  it("top-left is what it says (pytorch #108108)", async () => {
    const q = { data: new Float32Array(2), shape: [1, 2, 1, 1] };
    const k = { data: new Float32Array(5), shape: [1, 5, 1, 1] };
    const { lse } = await engine.attention({ q, k, v: k, causal: true, align: "top-left", returnLse: true });
    expect([...lse.data].map((x) => Math.round(Math.exp(x)))).toEqual([1, 2]);
  });

  it("softcap comes before the mask (flash-attention PR #1025)", async () => {
    const x = f32([1, 1], [1, 2, 1, 1]);
    const { out } = await engine.attention({ q: x, k: x, v: f32([1, 1000], [1, 2, 1, 1]), softcap: 1, causal: true });
    expect(out.data[0]).toBe(1);
  });

  it("softcap 0 is off and 5 is not (Megatron-LM PR #6590)", async () => {
    const at = async (softcap: number | undefined) => (await engine.attention({ q, k, v, scale: 9, softcap })).out.data;
    expect(await at(0)).toEqual(await at(undefined));
    expect(await at(5)).not.toEqual(await at(0));
  });

  it("a window of 2 keys is left = 1", async () => {
    const x = { data: new Float32Array(4), shape: [1, 4, 1, 1] };
    const { lse } = await engine.attention({ q: x, k: x, v: x, window: [1, 0], returnLse: true });
    expect([...lse.data].map((x) => Math.round(Math.exp(x)))).toEqual([1, 2, 2, 2]);
  });

  it("large scores stay finite (llama.cpp #6957)", async () => {
    const { encode } = await import("../src/codec.js");
    const row = (sign: number) => numbers(128, () => sign * 60);
    const data = encode([...row(1), ...row(-1)], "f16");
    const x = { data, shape: [1, 2, 1, 128], dtype: "f16" as const };
    const { out } = await engine.attention({ q: x, k: x, v: x });
    expect(out.data).toEqual(data);
  });

  it("zero-length sequences among others (flash-attention #1537)", async () => {
    const options = {
      q: tensor([2, 9, 8], next),
      k: tensor([8, 3, 8], next),
      v: tensor([8, 3, 8], next),
      cuSeqLensQ: [0, 0, 1, 1, 2],
      cuSeqLensK: [0, 0, 3, 3, 8],
    };
    const { out, lse } = await engine.attention({ ...options, returnLse: true });
    expect(checkAgainstOracle({ options, out, lse }).ok).toBe(true);
  });

  it("strided views read as what they are", async () => {
    // interleaved qkv, [B, S, 3, H, D]
    const [b, s, h, d] = [2, 10, 3, 8];
    const qkv = numbers(b * s * 3 * h * d, next);
    const part = (n: number) => ({
      data: qkv.subarray(n * h * d),
      shape: [b, s, h, d],
      strides: [s * 3 * h * d, 3 * h * d, d, 1],
    });
    const dense = (n: number) => {
      const data = new Float32Array(b * s * h * d);
      for (let r = 0; r < b * s; r++) data.set(qkv.subarray((r * 3 + n) * h * d, (r * 3 + n + 1) * h * d), r * h * d);
      return { data, shape: [b, s, h, d] };
    };
    const views = await engine.attention({ q: part(0), k: part(1), v: part(2), causal: true });
    const copies = await engine.attention({ q: dense(0), k: dense(1), v: dense(2), causal: true });
    expect(views.out.data).toEqual(copies.out.data);
    expect(Array.from(copies.out.data)).toEqual(
      Array.from(Float32Array.from(oracle({ q: part(0), k: part(1), v: part(2), causal: true }).out)),
    );
  });

  it("key strides and value strides are their own (FlagAttention #45)", async () => {
    const big = numbers(2 * 10 * 2 * 8, next);
    const every2nd = { data: big, shape: [1, 10, 2, 8], strides: [320, 32, 8, 1] };
    const dense = Float32Array.from({ length: 160 }, (_, i) => big[Math.floor(i / 16) * 32 + (i % 16)]!);
    const x = tensor([1, 10, 2, 8], next);
    const a = await engine.attention({ q: x, k: every2nd, v: x });
    expect(a.out.data).toEqual(
      (await engine.attention({ q: x, k: { data: dense, shape: [1, 10, 2, 8] }, v: x })).out.data,
    );
  });

  it("out with gaps keeps what lies between (FlagGems #5235)", async () => {
    const data = new Float32Array(4 * 32).fill(7);
    const x = tensor([1, 4, 2, 8], next);
    const { out } = await engine.attention({
      q: x,
      k: x,
      v: x,
      out: { data, shape: [1, 4, 2, 8], strides: [128, 32, 8, 1] },
    });
    expect(out.data).toBe(data);
    const dense = await engine.attention({ q: x, k: x, v: x });
    for (let i = 0; i < 4; i++) {
      expect(data.subarray(i * 32, i * 32 + 16)).toEqual(
        (dense.out.data as Float32Array).subarray(i * 16, i * 16 + 16),
      );
      expect([...data.subarray(i * 32 + 16, i * 32 + 32)].every((x) => x === 7)).toBe(true);
    }
  });

  it("runs are bit-identical, and a sequence's result is its own", async () => {
    const options = { q, k, v, causal: true, seqLensK: [40, 71] };
    const first = (await engine.attention(options)).out.data as Float32Array;
    for (let run = 0; run < 3; run++) expect((await engine.attention(options)).out.data).toEqual(first);
    const other = { data: Float32Array.from(k.data as Float32Array), shape: k.shape };
    other.data.fill(Number.NaN, 0, Sk * Hkv * D);
    const half = (first.length / 2) | 0;
    const changed = (await engine.attention({ ...options, k: other })).out.data as Float32Array;
    expect(changed.subarray(half)).toEqual(first.subarray(half));
  });
});
