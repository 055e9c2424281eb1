/** Calls on one cache that overlap: with copies of shared pages, with aborts, with dispose. */
import { afterAll, describe, expect, it } from "vitest";
import type { BackendContext, PromptBackend } from "../src/backend.js";
import type { Engine } from "../src/engine.js";
import { TesseraError } from "../src/error.js";
import { openEngineIn } from "../src/open-engine.js";
import { referenceBackend } from "../src/reference/index.js";
import { discreteBackend } from "./discrete-device.js";
import { worldOf } from "./support.js";

/** Without copies on the device: there calls wait while the host copies shared pages. */
const copyless: PromptBackend = {
  ...referenceBackend,
  open: (options) => Object.assign(referenceBackend.open(options), { copy: undefined }),
};
const reference = () => openEngineIn(worldOf({ reference: copyless }));
const engine = await reference();
afterAll(() => engine.dispose());

const mk = (S: number, value: number, B = 1) => ({
  data: new Float32Array(B * S * 4).fill(value),
  shape: [B, S, 1, 4],
});
const kv = (S: number, value: number, B = 1) => ({ k: mk(S, value, B), v: mk(S, value, B) });
const make = (on: Engine = engine, more: object = {}) =>
  on.kvCache({ batch: 1, kvHeads: 1, headDim: 4, capacity: 16, dtype: "f32", pageSize: 4, pages: 8, ...more });
/** Keeps the engine busy, so that calls after it haven't begun when they are aborted. */
const work = () => {
  const long = { data: new Float32Array(256 * 4 * 16), shape: [1, 256, 4, 16] };
  return engine.attention({ q: long, k: long, v: long });
};
/** The mean of what the cache holds. */
const first = async (cache: ReturnType<typeof make>, on: Engine = engine) =>
  (await on.decode({ q: mk(1, 0), cache })).out.data[0];

/** An engine whose decodes with new tokens fail, unwritten, where `fail` says, when their turn comes. */
async function losing(fail: () => boolean): Promise<Engine> {
  const open: PromptBackend["open"] = (options) => {
    const context = copyless.open(options);
    const real = context.decode.bind(context);
    const decode: BackendContext["decode"] = (desc, signal) => {
      if (!desc.append || !fail()) return real(desc, signal);
      return context.synchronize().then(() => Promise.reject(new TesseraError("device-error", "boom")));
    };
    return Object.assign(context, { decode });
  };
  return openEngineIn(worldOf({ reference: { ...referenceBackend, open } }));
}

describe("a fork that is disposed while its pages are copied", () => {
  it("leaves its sibling's pages alone", async () => {
    using c = make();
    await c.append(kv(2, 1));
    const f = await c.fork();
    const p = f.append(kv(1, 9));
    const rejected = expect(p).rejects.toMatchObject({ code: "invalid-argument" });
    f.dispose();
    await rejected;
    expect(c.freePages).toBe(7);
    using g = await c.fork();
    await g.truncate([0]);
    await g.append(kv(4, 50));
    expect(await first(c)).toBe(1);
  });
});

describe("an append that is lost", () => {
  for (const pageSize of [undefined, 4]) {
    const more = pageSize ? {} : { pageSize: undefined, pages: undefined };
    it(`takes the calls that built on it along, and the cache goes on, pageSize ${pageSize}`, async () => {
      let fail = false;
      using engine = await losing(() => fail);
      using cache = make(engine, more);
      await cache.append(kv(2, 1));
      const free = cache.freePages;
      fail = true;
      const lost = engine.decode({ q: mk(3, 1), cache, ...kv(3, 7) });
      fail = false;
      const calls = await Promise.allSettled([
        lost,
        engine.decode({ q: mk(1, 1), cache }),
        cache.fork(),
        cache.append(kv(4, 8)),
        engine.decode({ q: mk(1, 1), cache, ...kv(1, 9) }),
      ]);
      expect(calls.map(({ status }) => status)).toEqual(Array(5).fill("rejected"));
      expect((calls[0] as PromiseRejectedResult).reason.message).toBe("boom");
      for (const call of calls.slice(1))
        expect((call as PromiseRejectedResult).reason).toMatchObject({
          code: "device-error",
          message: expect.stringMatching(/an append before this call failed \(boom\)/),
        });
      expect([...cache.lengths]).toEqual([2]);
      expect(cache.freePages).toBe(free);
      expect(await first(cache, engine)).toBe(1);
      await cache.append(kv(2, 3));
      expect(await first(cache, engine)).toBe(2);
      using fork = await cache.fork();
      expect([...fork.lengths]).toEqual([4]);
    });
  }

  it("whose results can't be fetched from a device with queues", async () => {
    let fail = false;
    const device = discreteBackend();
    const open: PromptBackend["open"] = (options) => {
      const context = device.open(options);
      const real = context.read.bind(context);
      const read: BackendContext["read"] = (...args) =>
        fail ? Promise.reject(new TesseraError("device-error", "boom")) : real(...args);
      return Object.assign(context, { read });
    };
    using engine = await openEngineIn(worldOf({ discrete: { ...device, open } }));
    using cache = make(engine);
    await cache.append(kv(2, 1));
    const free = cache.freePages;
    const q = engine.tensor(mk(1, 0).data, { shape: [1, 1, 1, 4] });
    fail = true;
    const lost = engine.decode({ q: mk(3, 1), cache, ...kv(3, 7) });
    const built = engine.decode({ q, cache });
    await expect(lost).rejects.toMatchObject({ code: "device-error", message: "boom" });
    await expect(built).rejects.toMatchObject({ message: expect.stringMatching(/an append before this call failed/) });
    fail = false;
    expect([...cache.lengths]).toEqual([2]);
    expect(cache.freePages).toBe(free);
    // Results that stay on the device need no fetching: their tokens are there.
    fail = true;
    const { out } = await engine.decode({ q, cache, ...kv(1, 4) });
    fail = false;
    expect([...cache.lengths]).toEqual([3]);
    expect([...(await out.read())]).toEqual([2, 2, 2, 2]);
  });

  it("an aborted decode, behind long work", async () => {
    using cache = make();
    await cache.append(kv(2, 1));
    const controller = new AbortController();
    const busy = work();
    const lost = engine.decode({ q: mk(1, 1), cache, ...kv(1, 7), signal: controller.signal });
    const read = engine.decode({ q: mk(1, 1), cache });
    const fork = cache.fork();
    controller.abort("no");
    const [a, b, c] = (await Promise.allSettled([lost, read, fork])) as PromiseRejectedResult[];
    expect(a!.reason).toBe("no");
    expect(b!.reason.message).toMatch(/an append before this call failed \(no\)/);
    expect(c!.reason.message).toMatch(/an append before this call failed \(no\)/);
    await busy;
    expect(await first(cache)).toBe(1);
  });

  it("means nothing after a truncate to what was before it", async () => {
    using cache = make();
    await cache.append(kv(3, 1));
    const controller = new AbortController();
    const busy = work();
    const lost = engine.decode({ q: mk(2, 1), cache, ...kv(2, 7), signal: controller.signal });
    const truncated = cache.truncate([2]);
    const after = cache.append(kv(1, 4));
    controller.abort("no");
    await expect(lost).rejects.toBe("no");
    await Promise.all([truncated, after, busy]);
    expect([...cache.lengths]).toEqual([3]);
    expect(await first(cache)).toBe(2);
    await cache.append(kv(3, 2));
    expect(await first(cache)).toBe(2);
  });

  it("and a truncate of some sequences only", async () => {
    let fail = false;
    using engine = await losing(() => fail);
    using cache = make(engine, { batch: 2, pages: 8 });
    await cache.append(kv(3, 1, 2));
    fail = true;
    const lost = engine.decode({ q: mk(2, 1, 2), cache, ...kv(2, 7, 2) });
    fail = false;
    void cache.truncate([1, 5]);
    const after = cache.append(kv(4, 4, 2));
    const calls = (await Promise.allSettled([lost, after])) as PromiseRejectedResult[];
    expect(calls.map(({ reason }) => reason.message)).toEqual(["boom", expect.stringMatching(/failed \(boom\)/)]);
    expect([...cache.lengths]).toEqual([1, 3]);
    expect(cache.freePages).toBe(6);
  });
});

describe("an append that waits for a copy of its page", () => {
  const shared = async (on: Engine = engine) => {
    const cache = make(on);
    await cache.append(kv(2, 1));
    return { cache, fork: await cache.fork() };
  };

  it("keeps tensors that are disposed meanwhile", async () => {
    const { fork } = await shared();
    const idle = engine.bytesInUse;
    const t = engine.tensor(mk(1, 4).data, { shape: [1, 1, 1, 4] });
    const p = fork.append({ k: t, v: t });
    t.dispose();
    await p;
    expect(engine.bytesInUse).toBe(idle);
    expect(await first(fork)).toBe(2);
  });

  it("decode, too, and gives the out that it was given", async () => {
    const { fork } = await shared();
    using out = engine.tensor(new Float32Array(4), { shape: [1, 1, 1, 4] });
    const t = engine.tensor(mk(1, 4).data, { shape: [1, 1, 1, 4] });
    const positions = engine.tensor(Int32Array.of(0), { shape: [1, 1] });
    const p = engine.decode({ q: t, cache: fork, k: t, v: t, out, rope: { pairing: "half", positions } });
    t.dispose();
    positions.dispose();
    const result = await p;
    expect(result.out).toBe(out);
    expect((await out.read())[0]).toBeGreaterThan(1);
  });

  it("is counted at once, with what waits behind it", async () => {
    const { cache, fork } = await shared();
    const calls = [fork.append(kv(1, 4))];
    expect([...fork.lengths]).toEqual([3]);
    calls.push(fork.append(kv(5, 4)));
    expect([...fork.lengths]).toEqual([8]);
    const truncated = fork.truncate([4]);
    expect([...fork.lengths]).toEqual([4]);
    const full = fork.append(kv(15, 4));
    const last = fork.append(kv(2, 8));
    await expect(full).rejects.toThrow(/sequence 0 holds 4 tokens and gets 15/);
    await Promise.all([...calls, truncated, last]);
    expect([...fork.lengths]).toEqual([6]);
    expect(await first(fork)).toBeCloseTo((1 + 1 + 4 + 4 + 8 + 8) / 6, 6);
    expect(await first(cache)).toBe(1);
  });

  it("says that the engine is gone", async () => {
    const on = await reference();
    const { fork } = await shared(on);
    const calls = [fork.append(kv(1, 4)), fork.append(kv(1, 4)), fork.fork(), fork.truncate([0])];
    const plain = make(on, { pageSize: undefined, pages: undefined });
    calls.push(
      plain.append(kv(2, 1)).then(
        () => {},
        () => {},
      ) as never,
      plain.fork(),
    );
    on.dispose();
    const settled = await Promise.allSettled(calls);
    for (const i of [0, 1, 2, 3, 5])
      expect(settled[i]).toMatchObject({ status: "rejected", reason: { code: "device-unavailable" } });
  });

  it("without a free page fails alone", async () => {
    const cache = make(engine, { pages: 2 });
    await cache.append(kv(6, 1));
    const fork = await cache.fork();
    const calls = await Promise.allSettled([fork.append(kv(1, 4)), fork.truncate([4]), fork.fork()]);
    expect(calls.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "fulfilled"]);
    expect([...fork.lengths]).toEqual([4]);
  });
});
