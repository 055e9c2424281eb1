import { afterAll, describe, expect, it } from "vitest";
import type { Engine } from "../src/engine.js";
import type { HostTensor } from "../src/host-tensor.js";
import { oracle } from "../src/oracle.js";
import { checkAgainstOracle } from "../src/tolerance.js";
import { B, cases, D, Dv, H, Hkv, k, pages, q, Sk, Sq, v } from "./cases.js";
import { numbers, random, reference, tensor } from "./support.js";

const next = random(77);
const engine: Engine = await reference();
afterAll(() => engine.dispose());

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
