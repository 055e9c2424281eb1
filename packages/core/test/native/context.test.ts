/** A context of a device that computes in the call (CPU): order, aborts, memory. The mock does as the kernel's name says. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { TensorDesc } from "../../src/backend.js";
import type { NativeContext } from "../../src/native/native-context.js";
import { counts, large, mockBackend, sleep, small, tensor } from "./support.js";

const backend = await mockBackend();
let context: NativeContext;

beforeEach(() => {
  context = backend.open({ device: 0 });
});
afterEach(async () => {
  context.dispose();
});

const bytes = (...values: number[]) => Uint8Array.from(values);

describe("what is asked and answered", () => {
  it("the device", () => {
    expect(context.device).toMatchObject({
      name: "mock device",
      caps: { async: false, hostMemory: true, graphs: true },
    });
  });
  it("kernels", () => {
    expect(context.kernels()[0]).toMatchObject({ name: "sleep", family: "decode", usable: true, alignment: 1 });
    expect(context.kernels()[0]).toMatchObject({ qDTypes: ["f32"], kvDTypes: ["f32", "q8_0"] });
  });
  it("supports", () => {
    expect(context.supports(large())).toEqual({ supported: true });
    expect(context.supports({ ...large(), softcap: 99 })).toEqual({
      supported: false,
      code: "unsupported",
      reason: "softcap 99 is not in the mock",
    });
  });
  it("explain: every scalar arrives", () => {
    const given = { causal: true, align: "top-left", window: [5, -1], scale: -0.5, numSplits: 3 } as const;
    const lse = tensor(new Float32Array(64 * 2), [1, 2, 64]);
    const offset: TensorDesc = { ...tensor(new Int32Array(1), [1]), dtype: "i32" };
    const all = { ...large(), ...given, maxSeqLenQ: 64, maxSeqLenK: 2 ** 40, queryOffset: offset, lse };
    expect(context.explain(all)).toEqual({
      kernel: "sleep",
      family: "prefill",
      tile: { q: 1, k: 2 },
      stages: 3,
      splits: 3,
      threads: 1,
      sharedBytes: 0,
      workspaceBytes: 3,
      notes: "align=2 window=5,-1 scale=-0.5 max=64,1099511627776 offset=1 lse=1",
      passedOver: [0, 1, 2].map((i) => ({ kernel: `other${i}`, reason: `reason ${i}` })),
    });
    expect(context.explain(large())).toMatchObject({
      workspaceBytes: 0,
      notes: "align=0 window=0,0 scale=0 max=0,0 offset=0 lse=0",
    });
  });
});

describe("memory", () => {
  it("goes in and out, and is counted", async () => {
    const buffer = context.alloc(8);
    expect(context.bytesInUse).toBe(8);
    context.write(buffer, 0, bytes(1, 2, 3, 4, 5, 6, 7, 8));
    context.fill(buffer, 1, 9, 2);
    const target = new Uint8Array(6);
    await context.read(buffer, 1, target);
    expect([...target]).toEqual([9, 9, 4, 5, 6, 7]);
    buffer.dispose();
    buffer.dispose();
    expect(context.bytesInUse).toBe(0);
  });
  it("more than the device has", () => {
    expect(() => context.alloc(2 ** 40)).toThrowError(
      expect.objectContaining({ code: "out-of-memory", message: "the mock device has 1 GiB" }),
    );
    expect(context.bytesInUse).toBe(0);
  });
  it.each([[-1], [0.5], [Number.NaN], [Number.POSITIVE_INFINITY], [2 ** 60], ["8"], [undefined]])(
    "alloc(%o) is refused",
    (size) => {
      expect(() => context.alloc(size as number)).toThrowError(expect.objectContaining({ code: "invalid-argument" }));
    },
  );
  it.each([
    [0, 9],
    [8, 1],
    [9, 0],
    [-1, 1],
    [2 ** 53, 1],
    [0.5, 1],
  ])("bytes at %d, %d of them, are not in a buffer of 8", async (offset, count) => {
    const buffer = context.alloc(8);
    const refused = expect.objectContaining({ code: "invalid-argument" });
    expect(() => context.write(buffer, offset, new Uint8Array(count))).toThrowError(refused);
    expect(() => context.fill(buffer, offset, 0, count)).toThrowError(refused);
    await expect(context.read(buffer, offset, new Uint8Array(count))).rejects.toEqual(refused);
  });
  it("an empty buffer is a buffer", async () => {
    const buffer = context.alloc(0);
    context.write(buffer, 0, new Uint8Array(0));
    await context.read(buffer, 0, new Uint8Array(0));
  });
  it("what is disposed, foreign or nothing at all is refused", async () => {
    const other = backend.open({ device: 0 });
    const [own, foreign] = [context.alloc(8), other.alloc(8)];
    expect(own.id).toBe(foreign.id); // ids are a context's own: nothing else tells these two apart
    const gone = context.alloc(8);
    gone.dispose();
    for (const wrong of [gone, foreign, {}, null, undefined, 5]) {
      const refused = expect.objectContaining({ code: "invalid-argument" });
      expect(() => context.write(wrong as never, 0, bytes(1))).toThrowError(refused);
      await expect(context.read(wrong as never, 0, bytes(1))).rejects.toEqual(refused);
      await expect(context.attention({ ...small(), q: tensor(wrong as never, [1, 1, 1, 2]) })).rejects.toEqual(refused);
    }
    await expect(context.read(context.alloc(1), 0, "x" as never)).rejects.toMatchObject({ code: "invalid-argument" });
    other.dispose();
  });
  it("a write while calls run is ordered after them, with the bytes of that moment", async () => {
    const problem = large("sleep:30");
    const buffer = context.alloc(problem.result.byteLength);
    const running = context.attention({ ...problem, out: tensor(buffer, [1, 64, 2, 8]) });
    const source = new Uint8Array(new Float32Array([7]).buffer);
    context.write(buffer, 4, source);
    source.fill(0);
    const target = new Float32Array(3);
    const [first] = await Promise.all([running, context.read(buffer, 0, new Uint8Array(target.buffer))]);
    expect(first).toBeUndefined();
    expect(target[0]).toBeGreaterThan(0); // the attention's
    expect(target[1]).toBe(7);
  });
  it("a write that fails later is told by the next read or synchronize, once", async () => {
    const buffer = context.alloc(1000);
    const running = context.attention(large("sleep:20"));
    context.write(buffer, 0, new Uint8Array(666));
    await running;
    await expect(context.synchronize()).rejects.toMatchObject({
      code: "device-error",
      message: "666 bytes can't be written",
    });
    await context.synchronize();
  });
  it("workspace is counted, kept for the next call, and released when it is large", async () => {
    await context.attention(large("workspace:1000"));
    expect(context.bytesInUse).toBe(65536);
    await context.attention(small("workspace:65536"));
    expect(context.bytesInUse).toBe(65536);
    await context.attention(large(`workspace:${65 * 2 ** 20}`));
    expect(context.bytesInUse).toBe(0);
    await expect(context.attention(large(`workspace:${2 ** 40}`))).rejects.toMatchObject({ code: "out-of-memory" });
    await context.attention(large());
  });
});

describe("descriptors that reach too far are refused before anything runs", () => {
  const wrong = (change: Partial<TensorDesc>) => ({ ...small(), q: { ...small().q, ...change } });
  it.each<[string, Partial<TensorDesc>]>([
    ["a byteOffset beyond the end", { byteOffset: 17 }],
    ["a byteOffset at the end of elements", { byteOffset: 16 }],
    ["a negative byteOffset", { byteOffset: -4 }],
    ["a byteOffset that is no number", { byteOffset: Number.NaN }],
    ["a view too short for its shape", { data: new Float32Array(3) }],
    ["a view without memory", { data: new Float32Array(0) }],
    ["rank 5", { shape: [1, 1, 1, 1, 4], strides: [4, 4, 4, 4, 1] }],
    ["fewer strides than dimensions", { strides: [4, 1] }],
    ["half a dimension", { shape: [1, 1, 1, 2.5] }],
    ["a dimension that is no number", { shape: [1, 1, 1, Number.NaN] }],
    ["a stride beyond 2^53", { strides: [1e300, 4, 4, 1] }],
    ["an unknown dtype", { dtype: "f64" as never }],
    ["no memory at all", { data: undefined as never }],
  ])("%s", async (_, change) => {
    await expect(context.attention(wrong(change))).rejects.toMatchObject({ code: "invalid-argument" });
  });
  it("a detached array", async () => {
    const data = new Float32Array(4);
    structuredClone(data, { transfer: [data.buffer] });
    await expect(context.attention(wrong({ data }))).rejects.toMatchObject({ code: "invalid-argument" });
  });
  it("a resizable array", async () => {
    const Resizable = ArrayBuffer as unknown as new (bytes: number, options: object) => ArrayBuffer;
    const data = new Float32Array(new Resizable(16, { maxByteLength: 64 }));
    await expect(context.attention(wrong({ data }))).rejects.toMatchObject({
      message: expect.stringContaining("resizable"),
    });
  });
  it("every kind of view, at its own offset", async () => {
    const whole = new Float32Array([9, 9, 1, 2, 3, 4]).buffer;
    const views = [Float32Array, Uint8Array, Uint16Array, Int32Array, DataView, Float64Array];
    for (const View of views) {
      const data = View === DataView ? new DataView(whole, 8) : new (View as typeof Uint8Array)(whole, 8);
      const problem = small();
      await context.attention({ ...problem, q: { ...problem.q, data } });
      expect(problem.result[1]).toBe(10);
    }
    const problem = small();
    await context.attention({ ...problem, q: { ...problem.q, data: new Uint8Array(whole), byteOffset: 8 } });
    expect(problem.result[1]).toBe(10);
  });
  it("merge of many parts, and of none", async () => {
    const part = (value: number) => tensor(new Float32Array(4).fill(value), [1, 1, 1, 4]);
    const lses = Array.from({ length: 500 }, () => tensor(new Float32Array(1), [1, 1, 1]));
    const outs = Array.from({ length: 500 }, (_, i) => part(i));
    const out = new Float32Array(4);
    await context.merge({ outs, lses, out: tensor(out, [1, 1, 1, 4]) });
    expect(out[0]).toBe(499);
    await expect(context.merge({ outs: [], lses: [], out: part(0) })).rejects.toMatchObject({
      code: "invalid-argument",
      message: "nothing to merge",
    });
    await expect(context.merge({ outs, lses: [], out: part(0) })).rejects.toMatchObject({ code: "invalid-argument" });
    await context.attention(small()); // the larger scratch array serves on
  });
  it("append and decode", async () => {
    const k = tensor(Float32Array.of(1, 2, 3, 4), [1, 1, 1, 4]);
    const cache = new Float32Array(8);
    const lengths: TensorDesc = { ...tensor(new Int32Array(1), [1]), dtype: "i32" };
    const append = { k, v: k, cacheK: tensor(cache, [1, 2, 1, 4]), cacheV: tensor(cache, [1, 2, 1, 4]), lengths };
    await context.append({ ...append, rope: { pairing: "half", theta: 10000 }, advance: true });
    expect([...cache.slice(0, 4)]).toEqual([1, 2, 3, 4]);
    const bad = { ...append, rope: { pairing: "half", theta: -1 } } as const;
    await expect(context.append(bad)).rejects.toMatchObject({ message: "rope.theta must be > 0" });
    cache.fill(0);
    const attention = small();
    await context.decode({ append, attention });
    expect(cache[3]).toBe(4);
    expect(attention.result[1]).toBe(4);
    await context.decode({ attention: small() });
    await expect(context.decode({ append: bad, attention: small() })).rejects.toMatchObject({
      code: "invalid-argument",
    });
  });
});

describe("order", () => {
  it("calls run one at a time, in call order, tiny ones too", async () => {
    const problems = [large("sleep:30"), small(), large("sleep:5"), large(), small()];
    const settled: number[] = [];
    await Promise.all(problems.map((problem, i) => context.attention(problem).then(() => settled.push(i))));
    const numbers = problems.map(({ result }) => result[0]!);
    expect(numbers).toEqual(numbers.map((_, i) => numbers[0]! + i));
    expect(settled).toEqual([0, 1, 2, 3, 4]);
  });
  it("the event loop goes on meanwhile", async () => {
    let ticks = 0;
    const timer = setInterval(() => ticks++, 1);
    await context.attention(large("sleep:60"));
    clearInterval(timer);
    expect(ticks).toBeGreaterThan(10);
  });
  it("a tiny call on an idle context is done at once", () => {
    const problem = small();
    void context.attention(problem);
    expect(problem.result[1]).toBe(4);
  });
  it("contexts don't wait for each other", async () => {
    const other = backend.open({ device: 0 });
    const slow = context.attention(large("sleep:300"));
    const started = performance.now();
    await other.attention(large());
    expect(performance.now() - started).toBeLessThan(200);
    other.dispose();
    await slow;
  });
  it("a failure is its own call's, with the back end's code and text", async () => {
    const codes = ["unsupported", "invalid-argument", "out-of-memory", "device-unavailable", "device-error"];
    for (const [i, code] of codes.entries()) {
      const failing = context.attention(large(`fail:${i + 1}`));
      const next = large();
      await Promise.all([
        expect(failing).rejects.toMatchObject({ code, message: "as ordered" }),
        context.attention(next),
      ]);
      expect(next.result[1]).toBe(1024);
      await expect(context.attention(small(`fail:${i + 1}`))).rejects.toMatchObject({ code, message: "as ordered" });
    }
    await expect(context.attention(large("fail:8"))).rejects.toMatchObject({
      code: "device-error",
      message: "defect of the back end mock: as ordered",
    });
  });
  it("synchronize waits for all of it", async () => {
    const problem = large("sleep:30");
    void context.attention(problem);
    await context.synchronize();
    expect(problem.result[1]).toBe(1024);
    await context.synchronize();
  });
});

describe("abort", () => {
  const reason = new Error("changed my mind");
  const aborted = () => AbortSignal.abort(reason);

  it("before the call: nothing starts", async () => {
    const before = counts(context).calls;
    await expect(context.attention(large(), aborted())).rejects.toBe(reason);
    await expect(context.decode({ attention: large() }, aborted())).rejects.toBe(reason);
    expect(counts(context).calls).toBe(before);
  });
  it("while queued: it never starts, and the rest goes on", async () => {
    const controller = new AbortController();
    const first = context.attention(large("sleep:50"));
    const queued = large();
    const second = context.attention(queued, controller.signal);
    const third = large();
    const last = context.attention(third);
    controller.abort(reason);
    await expect(second).rejects.toBe(reason);
    await Promise.all([first, last]);
    expect(queued.result[0]).toBe(0);
    expect(third.result[1]).toBe(1024);
  });
  it("while it runs: the back end is told", async () => {
    const controller = new AbortController();
    const running = context.attention(large("sleep:20000"), controller.signal);
    await sleep(30);
    controller.abort(reason);
    const started = performance.now();
    await expect(running).rejects.toBe(reason);
    expect(performance.now() - started).toBeLessThan(5000);
    await context.attention(large());
  });
  it("a back end that doesn't look finishes, then the promise is rejected", async () => {
    const controller = new AbortController();
    const running = context.attention(large("stubborn:60"), controller.signal);
    await sleep(10);
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
  });
  it("after it is done: nothing happens, and no listener is left", async () => {
    const controller = new AbortController();
    let listeners = 0;
    const { signal } = controller;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      listeners++;
      add(...args);
    };
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      listeners--;
      remove(...args);
    };
    await context.attention(large(), signal);
    expect(listeners).toBe(0);
    controller.abort(reason);
    await context.attention(large());
  });
});

describe("dispose", () => {
  it("while a call runs: it finishes with its memory, then everything is freed", async () => {
    const other = backend.open({ device: 0 });
    const problem = large("sleep:40");
    const q = context.alloc(problem.result.byteLength);
    const out = context.alloc(problem.result.byteLength);
    context.write(q, 0, new Uint8Array(new Float32Array(1024).fill(2).buffer));
    const running = context.attention({ ...problem, q: tensor(q, [1, 64, 2, 8]), out: tensor(out, [1, 64, 2, 8]) });
    const target = new Float32Array(2);
    const read = context.read(out, 0, new Uint8Array(target.buffer));
    q.dispose();
    out.dispose();
    context.dispose();
    context.dispose();
    await Promise.all([running, read]);
    expect(target[1]).toBe(2048);
    await expect.poll(() => counts(other)).toMatchObject({ contexts: 1, buffers: 0 });
    other.dispose();
  });
  it("calls that still run can be aborted", async () => {
    const controller = new AbortController();
    const running = context.attention(large("sleep:20000"), controller.signal);
    context.dispose();
    controller.abort(new Error("enough"));
    await expect(running).rejects.toThrowError("enough");
  });
  it("later calls say so", async () => {
    const buffer = context.alloc(4);
    context.dispose();
    buffer.dispose();
    const disposed = expect.objectContaining({ code: "invalid-argument", message: "the context is disposed" });
    expect(() => context.alloc(1)).toThrowError(disposed);
    expect(() => context.write(buffer, 0, bytes(1))).toThrowError(disposed);
    expect(() => context.kernels()).toThrowError(disposed);
    expect(() => context.supports(small())).toThrowError(disposed);
    await expect(context.attention(small())).rejects.toEqual(disposed);
    await expect(context.synchronize()).rejects.toEqual(disposed);
    await expect(context.read(buffer, 0, bytes(1))).rejects.toEqual(disposed);
    expect(context.bytesInUse).toBe(0);
  });
});
