/** Graphs over caches on a device with memory of its own: whatever happens around them, host and device agree. */
import { describe, expect, it } from "vitest";
import type { Backend, BackendContext } from "../src/backend.js";
import type { Engine } from "../src/engine.js";
import { TesseraError } from "../src/error.js";
import { openEngineIn } from "../src/open-engine.js";
import { discreteBackend } from "./discrete-device.js";
import { worldOf } from "./support.js";

const open = (backend: Backend = discreteBackend()) => openEngineIn(worldOf({ discrete: backend }));

/** An engine whose decodes with new tokens are refused, after `turns` turns of the event loop, where `fail` says. */
function failing(fail: () => boolean, turns = 0): Promise<Engine> {
  const device = discreteBackend();
  const opened: Backend["open"] = (options) => {
    const context = device.open(options);
    const real = context.decode.bind(context);
    const decode: BackendContext["decode"] = async (desc, signal) => {
      if (!desc.append || !fail()) return real(desc, signal);
      for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
      throw new TesseraError("device-error", "boom");
    };
    return Object.assign(context, { decode });
  };
  return open({ ...device, open: opened });
}

const shape = (S: number, B = 1) => [B, S, 1, 4];
const filled = (S: number, value: number, B = 1) => new Float32Array(B * S * 4).fill(value);
const host = (S: number, value: number, B = 1) => ({ data: filled(S, value, B), shape: shape(S, B) });
const kv = (S: number, value: number, B = 1) => ({ k: host(S, value, B), v: host(S, value, B) });
const paged = { pageSize: 4, pages: 12 };
const make = (on: Engine, more: object = paged) =>
  on.kvCache({ batch: 1, kvHeads: 1, headDim: 4, capacity: 16, dtype: "f32", ...more });
type Cache = ReturnType<typeof make>;

/** The values of a sequence's tokens, in order: each is seen alone. */
async function tokens(on: Engine, cache: Cache, b = 0): Promise<number[]> {
  const { batch } = cache;
  const found: number[] = [];
  for (let n = 0; n < cache.lengths[b]!; n++) {
    // On the device lengths are its own affair: keys are as many as the cache could hold.
    const mask = { data: new Uint8Array(batch * 16), shape: [batch, 1, 1, 16], dtype: "bool" } as const;
    for (let i = 0; i < batch; i++) mask.data[i * 16 + n] = 1;
    const { out } = await on.decode({ q: host(1, 0, batch), cache, mask });
    found.push(out.data[b * 4]!);
  }
  return found;
}

it("a launch's promise is the caller's own", async () => {
  using engine = await open();
  using cache = make(engine, {});
  const token = engine.tensor(filled(1, 7), { shape: shape(1) });
  using graph = await engine.capture(() => cache.append({ k: token, v: token }));
  const launches = [graph.launch(), graph.launch()];
  expect(launches[0]).not.toBe(launches[1]);
  await Promise.all(launches);
  expect(await tokens(engine, cache)).toEqual([7, 7]);
});

describe("order", () => {
  it("a launch over two caches, one of which shares a page: what comes after comes after", async () => {
    using engine = await open();
    using a = make(engine);
    using b = make(engine);
    using token = engine.tensor(filled(1, 5), { shape: shape(1) });
    const graph = await engine.capture(async () => {
      await a.append({ k: token, v: token });
      await b.append({ k: token, v: token });
    });
    await Promise.all([a.append(kv(2, 1)), b.append(kv(2, 1))]);
    for (const shared of [a, b]) {
      using fork = await shared.fork();
      const launched = graph.launch();
      await Promise.all([launched, a.append(kv(1, 7)), b.append(kv(1, 8))]);
      expect([...fork.lengths]).toEqual([shared === a ? 2 : 4]);
    }
    expect(await tokens(engine, a)).toEqual([1, 1, 5, 7, 5, 7]);
    expect(await tokens(engine, b)).toEqual([1, 1, 5, 8, 5, 8]);
  });

  it("an append that copies a shared page takes what its tensors held when it was called", async () => {
    using engine = await open();
    using cache = make(engine);
    await cache.append(kv(2, 1));
    using fork = await cache.fork();
    using token = engine.tensor(filled(1, 5), { shape: shape(1) });
    const appended = fork.append({ k: token, v: token });
    token.write(filled(1, 6));
    await appended;
    expect(await tokens(engine, fork)).toEqual([1, 1, 5]);
    expect(await tokens(engine, cache)).toEqual([1, 1]);
  });

  it("a capture that begins right after records none of it", async () => {
    using engine = await open();
    using cache = make(engine, { ...paged, dtype: "f8_e4m3", scales: { k: [2], v: [4] } });
    await cache.append(kv(2, 1));
    const free = cache.freePages!;
    using fork = await cache.fork();
    using other = make(engine);
    using token = engine.tensor(filled(1, 5), { shape: shape(1) });
    const appended = fork.append(kv(1, 3));
    const forked = cache.fork();
    const graph = await engine.capture(async () => {
      await Promise.all([appended, forked]);
      await other.append({ k: token, v: token });
    });
    expect([...fork.lengths]).toEqual([3]);
    await graph.launch();
    await graph.launch();
    using second = await forked;
    cache.dispose();
    expect(await tokens(engine, fork)).toEqual([1, 1, 3]);
    expect(await tokens(engine, second)).toEqual([1, 1]);
    expect(await tokens(engine, other)).toEqual([5, 5]);
    expect(fork.freePages).toBe(free - 1);
    await second.append(kv(1, 2));
    expect(await tokens(engine, second)).toEqual([1, 1, 2]);
  });

  it("two graphs over one cache, by turns with calls and cuts", async () => {
    using engine = await open();
    using cache = make(engine, { ...paged, batch: 2 });
    const at = (value: number) => engine.tensor(filled(2, value, 2), { shape: shape(2, 2) });
    using five = at(5);
    using six = at(6);
    const one = await engine.capture(() => cache.append({ k: five, v: five, newLens: [1, 0] }));
    const two = await engine.capture(() => cache.append({ k: six, v: six, newLens: [0, 2] }));
    const none = await engine.capture(() => cache.append({ k: six, v: six, newLens: [0, 0] }));
    const calls = [
      one.launch(),
      two.launch(),
      none.launch(),
      cache.append({ ...kv(2, 1, 2), newLens: [2, 1] }),
      one.launch(),
      cache.truncate([3, 1]),
      two.launch(),
      one.launch(),
    ];
    await Promise.all(calls);
    expect([...cache.lengths]).toEqual([4, 3]);
    expect(await tokens(engine, cache, 0)).toEqual([5, 1, 1, 5]);
    expect(await tokens(engine, cache, 1)).toEqual([6, 6, 6]);
  });

  it("packed tokens, recorded", async () => {
    using engine = await open();
    using cache = make(engine, { ...paged, batch: 2 });
    using three = engine.tensor(filled(3, 5), { shape: [3, 1, 4] });
    const graph = await engine.capture(() => cache.append({ k: three, v: three, cuSeqLens: [0, 0, 3] }));
    await cache.append(kv(1, 1, 2));
    await graph.launch();
    await graph.launch();
    expect([...cache.lengths]).toEqual([1, 7]);
    expect(await tokens(engine, cache, 1)).toEqual([1, 5, 5, 5, 5, 5, 5]);
  });
});

describe("what fails", () => {
  for (const more of [paged, {}]) {
    it(`inside a capture is no part of the graph, ${"pages" in more ? "paged" : "contiguous"}`, async () => {
      let fail = false;
      using engine = await failing(() => fail);
      using cache = make(engine, more);
      using token = engine.tensor(filled(1, 5), { shape: shape(1) });
      const step = { q: token, cache, k: token, v: token };
      const graph = await engine.capture(async () => {
        await expect(engine.decode({ ...step, softcap: -1 })).rejects.toThrow(/softcap/);
        await engine.decode(step);
        fail = true;
        await expect(engine.decode(step)).rejects.toThrow("boom");
        fail = false;
        expect([...cache.lengths]).toEqual([1]);
      });
      expect([...cache.lengths]).toEqual([0]);
      await graph.launch();
      expect([...cache.lengths]).toEqual([1]);
      await cache.append(kv(1, 3));
      expect(await tokens(engine, cache)).toEqual([5, 3]);
    });

    it(`before a capture, and is heard of in it, ${"pages" in more ? "paged" : "contiguous"}`, async () => {
      let fail = false;
      using engine = await failing(() => fail, 3);
      using cache = make(engine, more);
      using token = engine.tensor(filled(1, 5), { shape: shape(1) });
      await cache.append(kv(3, 1));
      const free = cache.freePages;
      fail = true;
      const lost = engine.decode({ q: token, cache, ...kv(2, 9) });
      fail = false;
      const rejected = expect(lost).rejects.toThrow("boom");
      const graph = await engine.capture(async () => {
        void cache.append({ k: token, v: token }).catch(() => {});
        await rejected;
      });
      expect([[...cache.lengths], cache.freePages]).toEqual([[3], free]);
      await graph.launch();
      expect(await tokens(engine, cache)).toEqual([1, 1, 1, 5]);
    });
  }

  it("a launch: nothing was added, and the device hears of it", async () => {
    let fail = false;
    const device = discreteBackend();
    const opened: Backend["open"] = (options) => {
      const context = device.open(options);
      const real = context.endCapture!.bind(context);
      const endCapture = () => {
        const graph = real();
        const launch = () => (fail ? Promise.reject(new TesseraError("device-error", "boom")) : graph.launch());
        return { launch, dispose: () => graph.dispose() };
      };
      return Object.assign(context, { endCapture });
    };
    using engine = await open({ ...device, open: opened });
    using cache = make(engine);
    using token = engine.tensor(filled(1, 5), { shape: shape(1) });
    const graph = await engine.capture(() => cache.append({ k: token, v: token }));
    await cache.append(kv(4, 1));
    const free = cache.freePages;
    fail = true;
    const launches = [graph.launch(), cache.append(kv(1, 8)), graph.launch()];
    const settled = (await Promise.allSettled(launches)) as PromiseRejectedResult[];
    expect(settled.map(({ reason }) => reason?.code)).toEqual(Array(3).fill("device-error"));
    expect([[...cache.lengths], cache.freePages]).toEqual([[4], free]);
    fail = false;
    await graph.launch();
    expect(await tokens(engine, cache)).toEqual([1, 1, 1, 1, 5]);
  });

  it("a fork, whose memory and pages come back", async () => {
    let fail = false;
    using engine = await failing(() => fail, 1);
    const idle = engine.bytesInUse;
    const cache = make(engine, { ...paged, dtype: "f8_e4m3", scales: { k: [2], v: [4] } });
    const held = engine.bytesInUse;
    await cache.append(kv(3, 1));
    const free = cache.freePages;
    fail = true;
    const lost = engine.decode({ q: host(1, 0), cache, ...kv(1, 9) });
    const forked = cache.fork();
    expect((await Promise.allSettled([lost, forked])).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect([engine.bytesInUse, cache.freePages]).toEqual([held, free]);
    const fork = await cache.fork();
    cache.dispose();
    await fork.append(kv(1, 2));
    expect(await tokens(engine, fork)).toEqual([1, 1, 1, 2]);
    fork.dispose();
    expect(engine.bytesInUse).toBe(idle);
  });

  it("kvCache inside a capture", async () => {
    using engine = await open();
    await expect(engine.capture(() => make(engine))).rejects.toThrow(/kvCache is called inside a capture/);
  });
});
