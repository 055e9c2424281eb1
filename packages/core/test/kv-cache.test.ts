import { afterAll, describe, expect, it } from "vitest";
import type { Backend, BackendBuffer, TensorDesc } from "../src/backend.js";
import { decode, encode } from "../src/codec.js";
import type { CacheDType } from "../src/dtype.js";
import { TesseraError } from "../src/error.js";
import type { HostKv, HostTensor } from "../src/host-tensor.js";
import type { KvCache } from "../src/kv-cache.js";
import { openEngineIn } from "../src/open-engine.js";
import { oracle } from "../src/oracle.js";
import { referenceBackend } from "../src/reference/index.js";
import { checkAgainstOracle } from "../src/tolerance.js";
import { random, reference, tensor, worldOf } from "./support.js";

const next = random(99);
const engine = await reference();
afterAll(() => engine.dispose());

const [B, Hq, Hkv, D] = [2, 4, 2, 32] as const;

/** Rows [from, to) of [B, S, H, D]. */
function rows(x: HostTensor, from: number, to: number): HostTensor {
  const [b, s, h, d] = x.shape as [number, number, number, number];
  const data = new Float32Array(b * (to - from) * h * d);
  for (let n = 0; n < b; n++)
    data.set((x.data as Float32Array).subarray((n * s + from) * h * d, (n * s + to) * h * d), n * (to - from) * h * d);
  return { data, shape: [b, to - from, h, d] };
}

/** What a cache of `dtype` makes of it. */
function asStored(x: HostTensor, dtype: CacheDType, scales?: readonly number[]): HostKv {
  const [, , h, d] = x.shape as [number, number, number, number];
  const scale = (i: number) => scales?.[Math.floor(i / d) % h] ?? 1;
  const values = Float32Array.from(x.data as Float32Array, (value, i) => value / scale(i));
  return { data: encode(values, dtype), dtype, shape: x.shape } as HostKv;
}

/** Memory of the cache full of NaN, so that whatever reads the unwritten shows. */
function poison(cache: KvCache): void {
  for (const part of [cache.view().k, cache.view().v]) {
    const buffer = part.desc.data as BackendBuffer;
    cache.owner.context.write(buffer, 0, new Uint8Array(buffer.bytes).fill(0xff));
  }
}

const full = { q: tensor([B, 20, Hq, D], next), k: tensor([B, 20, Hkv, D], next), v: tensor([B, 20, Hkv, D], next) };

const kinds: [
  string,
  { pageSize?: number } & (
    | { dtype: CacheDType | { k: CacheDType; v: CacheDType }; scales?: undefined }
    | { dtype: "f8_e4m3"; scales: { k: number[]; v: number[] } }
  ),
][] = [
  ["f32", { dtype: "f32" }],
  ["f32, paged", { dtype: "f32", pageSize: 4 }],
  ["f16", { dtype: "f16" }],
  ["bf16, paged", { dtype: "bf16", pageSize: 8 }],
  ["f8 with scales", { dtype: "f8_e4m3", scales: { k: [0.5, 2], v: [0.01, 1] } }],
  ["q8_0", { dtype: "q8_0" }],
  ["q4_0, paged", { dtype: "q4_0", pageSize: 4 }],
  ["q8_0 and q4_0", { dtype: { k: "q8_0", v: "q4_0" } }],
];

describe("prefill and decode over a cache", () => {
  it.each(kinds)("%s", async (_, kind) => {
    using cache = engine.kvCache({ batch: B, kvHeads: Hkv, headDim: D, capacity: 24, ...kind });
    poison(cache);
    const types = typeof kind.dtype === "string" ? { k: kind.dtype, v: kind.dtype } : kind.dtype;
    // 7 tokens, then chunks of 5 and 1 in the decode call itself, then by append alone.
    await cache.append({ k: rows(full.k, 0, 7), v: rows(full.v, 0, 7) });
    for (const [from, to] of [
      [7, 12],
      [12, 13],
    ] as const) {
      const q = rows(full.q, from, to);
      const result = await engine.decode({
        q,
        cache,
        k: rows(full.k, from, to),
        v: rows(full.v, from, to),
        causal: true,
        returnLse: true,
      });
      expect([...cache.lengths]).toEqual([to, to]);
      const options = {
        q,
        k: asStored(rows(full.k, 0, to), types.k, kind.scales?.k),
        v: asStored(rows(full.v, 0, to), types.v, kind.scales?.v),
        ...(kind.scales && { kScale: kind.scales.k, vScale: kind.scales.v }),
        causal: true,
      };
      expect(checkAgainstOracle({ options, ...result })).toMatchObject({ ok: true });
    }
    await cache.append({ k: rows(full.k, 13, 20), v: rows(full.v, 13, 20) });
    const { out } = await engine.decode({ q: rows(full.q, 19, 20), cache });
    const truth = oracle({
      q: rows(full.q, 19, 20),
      k: asStored(full.k, types.k, kind.scales?.k),
      v: asStored(full.v, types.v, kind.scales?.v),
      ...(kind.scales && { kScale: kind.scales.k, vScale: kind.scales.v }),
    });
    for (const [i, value] of (out.data as Float32Array).entries()) expect(value).toBeCloseTo(truth.out[i]!, 5);
  });

  it("sequences grow on their own: newLens and padding rows", async () => {
    using cache = engine.kvCache({ batch: B, kvHeads: Hkv, headDim: D, capacity: 10, dtype: "f32", pageSize: 3 });
    poison(cache);
    const poisoned = rows(full.k, 0, 4);
    (poisoned.data as Float32Array).fill(Number.NaN, 4 * Hkv * D + Hkv * D); // sequence 1 beyond its one token
    await engine.decode({ q: rows(full.q, 0, 4), cache, k: poisoned, v: poisoned, newLens: [4, 1], causal: true });
    expect([...cache.lengths]).toEqual([4, 1]);
    const { out, lse } = await engine.decode({
      q: rows(full.q, 4, 6),
      cache,
      k: rows(full.k, 4, 6),
      v: rows(full.v, 4, 6),
      newLens: [0, 2],
      causal: true,
      returnLse: true,
    });
    expect([...cache.lengths]).toEqual([4, 3]);
    // Sequence 0 had no query: zeros.
    expect((out.data as Float32Array).subarray(0, 2 * Hq * D).every((x) => x === 0)).toBe(true);
    expect(lse.data.subarray(0, 2 * Hq).every((x) => x === Number.NEGATIVE_INFINITY)).toBe(true);
    expect((out.data as Float32Array).subarray(2 * Hq * D).every((x) => Number.isFinite(x) && x !== 0)).toBe(true);
  });

  it("packed new tokens", async () => {
    using cache = engine.kvCache({ batch: 3, kvHeads: 1, headDim: 2, capacity: 4, dtype: "f32" });
    const x = { data: Float32Array.of(1, 2, 3, 4, 5, 6), shape: [3, 1, 2] };
    const { out } = await engine.decode({ q: x, cache, k: x, v: x, cuSeqLensQ: [0, 1, 1, 3], window: [0, 0] });
    expect([...cache.lengths]).toEqual([1, 0, 2]);
    expect([...out.data]).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("layout bhsd, and tensors in, tensors out", async () => {
    using cache = engine.kvCache({ batch: 1, kvHeads: 2, headDim: 4, capacity: 8, dtype: "f32" });
    const data = Float32Array.from({ length: 24 }, next);
    using bhsd = engine.tensor(data, { shape: [1, 2, 3, 4] });
    using bshd = bhsd.transpose(1, 2);
    const a = await engine.decode({ q: bhsd, cache, k: bhsd, v: bhsd, layout: "bhsd", causal: true });
    await cache.truncate([0]);
    const b = await engine.decode({ q: bshd, cache, k: bshd, v: bshd, causal: true });
    using turned = b.out.transpose(1, 2);
    expect(await a.out.read()).toEqual(await turned.read());
    expect(a.out.shape).toEqual([1, 2, 3, 4]);
  });
});

describe("rotary embedding", () => {
  const one = (data: number[]) => ({ data: Float32Array.from(data), shape: [1, 1, 1, data.length] });

  it("half and interleaved turn the pairs they say", async () => {
    for (const [pairing, expected] of [
      ["half", [Math.cos(3) - 3 * Math.sin(3), 2, Math.sin(3) + 3 * Math.cos(3), 4]],
      ["interleaved", [Math.cos(3) - 2 * Math.sin(3), Math.sin(3) + 2 * Math.cos(3), 3, 4]],
    ] as const) {
      using cache = engine.kvCache({ batch: 1, kvHeads: 1, headDim: 4, capacity: 2, dtype: "f32" });
      // Only the first pair turns by the position itself; a huge theta leaves the second alone.
      const rope = { pairing, theta: 1e30, positions: [3] };
      const { q } = await cache.append({ k: one([1, 2, 3, 4]), v: one([0, 0, 0, 0]), q: one([1, 2, 3, 4]), rope });
      for (const [i, x] of expected.entries()) expect(q.data[i]).toBeCloseTo(x, 5);
      const stored = await cache.view().k.read();
      for (const [i, x] of expected.entries()) expect((stored as Float32Array)[i]).toBeCloseTo(x, 5);
    }
  });

  it("positions count on from the cache, scaled, and leave dims beyond alone", async () => {
    using cache = engine.kvCache({ batch: 1, kvHeads: 1, headDim: 4, capacity: 8, dtype: "f32" });
    const zero = one([0, 0, 0, 0]);
    const rope = { pairing: "half", dims: 2, scale: 0.5 } as const;
    for (let position = 0; position < 3; position++) {
      const { q } = await cache.append({ k: zero, v: zero, q: one([1, 0, 5, 6]), rope });
      expect([...q.data].map((x) => Math.round(x * 1e5) / 1e5)).toEqual(
        [Math.cos(position / 2), Math.sin(position / 2), 5, 6].map((x) => Math.round(x * 1e5) / 1e5),
      );
    }
  });

  it("scores depend on distance only, and decode rotates as append does", async () => {
    const q = tensor([1, 1, 2, 8], next);
    const k = tensor([1, 1, 2, 8], next);
    const lses: number[] = [];
    for (const at of [0, 17]) {
      using cache = engine.kvCache({ batch: 1, kvHeads: 2, headDim: 8, capacity: 4, dtype: "f32" });
      const rope = (position: number) => ({ pairing: "interleaved" as const, positions: [[position]] });
      await cache.append({ k, v: k, rope: rope(at) });
      await cache.append({ k, v: k, rope: rope(at + 1) });
      const { lse } = await engine.decode({ q, cache, k, v: k, rope: rope(at + 5), returnLse: true });
      lses.push(lse.data[0]!);
    }
    expect(lses[0]).toBeCloseTo(lses[1]!, 5);
  });
});

describe("what doesn't fit", () => {
  const make = () => engine.kvCache({ batch: 2, kvHeads: 1, headDim: 4, capacity: 5, dtype: "f32", pageSize: 2 });
  const tokens = (n: number) => ({ k: tensor([2, n, 1, 4], next), v: tensor([2, n, 1, 4], next) });

  it("is refused before anything is written, and nothing is lost", async () => {
    using cache = make();
    await cache.append(tokens(4));
    const before = await cache.view().k.read();
    await expect(cache.append({ ...tokens(2), newLens: [1, 2] })).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringMatching(/sequence 1 holds 4 tokens and gets 2; allowed: a capacity of 5/),
    });
    await expect(engine.decode({ q: tensor([2, 2, 1, 4], next), cache, ...tokens(2) })).rejects.toThrow(
      /capacity of 5/,
    );
    expect([...cache.lengths]).toEqual([4, 4]);
    expect(await cache.view().k.read()).toEqual(before);
    await cache.append(tokens(1));
    expect([...cache.lengths]).toEqual([5, 5]);
  });

  it.each([
    [
      "heads",
      { k: tensor([2, 1, 2, 4], next), v: tensor([2, 1, 2, 4], next) },
      /k has shape \[2, 1, 2, 4\]; allowed, as \[B, S, H, D\]: \[2, S, 1, 4\]/,
    ],
    ["rows", { k: tensor([2, 1, 1, 4], next), v: tensor([2, 2, 1, 4], next) }, /v has shape .*\[2, 1, 1, 4\]/],
    ["batch", { k: tensor([1, 1, 1, 4], next), v: tensor([1, 1, 1, 4], next) }, /k has shape/],
    ["q without rope", { ...tokens(1), q: tensor([2, 1, 1, 4], next) }, /q is given without rope/],
    ["newLens", { ...tokens(1), newLens: [2, 0] }, /newLens\[0\] is 2; allowed: 0 to 1/],
    ["pairing", { ...tokens(1), rope: { pairing: "neox" } }, /rope\.pairing is "neox"; allowed: "interleaved", "half"/],
    [
      "odd dims",
      { ...tokens(1), rope: { pairing: "half", dims: 3 } },
      /rope\.dims is 3; allowed: even numbers from 2 to 4/,
    ],
    [
      "theta that float32 holds as 0",
      { ...tokens(1), rope: { pairing: "half", theta: 1e-46 } },
      /rope\.theta is 1e-46; .*1\.401298464324817e-45/,
    ],
    [
      "scale that float32 holds as 0",
      { ...tokens(1), rope: { pairing: "half", scale: -1e-46 } },
      /rope\.scale is -1e-46; .*1\.401298464324817e-45/,
    ],
    ["theta", { ...tokens(1), rope: { pairing: "half", theta: 0 } }, /rope\.theta is 0/],
    [
      "positions",
      { ...tokens(1), rope: { pairing: "half", positions: [1] } },
      /rope\.positions has 1 values; allowed: \[2, 1\]/,
    ],
    ["unknown", { ...tokens(1), rop: 1 }, /append has no option "rop"\. Did you mean rope\?/],
    ["both counts", { ...tokens(1), newLens: [1, 1], cuSeqLens: [0, 1, 2] }, /newLens and cuSeqLens are both given/],
  ])("append: %s", async (_, options, message) => {
    using cache = make();
    await expect(cache.append(options as never)).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringMatching(message),
    });
    expect([...cache.lengths]).toEqual([0, 0]);
    expect(cache.freePages).toBe(6);
  });

  it("a decode that fails gives its pages back", async () => {
    using cache = make();
    const q = tensor([2, 1, 1, 4], next);
    for (const [bad, error] of [
      [{ scale: Number.NaN }, { code: "invalid-argument" }],
      [{ kernel: "none" }, { code: "invalid-argument" }],
      [{ numSplits: 3 }, { code: "unsupported" }],
      [
        { newLens: [1, 1], seqLensQ: [1, 1] },
        { message: expect.stringMatching(/seqLensQ and newLens are both given/) },
      ],
      [{ signal: AbortSignal.abort() }, { name: "AbortError" }],
    ] as const) {
      await expect(engine.decode({ q, cache, ...tokens(1), ...bad })).rejects.toMatchObject(error);
      expect([...cache.lengths]).toEqual([0, 0]);
      expect(cache.freePages).toBe(6);
    }
  });

  it.each([
    ["dtype", { dtype: "f64" }, /dtype is "f64"; allowed: "f32"/],
    ["block", { dtype: "q8_0" }, /headDim is 4; allowed for q8_0: multiples of 32/],
    ["capacity", { capacity: -1 }, /capacity is -1/],
    ["pages alone", { pages: 4 }, /pages is 4 without pageSize/],
    ["scales", { scales: { k: [1] } }, /scales\.k is given, but k is stored as f32/],
    ["scale count", { dtype: "f8_e4m3", scales: { k: [1, 2] } }, /scales\.k has 2 values; allowed: 1/],
    ["scale 0", { dtype: "f8_e4m3", scales: { v: [0] } }, /scales\.v\[0\] is 0/],
    ["too large", { capacity: 0x7fffffff, headDim: 2 ** 30 }, /more than 2\^53 - 1 elements/],
    ["head dim", { headDim: 513 }, /headDim is 513; allowed on reference: 1 to 512, the largest of its kernels/],
    ["value dim", { valueDim: 514 }, /valueDim is 514; allowed on reference: 1 to 512/],
    ["dtype null", { dtype: null }, /dtype is null/],
    ["unknown", { kv_heads: 2 }, /Did you mean kvHeads\?/],
  ])("kvCache: %s", (_, options, message) => {
    const all = { batch: 2, kvHeads: 1, headDim: 4, capacity: 4, dtype: "f32", ...options };
    expect(() => engine.kvCache(all as never)).toThrow(message);
  });

  it("decode refuses an out in the memory of its new tokens", async () => {
    using cache = make();
    const q = tensor([2, 1, 1, 4], next);
    const { k, v } = tokens(1);
    await expect(engine.decode({ q, cache, k, v, out: v })).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringMatching(/out and v share memory/),
    });
    await expect(engine.decode({ q, cache, out: q })).rejects.toThrow(/out and q share memory/);
    expect([...cache.lengths]).toEqual([0, 0]);
  });

  it("decode names what is contradictory", async () => {
    using cache = make();
    const q = tensor([2, 1, 1, 4], next);
    await expect(engine.decode({ q, cache, rope: { pairing: "half" } } as never)).rejects.toThrow(
      /rope is given without k and v/,
    );
    await expect(engine.decode({ q } as never)).rejects.toThrow(/cache is undefined; required/);
    await expect(engine.decode({ q, cache, seqLensK: [1, 1] } as never)).rejects.toThrow(
      /decode has no option "seqLensK"/,
    );
  });
});

describe("a back end that fails", () => {
  const failing = async (name: "append" | "decode") => {
    let fail = true;
    const open: Backend["open"] = (options) => {
      const context = referenceBackend.open(options);
      const real = context[name].bind(context) as (...args: unknown[]) => Promise<void>;
      const boom = new TesseraError("device-error", "boom");
      return Object.assign(context, { [name]: (...args: unknown[]) => (fail ? Promise.reject(boom) : real(...args)) });
    };
    const engine = await openEngineIn(worldOf({ reference: { ...referenceBackend, open } }));
    const x = tensor([1, 2, 1, 4], next);
    const cache = engine.kvCache({ batch: 1, kvHeads: 1, headDim: 4, capacity: 8, dtype: "f32", pageSize: 2 });
    const act = (): Promise<unknown> =>
      name === "append" ? cache.append({ k: x, v: x }) : engine.decode({ q: x, cache, k: x, v: x });
    return {
      cache,
      act,
      mend: () => {
        fail = false;
      },
    };
  };

  it.each(["append", "decode"] as const)("in %s takes the append back", async (name) => {
    const { cache, act, mend } = await failing(name);
    await expect(act()).rejects.toThrow("boom");
    expect([...cache.lengths]).toEqual([0]);
    expect(cache.freePages).toBe(4);
    mend();
    await act();
    expect([...cache.lengths]).toEqual([2]);
  });

  it("under calls that build on it takes all of them back", async () => {
    const { cache, act, mend } = await failing("append");
    const calls = await Promise.allSettled([act(), act()]);
    expect(calls.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect([...cache.lengths]).toEqual([0]);
    expect(cache.freePages).toBe(4);
    mend();
    await act();
    expect([...cache.lengths]).toEqual([2]);
  });

  it("an aborted decode takes nothing from the one after it", async () => {
    using cache = engine.kvCache({ batch: 1, kvHeads: 1, headDim: 4, capacity: 8, dtype: "f32", pageSize: 2 });
    const x = tensor([1, 2, 1, 4], next);
    const aborted = engine.decode({ q: x, cache, k: x, v: x, signal: AbortSignal.abort("no") });
    const good = engine.decode({ q: x, cache, k: x, v: x });
    await expect(aborted).rejects.toBe("no");
    const { out } = await good;
    expect([...cache.lengths]).toEqual([2]);
    expect(cache.freePages).toBe(3);
    expect(checkAgainstOracle({ options: { q: x, k: x, v: x }, out: out as HostTensor }).ok).toBe(true);
  });

  it("the reference checks lengths and pages before it writes", async () => {
    const context = referenceBackend.open({ device: 0 });
    const desc = (data: Float32Array | Int32Array, shape: number[]): TensorDesc => {
      const strides = shape.map((_, i) => shape.slice(i + 1).reduce((n, x) => n * x, 1));
      return { data, byteOffset: 0, dtype: data instanceof Int32Array ? "i32" : "f32", shape, strides };
    };
    const cache = new Float32Array(8);
    const token = desc(Float32Array.of(1, 2), [2, 1, 1, 1]);
    const append = (lengths: number[], table?: number[]) =>
      context.append({
        k: token,
        v: token,
        cacheK: desc(cache, table ? [4, 2, 1, 1] : [2, 4, 1, 1]),
        cacheV: desc(cache, table ? [4, 2, 1, 1] : [2, 4, 1, 1]),
        lengths: desc(Int32Array.from(lengths), [2]),
        ...(table && { pageTable: desc(Int32Array.from(table), [2, 2]) }),
      });
    await expect(append([0, 4])).rejects.toThrow(
      /lengths\[1\] is 4 and 1 tokens are new; allowed: up to the capacity of 4/,
    );
    await expect(append([0, -1])).rejects.toThrow(/lengths\[1\] is -1/);
    await expect(append([0, 2], [0, 1, 2, 4])).rejects.toThrow(/pageTable\[1\]\[1\] is 4; allowed: 0 to 3/);
    expect([...cache]).toEqual(new Array(8).fill(0));
    await append([0, 2], [0, 9, 2, 3]);
    expect([...cache]).toEqual([1, 0, 0, 0, 0, 0, 2, 0]);
  });
});

describe("truncate and fork", () => {
  const values = async (cache: KvCache, n: number) => {
    const q = { data: new Float32Array(cache.batch * cache.headDim), shape: [cache.batch, 1, 1, cache.headDim] };
    const { out } = await engine.decode({ q, cache });
    return [...out.data].filter((_, i) => i % cache.headDim === 0).map((x) => Math.round(x * n * 1000) / 1000);
  };
  const token = (x: number) => ({
    k: { data: new Float32Array(2), shape: [1, 1, 1, 2] },
    v: { data: Float32Array.of(x, x), shape: [1, 1, 1, 2] },
  });

  for (const pageSize of [undefined, 1, 2, 4]) {
    it(`branches don't see each other, pageSize ${pageSize}`, async () => {
      using cache = engine.kvCache({
        batch: 1,
        kvHeads: 1,
        headDim: 2,
        capacity: 8,
        dtype: "f32",
        ...(pageSize ? { pageSize, pages: 24 } : { pageSize }),
      });
      poison(cache);
      for (const x of [1, 2, 4]) await cache.append(token(x));
      using fork = await cache.fork();
      using deep = await fork.fork();
      await Promise.all([
        cache.append(token(8)),
        fork.append(token(16)),
        fork.append(token(32)),
        deep.append(token(64)),
      ]);
      expect(await values(cache, 4)).toEqual([15]);
      expect(await values(fork, 5)).toEqual([55]);
      expect(await values(deep, 4)).toEqual([71]);
      await fork.truncate([1]);
      await fork.append(token(100));
      expect(await values(fork, 2)).toEqual([101]);
      expect(await values(cache, 4)).toEqual([15]);
      expect([...fork.lengths, ...cache.lengths]).toEqual([2, 4]);
    });
  }

  it("pages come back", async () => {
    const cache = engine.kvCache({ batch: 2, kvHeads: 1, headDim: 2, capacity: 8, dtype: "f16", pageSize: 2 });
    expect(cache.freePages).toBe(8);
    const x = tensor([2, 5, 1, 2], next);
    await cache.append({ k: x, v: x });
    expect(cache.freePages).toBe(2);
    const fork = await cache.fork();
    expect(cache.freePages).toBe(2);
    await fork.append({ k: tensor([2, 1, 1, 2], next), v: tensor([2, 1, 1, 2], next) });
    expect(cache.freePages).toBe(0);
    await expect(cache.append({ k: x, v: x, newLens: [2, 2] })).rejects.toMatchObject({
      code: "out-of-memory",
      message: expect.stringMatching(/0 of 8 pages free and 2 are needed.*kvCache more with pages/),
    });
    expect([...cache.lengths]).toEqual([5, 5]);
    await cache.truncate([2, 0]);
    expect(cache.freePages).toBe(2);
    fork.dispose();
    expect(cache.freePages).toBe(7);
    await expect(cache.truncate([3, 0])).rejects.toThrow(/lengths\[0\] is 3; allowed: 0 to 2/);
    const before = engine.bytesInUse;
    cache.dispose();
    cache.dispose();
    expect(engine.bytesInUse).toBeLessThan(before);
    await expect(cache.append({ k: x, v: x })).rejects.toThrow(/the cache was disposed/);
  });

  it("calls that aren't awaited keep their order", async () => {
    using cache = engine.kvCache({ batch: 1, kvHeads: 1, headDim: 2, capacity: 64, dtype: "f32", pageSize: 4 });
    const calls = Array.from({ length: 40 }, (_, i) => cache.append(token(i)));
    expect([...cache.lengths]).toEqual([40]);
    expect(await values(cache, 40)).toEqual([780]);
    await Promise.all(calls);
  });

  it("stored bits are the encoders' bits", async () => {
    for (const dtype of ["f16", "bf16", "f8_e4m3", "q8_0", "q4_0"] as const) {
      using cache = engine.kvCache({ batch: 1, kvHeads: 1, headDim: 32, capacity: 3, dtype });
      const x = tensor([1, 3, 1, 32], next, "f32", 100);
      await cache.append({ k: x, v: x });
      const bits = encode(x.data as Float32Array, dtype);
      expect(await cache.view().k.read()).toEqual(bits);
      expect(await cache.view().v.readFloat32()).toEqual(decode(bits as never, dtype));
    }
  });
});
