import { describe, expect, it } from "vitest";
import { encode } from "../src/codec.js";
import { oracle, oracleAsync } from "../src/oracle.js";
import { checkAgainstOracle } from "../src/tolerance.js";
import { numbers, random, readSafetensors, tensor } from "./support.js";

const f32 = (values: readonly number[], shape: readonly number[]) => ({ data: Float32Array.from(values), shape });

describe("the oracle by hand", () => {
  it("two keys, one query", () => {
    const q = f32([1, 0], [1, 1, 1, 2]);
    const k = f32([1, 0, 0, 1], [1, 2, 1, 2]);
    const v = f32([10, 20], [1, 2, 1, 1]);
    const { out, lse } = oracle({ q, k, v, scale: 1 });
    const e = Math.E;
    expect(out[0]).toBeCloseTo((10 * e + 20) / (e + 1), 12);
    expect(lse[0]).toBeCloseTo(Math.log(e + 1), 12);
  });

  it("scale defaults to 1/sqrt(D), and may be negative", () => {
    const q = f32([2, 0, 0, 0], [1, 1, 1, 4]);
    const k = f32([1, 0, 0, 0], [1, 1, 1, 4]);
    const v = f32([7], [1, 1, 1, 1]);
    expect(oracle({ q, k, v }).lse[0]).toBe(1);
    expect(oracle({ q, k, v, scale: -3 }).lse[0]).toBe(-6);
  });

  it("caps, then biases, then masks, then adds the sink", () => {
    const q = f32([3], [1, 1, 1, 1]);
    const k = f32([1, 2], [1, 2, 1, 1]);
    const v = f32([1, 1000], [1, 2, 1, 1]);
    const cap = (s: number) => 2 * Math.tanh(s / 2);
    const s0 = Math.exp(cap(3) + 0.5);
    const s1 = Math.exp(cap(6) - 0.25);
    const sink = Math.exp(0.75);
    const { out, lse } = oracle({ q, k, v, scale: 1, softcap: 2, bias: f32([0.5, -0.25], [1, 2]), sinks: [0.75] });
    expect(out[0]).toBeCloseTo((s0 + 1000 * s1) / (s0 + s1 + sink), 10);
    expect(lse[0]).toBeCloseTo(Math.log(s0 + s1 + sink), 12);
    const masked = oracle({ q, k, v, scale: 1, softcap: 2, mask: [true, false] });
    expect(masked.out[0]).toBe(1);
  });

  it("ALiBi counts the distance from the query's own position", () => {
    const q = f32([0, 0], [1, 2, 1, 1]);
    const k = f32([0, 0, 0], [1, 3, 1, 1]);
    const v = f32([1, 0, 0], [1, 3, 1, 1]);
    const { lse } = oracle({ q, k, v, alibiSlopes: [0.5] });
    const sum = (distances: number[]) => Math.log(distances.reduce((s, d) => s + Math.exp(-0.5 * d), 0));
    expect(lse[0]).toBeCloseTo(sum([1, 0, 1]), 12);
    expect(lse[1]).toBeCloseTo(sum([2, 1, 0]), 12);
  });

  it("a finite bias is never a mask, -infinity always is", () => {
    const q = f32([1], [1, 1, 1, 1]);
    const k = f32([1, 1], [1, 2, 1, 1]);
    const v = f32([2, 4], [1, 2, 1, 1]);
    const least = -3.4028234663852886e38;
    expect(oracle({ q, k, v, bias: f32([least, least], [1, 2]) }).out[0]).toBe(3);
    expect(oracle({ q, k, v, bias: f32([-1e4, -1e4], [1, 2]) }).out[0]).toBe(3);
    const hidden = oracle({ q, k, v, bias: f32([Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY], [1, 2]) });
    expect([hidden.out[0], hidden.lse[0]]).toEqual([0, Number.NEGATIVE_INFINITY]);
  });

  it("a row that sees nothing is 0 and -infinity, with a sink 0 and the sink", () => {
    const q = f32([1, 1], [1, 1, 2, 1]);
    const empty = { data: new Float32Array(0), shape: [1, 0, 1, 1] };
    expect(oracle({ q, k: empty, v: empty })).toEqual({
      out: new Float64Array(2),
      lse: new Float64Array(2).fill(Number.NEGATIVE_INFINITY),
    });
    expect([...oracle({ q, k: empty, v: empty, sinks: [1, -2] }).lse]).toEqual([1, -2]);
  });

  it("layout bhsd is the same numbers in another order", () => {
    const next = random(3);
    const [B, S, H, D] = [2, 3, 2, 4];
    const q = numbers(B * S * H * D, next);
    const swap = (x: Float32Array) => {
      const y = new Float32Array(x.length);
      for (let b = 0; b < B; b++)
        for (let s = 0; s < S; s++)
          for (let h = 0; h < H; h++)
            for (let d = 0; d < D; d++) y[((b * H + h) * S + s) * D + d] = x[((b * S + s) * H + h) * D + d]!;
      return y;
    };
    const one = oracle({
      q: f32([...q], [B, S, H, D]),
      k: f32([...q], [B, S, H, D]),
      v: f32([...q], [B, S, H, D]),
      causal: true,
    });
    const swapped = f32([...swap(q)], [B, H, S, D]);
    const other = oracle({ q: swapped, k: swapped, v: swapped, causal: true, layout: "bhsd" });
    expect(Float32Array.from(other.out)).toEqual(swap(Float32Array.from(one.out)));
    expect(other.lse).toEqual(one.lse);
  });
});

describe("the oracle on real data", () => {
  const file = readSafetensors(new URL("../../../examples/data/kjv-qkv.safetensors", import.meta.url));
  for (let layer = 0; layer < 6; layer++) {
    it(`agrees with an independent float64 run, layer ${layer}`, () => {
      const half = (name: string) => {
        const { bytes, shape } = file.get(`layer${layer}.${name}`)!;
        return { data: new Uint16Array(bytes.buffer), dtype: "f16" as const, shape: [1, ...shape] };
      };
      const floats = (name: string) => new Float32Array(file.get(`layer${layer}.${name}`)!.bytes.buffer);
      const { out, lse } = oracle({ q: half("q"), k: half("k"), v: half("v"), causal: true });
      const worst = (got: Float64Array, expected: Float32Array) =>
        got.reduce((most, x, i) => Math.max(most, Math.abs(x - expected[i]!) / Math.max(1, Math.abs(x))), 0);
      expect(worst(out, floats("out"))).toBeLessThan(1e-7);
      expect(worst(lse, floats("lse"))).toBeLessThan(1e-7);
    });
  }
});

describe("tolerances", () => {
  const next = random(11);
  const q = tensor([1, 8, 2, 16], next, "f16");
  const k = tensor([1, 8, 2, 16], next, "f16");
  const v = tensor([1, 8, 2, 16], next, "f16");
  const options = { q, k, v, causal: true };

  it("accepts the oracle rounded to storage and refuses one wrong value", () => {
    const truth = oracle(options);
    const data = encode(truth.out, "f16");
    const good = checkAgainstOracle({
      options,
      out: { data, dtype: "f16", shape: q.shape },
      lse: Float32Array.from(truth.lse),
    });
    expect(good).toMatchObject({ ok: true });
    expect(good.bound).toBeLessThan(2e-3);
    data[37]! ^= 1 << 6;
    const bad = checkAgainstOracle({ options, out: { data, dtype: "f16", shape: q.shape } });
    expect(bad).toMatchObject({ ok: false, worst: { index: 37 } });
    const lse = Float32Array.from(truth.lse);
    lse[3]! += 1e-4;
    const badLse = checkAgainstOracle({ options, out: encode(truth.out, "f16"), lse });
    expect(badLse).toMatchObject({ ok: false, worstLse: { index: 3 } });
  });

  it("float32 is held to 2e-6 of the largest value", () => {
    const f = { q: tensor([1, 4, 1, 8], next), k: tensor([1, 4, 1, 8], next), v: tensor([1, 4, 1, 8], next) };
    const truth = oracle(f);
    const off = Float64Array.from(truth.out);
    const check = checkAgainstOracle({ options: f, out: off });
    expect(check.maxError).toBe(0);
    expect(check.bound).toBeCloseTo(2e-6 * check.largestValue, 12);
    off[5]! += check.bound * 1.01;
    expect(checkAgainstOracle({ options: f, out: off }).ok).toBe(false);
  });

  it("A is the largest sum of magnitudes over visible pairs, scaled", () => {
    const q = f32([3, 4], [1, 1, 1, 2]);
    const k = f32([1, -1, 100, 100], [1, 2, 1, 2]);
    const v = f32([-5, 9], [1, 2, 1, 1]);
    const options = { q, k, v, scale: -0.5, mask: [true, false] };
    const check = checkAgainstOracle({ options, out: [-5] });
    expect(check).toMatchObject({ ok: true, magnitude: 3.5, largestValue: 5 });
    expect(check.bound).toBeCloseTo(1e-5, 12);
    const far = checkAgainstOracle({ options: { ...options, scale: -8 }, out: [-5] });
    expect(far.bound).toBeCloseTo(2e-6 * 5 * 7, 12);
  });

  it("NaN agrees with NaN only, an infinity with itself only", () => {
    const q = f32([1], [1, 1, 1, 1]);
    const options = { q, k: q, v: f32([Number.NaN], [1, 1, 1, 1]) };
    expect(checkAgainstOracle({ options, out: [Number.NaN] }).ok).toBe(true);
    expect(checkAgainstOracle({ options, out: [0] })).toMatchObject({ ok: false, maxError: Number.POSITIVE_INFINITY });
    const infinite = { q, k: q, v: f32([Number.POSITIVE_INFINITY], [1, 1, 1, 1]) };
    expect(checkAgainstOracle({ options: infinite, out: [Number.POSITIVE_INFINITY] }).ok).toBe(true);
    expect(checkAgainstOracle({ options: infinite, out: [Number.NEGATIVE_INFINITY] }).ok).toBe(false);
    expect(checkAgainstOracle({ options: { q, k: q, v: q }, out: [Number.NaN] }).ok).toBe(false);
  });

  it("wants as many values as the options say", () => {
    expect(() => checkAgainstOracle({ options, out: [1, 2] })).toThrow(/out has 2 values; allowed: 256/);
  });
});

describe("long runs", () => {
  const next = random(5);
  const options = {
    q: tensor([1, 256, 4, 64], next),
    k: tensor([1, 256, 4, 64], next),
    v: tensor([1, 256, 4, 64], next),
  };

  it("tell how far they are and give the same", async () => {
    const shares: number[] = [];
    const result = await oracleAsync(options, { onProgress: (share) => shares.push(share) });
    expect(result).toEqual(oracle(options));
    expect(shares.at(-1)).toBe(1);
    expect(shares).toEqual([...shares].sort((a, b) => a - b));
  });

  it("stop with the signal's reason", async () => {
    const controller = new AbortController();
    const reason = new Error("enough");
    const run = oracleAsync(options, { onProgress: () => controller.abort(reason), signal: controller.signal });
    await expect(run).rejects.toBe(reason);
  });
});
