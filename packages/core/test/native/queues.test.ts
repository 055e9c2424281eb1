/** A context of a device with queues (a GPU, played by the mock's thread): calls are enqueued where they are made. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { NativeContext } from "../../src/native/native-context.js";
import { counts, large, mockBackend, tensor } from "./support.js";

const backend = await mockBackend("-DMOCK_ASYNC");
let context: NativeContext;

beforeEach(() => {
  context = backend.open({ device: 0 });
});
afterEach(() => context.dispose());

const size = 64 * 2 * 8 * 4;

function onDevice(kernel?: string) {
  const problem = large(kernel);
  const [q, out] = [context.alloc(size), context.alloc(size)];
  const shape = [1, 64, 2, 8];
  return { ...problem, q: tensor(q, shape), k: tensor(q, shape), v: tensor(q, shape), out: tensor(out, shape) };
}

async function floats(buffer: unknown): Promise<Float32Array> {
  const target = new Float32Array(size / 4);
  await context.read(buffer as never, 0, new Uint8Array(target.buffer));
  return target;
}

describe("a device with queues", () => {
  it("the promise resolves at enqueue; read waits, in order", async () => {
    const problem = onDevice("sleep:80");
    context.write(problem.q.data as never, 0, new Uint8Array(new Float32Array(1024).fill(3).buffer));
    const started = performance.now();
    await context.attention(problem);
    expect(performance.now() - started).toBeLessThan(60);
    expect((await floats(problem.out.data))[1]).toBe(3072);
  });
  it("written bytes are those of the moment", async () => {
    const problem = onDevice("sleep:30");
    const source = new Uint8Array(new Float32Array(1024).fill(5).buffer);
    await context.attention(onDevice("sleep:20"));
    context.write(problem.q.data as never, 0, source);
    source.fill(0);
    await context.attention(problem);
    expect((await floats(problem.out.data))[1]).toBe(5120);
  });
  it("buffers stay until the work that uses them is done", async () => {
    const problem = onDevice("sleep:50");
    context.write(problem.q.data as never, 0, new Uint8Array(new Float32Array(1024).fill(1).buffer));
    context.fill(problem.out.data as never, 0, 0, size);
    const copy = onDevice();
    await context.attention(problem);
    (problem.q.data as { dispose(): void }).dispose();
    await context.attention({ ...copy, q: problem.out });
    (problem.out.data as { dispose(): void }).dispose();
    expect((await floats(copy.out.data))[1]).toBeGreaterThanOrEqual(1024);
    await context.synchronize();
    await expect.poll(() => context.bytesInUse).toBe(2 * size);
  });
  it("host arrays stay too, where the device can read them", async () => {
    const problem = large("sleep:50");
    await context.attention(problem);
    await context.synchronize();
    expect(problem.result[1]).toBe(1024);
  });
  it("faults surface at synchronize and read", async () => {
    await context.attention(onDevice("fault"));
    const broken = { code: "device-error", message: "the mock device broke" };
    await expect(context.synchronize()).rejects.toMatchObject(broken);
    await expect(floats(onDevice().out.data)).rejects.toMatchObject(broken);
  });
});

describe("marks", () => {
  it("tell the time between two points of the queue", async () => {
    const healthy = await mockBackend("-DMOCK_ASYNC", "-DMOCK_ANOTHER");
    const timed = healthy.open({ device: 0 });
    const at = tensor(timed.alloc(size), [1, 64, 2, 8]);
    const sleeping = (ms: number) => ({ q: at, k: at, v: at, out: at, kernel: `sleep:${ms}` });
    const started = performance.now();
    const marks = [timed.mark!()];
    for (const ms of [10, 40]) {
      await timed.attention(sleeping(ms));
      marks.push(timed.mark!());
    }
    expect(performance.now() - started).toBeLessThan(40); // nothing was waited for
    const [first, second, both] = await Promise.all([
      timed.elapsed!(marks[0]!, marks[1]!),
      timed.elapsed!(marks[1]!, marks[2]!),
      timed.elapsed!(marks[0]!, marks[2]!),
    ]);
    expect(first).toBeGreaterThanOrEqual(10);
    expect(second).toBeGreaterThanOrEqual(40);
    expect(both).toBeCloseTo(first + second, 3);

    for (const mark of marks) mark.dispose();
    marks[0]!.dispose();
    await timed.synchronize();
    const events = counts(timed).events!;
    for (let i = 0; i < 20; i++) timed.mark!().dispose(); // not reached yet
    await timed.synchronize();
    for (let i = 0; i < 20; i++) timed.mark!().dispose();
    await timed.synchronize();
    expect(counts(timed).events).toBeLessThanOrEqual(events + 40); // events are used again
    await expect(timed.elapsed!(marks[0]!, marks[1]!)).rejects.toMatchObject({ code: "invalid-argument" });
    timed.beginCapture!();
    expect(() => timed.mark!()).toThrowError(/capture/);
    timed.endCapture!().dispose();
    await timed.attention(sleeping(10));
    timed.mark!().dispose();
    timed.mark!();
    timed.dispose();
    expect(() => timed.mark!()).toThrowError(expect.objectContaining({ code: "invalid-argument" }));
    await expect.poll(() => counts(context).contexts).toBeLessThanOrEqual(2);
  });
  it("are of their context, and absent where there is no queue", async () => {
    const other = backend.open({ device: 0 });
    await expect(context.elapsed!(context.mark!(), other.mark!())).rejects.toMatchObject({ code: "invalid-argument" });
    other.dispose();
    const plain = (await mockBackend()).open({ device: 0 });
    expect([plain.mark, plain.elapsed]).toEqual([undefined, undefined]);
    plain.dispose();
  });
});

describe("copies between buffers", () => {
  const filled = (value: number) => new Uint8Array(new Float32Array(size / 4).fill(value).buffer);
  for (const flags of [[], ["-DMOCK_ASYNC", "-DMOCK_ANOTHER"]]) {
    it(`are ordered with the work around them ${flags.join(" ")}`, async () => {
      const device = (await mockBackend(...flags)).open({ device: 0 });
      const [a, b] = [device.alloc(size), device.alloc(size)];
      const target = new Float32Array(size / 4);
      device.write(a, 0, filled(7));
      device.write(b, 0, filled(1));
      const busy = device.attention(large("sleep:30"));
      device.copy(a, 8, b, 16, size - 16);
      device.write(a, 0, filled(9));
      a.dispose();
      await busy;
      await device.read(b, 0, new Uint8Array(target.buffer));
      expect([...target.subarray(0, 6)]).toEqual([1, 1, 1, 1, 7, 7]);
      expect(target.at(-1)).toBe(7);
      expect(() => device.copy(b, 4, b, 0, size)).toThrowError(/not inside the buffer/);
      device.dispose();
    });
  }
});

describe("graphs", () => {
  it("replay what was recorded, and keep its buffers", async () => {
    const healthy = await mockBackend("-DMOCK_ASYNC", "-DMOCK_ANOTHER");
    context.dispose();
    context = healthy.open({ device: 0 });
    const problem = onDevice();
    context.write(problem.q.data as never, 0, new Uint8Array(new Float32Array(1024).fill(1).buffer));
    context.beginCapture!();
    expect(() => context.beginCapture!()).toThrowError(expect.objectContaining({ code: "invalid-argument" }));
    await context.attention(problem);
    await expect(floats(problem.out.data)).rejects.toMatchObject({ code: "invalid-argument" });
    const graph = context.endCapture!();
    expect(() => context.endCapture!()).toThrowError(expect.objectContaining({ code: "invalid-argument" }));
    await graph.launch();
    const first = (await floats(problem.out.data))[0]!;
    await graph.launch();
    await graph.launch();
    expect((await floats(problem.out.data))[0]).toBe(first + 2);
    (problem.q.data as { dispose(): void }).dispose();
    await graph.launch();
    expect((await floats(problem.out.data))[1]).toBe(1024);
    graph.dispose();
    graph.dispose();
    await expect(graph.launch()).rejects.toMatchObject({ code: "invalid-argument", message: "the graph is disposed" });
    await context.synchronize();
    await expect.poll(() => counts(context).graphs).toBe(0);
    await expect.poll(() => context.bytesInUse).toBe(size);
  });
  it("waiting has nothing to do with a capture that begins meanwhile, and is refused within one", async () => {
    const healthy = await mockBackend("-DMOCK_ASYNC", "-DMOCK_ANOTHER");
    context.dispose();
    context = healthy.open({ device: 0 });
    const problem = onDevice("sleep:30");
    await context.attention(problem);
    const waited = context.synchronize();
    context.beginCapture!();
    await context.attention(problem);
    await waited; // for the first call alone
    await expect(context.synchronize()).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringMatching(/capture/),
    });
    context.endCapture!().dispose();
    await context.synchronize();
  });
  it("on a device that computes in the call", async () => {
    const plain = (await mockBackend()).open({ device: 0 });
    const problem = large();
    plain.beginCapture!();
    await plain.attention(problem);
    expect(problem.result[1]).toBe(0);
    const graph = plain.endCapture!();
    await graph.launch();
    expect(problem.result[1]).toBe(1024);
    const running = plain.attention(large("sleep:30"));
    expect(() => plain.beginCapture!()).toThrowError(/synchronize/);
    await running;
    plain.dispose();
    graph.dispose();
  });
  it("are absent where the device has none; nor does it read host arrays", async () => {
    const bare = (await mockBackend("-DMOCK_NO_HOST_MEMORY")).open({ device: 0 });
    expect(bare.beginCapture).toBeUndefined();
    expect(bare.endCapture).toBeUndefined();
    await expect(bare.attention(large())).rejects.toMatchObject({
      message: expect.stringContaining("copy it to a buffer"),
    });
    bare.dispose();
  });
});
