/** What the table doesn't reach: the engine on an adapter, shared buffers, aborts, faults, a lost device. */
import { decode, type Engine, encode, openEngine, oracle, TesseraError } from "@tessera/core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { adapter, backendOfAdapter } from "./adapter.js";

const onAdapter = adapter !== "" && adapter !== "chromium";

const numbers = (count: number, seed: number) => {
  let state = seed;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
};

const lses = (...data: number[]) => ({ data: Float32Array.from(data), shape: [1, 1, data.length] });

const largest = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((most, x, i) => Math.max(most, Math.abs(x - b[i]!)), 0);

describe.runIf(onAdapter)("an engine on WebGPU", () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await openEngine({ backend: await backendOfAdapter() });
  });
  afterAll(() => engine.dispose());

  it("says what it is", () => {
    expect(engine.backend).toBe("webgpu");
    expect(engine.device.caps).toMatchObject({ async: true, hostMemory: false, graphs: false });
    expect(engine.device.caps.emulated === true).toBe(adapter !== "gpu");
    const usable = engine.kernels().filter((kernel) => kernel.usable);
    expect(usable.filter(({ name }) => name !== "prefill-matrix")).toHaveLength(6);
  });

  it.each(["f32", "f16", "q8_0", "q4_0"] as const)(
    "decodes over a %s cache as over its own contents, paged or not",
    async (dtype) => {
      const [heads, kvHeads, dim] = [4, 2, 32];
      for (const pageSize of [undefined, 16]) {
        const cache = engine.kvCache({
          batch: 2,
          kvHeads,
          headDim: dim,
          capacity: 64,
          dtype,
          ...(pageSize && { pageSize }),
        });
        const k = { data: numbers(2 * 33 * kvHeads * dim, 1), shape: [2, 33, kvHeads, dim] };
        const v = { data: numbers(2 * 33 * kvHeads * dim, 2), shape: [2, 33, kvHeads, dim] };
        await cache.append({ k, v });
        const q = { data: numbers(2 * heads * dim, 3), shape: [2, 1, heads, dim] };
        const { out } = await engine.decode({ q, cache, causal: true });
        const truth = oracle({ q, k, v, causal: true });
        const error = largest(out.data as Float32Array, truth.out);
        expect(error).toBeLessThan({ f32: 2e-6, f16: 5e-4, q8_0: 5e-3, q4_0: 0.1 }[dtype]);
        // It did quantise.
        if (dtype.startsWith("q")) expect(error).toBeGreaterThan(1e-5);
        expect([...cache.lengths]).toEqual([33, 33]);
        cache.dispose();
      }
    },
  );

  it.each(["prefill-portable", "decode-portable", "decode-stream-portable"])(
    "%s sums many equal values within fp32's bound",
    async (kernel) => {
      const stream = kernel.startsWith("decode-stream");
      const [queries, keys, x] = [stream ? 16 : 20, stream ? 3862 : 862, Math.fround(-2.162)];
      const of = (rows: number, value: number, dim = 3) => ({
        data: new Float32Array(rows * dim).fill(value),
        shape: [1, rows, 1, dim],
      });
      // 256 columns: the shortest chains, and so the most of them.
      for (const dim of [stream ? 8 : 3, 256]) {
        const v = of(keys, x, dim);
        const { out } = await engine.attention({
          q: of(queries, 0, stream ? 8 : 3),
          k: of(keys, 0, stream ? 8 : 3),
          v,
          kernel,
          numSplits: 1,
        });
        const worst = largest(out.data as Float32Array, new Float32Array(queries * dim).fill(x));
        expect(worst / Math.abs(x)).toBeLessThan(2e-6);
      }
    },
  );

  it("rescales what rows have when their maxima rise late", async () => {
    const [queries, keys, heads, dim] = [12, 200, 1, 16];
    const shape = (rows: number) => [1, rows, heads, dim];
    // Scores rise by 2.9 in base 2 a key, in steps that f16 holds.
    const q = {
      data: encode(new Float32Array(queries * dim).fill(1), "f16"),
      dtype: "f16",
      shape: shape(queries),
    } as const;
    const rising = Float32Array.from({ length: keys * dim }, (_, i) => Math.floor(i / dim) / 8);
    const k = { data: encode(rising, "f16"), dtype: "f16", shape: shape(keys) } as const;
    const v = { data: encode(numbers(keys * dim, 5), "f16"), dtype: "f16", shape: shape(keys) } as const;
    const truth = oracle({ q, k, v, scale: 1 });
    for (const { name } of engine.kernels().filter((kernel) => kernel.usable)) {
      const { out, lse } = await engine.attention({ q, k, v, scale: 1, kernel: name, returnLse: true });
      expect({ name, error: largest(decode(out.data as Uint16Array, "f16"), truth.out) < 1e-3 }).toEqual({
        name,
        error: true,
      });
      expect({ name, error: largest(lse!.data as Float32Array, truth.lse) < 1e-3 }).toEqual({ name, error: true });
    }
  });

  it("writes a result into the buffer of its inputs, and nothing beside it", async () => {
    const shape = [1, 8, 2, 16];
    const count = 8 * 2 * 16;
    const data = numbers(4 * count, 4);
    const all = engine.tensor(data, { shape: [4, 8, 2, 16] });
    const [q, k, v, out] = [0, 1, 2, 3].map((i) => all.slice(0, i, i + 1));
    await engine.attention({ q: q!, k: k!, v: v!, out: out!, causal: true });
    const after = (await all.read()) as Float32Array;
    expect(after.subarray(0, 3 * count)).toEqual(data.subarray(0, 3 * count));
    const host = (i: number) => ({ data: data.slice(i * count, (i + 1) * count), shape });
    const truth = oracle({ q: host(0), k: host(1), v: host(2), causal: true });
    expect(largest(after.subarray(3 * count), truth.out)).toBeLessThan(2e-6);
  });

  it("bytes at any offset come and go", async () => {
    const ones = engine.tensor(
      Uint16Array.from({ length: 6 }, (_, i) => 0x3c00 + i),
      { shape: [3, 2, 1], dtype: "f16" },
    );
    const twos = engine.tensor(
      Uint16Array.from({ length: 3 }, (_, i) => 0x4000 + i),
      { shape: [3, 1, 1], dtype: "f16" },
    );
    ones
      .slice(0, 1, 2)
      .slice(1, 1, 2)
      .copyFrom(twos.slice(0, 2, 3));
    expect([...((await ones.read()) as Uint16Array)]).toEqual([0x3c00, 0x3c01, 0x3c02, 0x4002, 0x3c04, 0x3c05]);
    expect([...((await ones.slice(0, 1, 2).slice(1, 1, 2).read()) as Uint16Array)]).toEqual([0x4002]);
  });

  it("an aborted call rejects with the signal's reason", async () => {
    const one = { data: new Float32Array(8), shape: [1, 1, 1, 8] };
    await expect(engine.attention({ q: one, k: one, v: one, signal: AbortSignal.abort("enough") })).rejects.toBe(
      "enough",
    );
  });

  it("refuses what it can't do, with the reason, as supports says", async () => {
    const wide = { data: new Float32Array(264), shape: [1, 1, 1, 264] };
    const options = { q: wide, k: wide, v: wide };
    expect(engine.supports(options)).toEqual({
      supported: false,
      code: "unsupported",
      reason: "a head dim is 264; allowed for webgpu: 1 to 256",
    });
    await expect(engine.attention(options)).rejects.toMatchObject({ code: "unsupported" });
    expect(() => engine.empty({ shape: [2 ** 40], dtype: "f32" })).toThrow(TesseraError);
  });

  it("a merge keeps a part's NaN, whichever part it is, and in its row only", async () => {
    const good = { out: { data: Float32Array.of(1, 2), shape: [1, 2, 1, 1] }, lse: lses(0, 0) };
    const bad = { out: { data: Float32Array.of(Number.NaN, 4), shape: [1, 2, 1, 1] }, lse: lses(Number.NaN, 0) };
    for (const parts of [
      [bad, good],
      [good, bad],
      [good, bad, good],
    ]) {
      const { out, lse } = await engine.merge(parts);
      const [first, second] = out.data as Float32Array;
      expect([first, lse.data[0]]).toEqual([Number.NaN, Number.NaN]);
      expect(second).toBeCloseTo(parts.length === 2 ? 3 : 8 / 3, 5);
    }
  });

  it("disposed memory is given back, and a disposed engine refuses", async () => {
    const own = await openEngine({ backend: await backendOfAdapter() });
    const before = own.bytesInUse;
    const tensor = own.empty({ shape: [1024], dtype: "f32" });
    expect(own.bytesInUse).toBe(before + 4096);
    tensor.dispose();
    expect(own.bytesInUse).toBe(before);
    own.dispose();
    await expect(own.synchronize()).rejects.toMatchObject({ code: "device-unavailable" });
  });
});

describe.runIf(onAdapter)("a lost device", () => {
  it("is a typed error at every call, and another engine works", async () => {
    const devices: GPUDevice[] = [];
    const backend = await backendOfAdapter(undefined, (device) => devices.push(device));
    const engine = await openEngine({ backend });
    const tensor = engine.tensor(Float32Array.of(1, 2), { shape: [2] });
    devices[0]!.destroy(); // as a driver's reset would end it, behind the engine's back
    await devices[0]!.lost;
    const lost = { code: "device-error", message: expect.stringMatching(/lost.*open another engine/) };
    await expect(tensor.read()).rejects.toMatchObject(lost);
    await expect(engine.synchronize()).rejects.toMatchObject(lost);
    const one = { data: Float32Array.of(1, 2), shape: [1, 1, 1, 2] };
    await expect(engine.attention({ q: one, k: one, v: one })).rejects.toMatchObject(lost);
    engine.dispose();
    const next = await openEngine({ backend });
    const { out } = await next.attention({ q: one, k: one, v: one });
    expect([...(out.data as Float32Array)]).toEqual([1, 2]);
    next.dispose();
  });
});
