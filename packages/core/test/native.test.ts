import { afterAll, describe, expect, it } from "vitest";
import type { Engine } from "../src/engine.js";
import type { HostTensor } from "../src/host-tensor.js";
import { attention, openEngine } from "../src/open-engine.js";
import { probe } from "../src/probe.js";
import { checkAgainstOracle } from "../src/tolerance.js";
import { cases, k, q, v } from "./cases.js";
import { random, tensor } from "./support.js";

const [cpu] = await probe({ backends: ["cpu"] });
const why = cpu!.state === "usable" ? "" : `no CPU back end: ${cpu!.reason}`;
if (why !== "") throw new Error(why); // `npm test` builds it first: no reason to skip
const engine: Engine = await openEngine({ backend: "cpu" });
afterAll(() => engine.dispose());

describe("the CPU back end through the engine", () => {
  for (const [name, options] of Object.entries(cases)) {
    it(name, async () => {
      const support = engine.supports(options);
      const call = engine.attention({ ...options, returnLse: true });
      expect(support).toEqual({ supported: true }); // the CPU declines nothing
      const { out, lse } = await call;
      expect(checkAgainstOracle({ options, out, lse })).toMatchObject({ ok: true });
      expect(engine.explain(options).kernel).not.toBe("");
    });
  }

  it.each([undefined, 64])("forks behind long work, copied in order, pages of %s", async (pageSize) => {
    const kv = (n: number, value: number) => {
      const x = { data: new Float32Array(n * 256).fill(value), shape: [1, n, 4, 64] };
      return { k: x, v: x };
    };
    const mean = async (cache: ReturnType<typeof engine.kvCache>) =>
      (await engine.decode({ q: kv(1, 0).k, cache })).out.data[0];
    const pool = pageSize === undefined ? {} : { pageSize, pages: 64 };
    using cache = engine.kvCache({ batch: 1, kvHeads: 4, headDim: 64, capacity: 512, dtype: "f32", ...pool });
    const long = tensor([1, 1024, 8, 64], random(3));
    const work = [engine.attention({ q: long, k: long, v: long })]; // copies and appends queue behind it
    work.push(cache.append(kv(100, 1)) as never);
    const forked = cache.fork();
    work.push(cache.append(kv(100, 3)) as never);
    using fork = await forked;
    using again = await fork.fork();
    using token = engine.tensor(new Float32Array(256).fill(102), { shape: [1, 1, 4, 64] });
    work.push(engine.attention({ q: long, k: long, v: long }));
    work.push(fork.append({ k: token, v: token }) as never);
    token.write(new Float32Array(256).fill(203));
    work.push(again.append({ k: token, v: token }) as never);
    await Promise.all(work);
    expect(await mean(cache)).toBeCloseTo(2, 5);
    expect(await mean(fork)).toBeCloseTo(2, 5);
    expect(await mean(again)).toBeCloseTo(3, 5);
  });

  it("a cache, decoded over", async () => {
    const next = random(8);
    for (const pageSize of [undefined, 16]) {
      using cache = engine.kvCache({ batch: 2, kvHeads: 2, headDim: 64, capacity: 64, dtype: "f16", pageSize });
      const part = (n: number) => tensor([2, n, 2, 64], next, "f16");
      const [k0, k1] = [part(33), part(2)];
      await cache.append({ k: k0, v: k0 });
      const q = tensor([2, 2, 4, 64], next, "f16");
      const { out } = await engine.decode({ q, cache, k: k1, v: k1, causal: true });
      const all = new Uint16Array(2 * 35 * 128);
      for (let b = 0; b < 2; b++) {
        all.set((k0.data as Uint16Array).subarray(b * 33 * 128, (b + 1) * 33 * 128), b * 35 * 128);
        all.set((k1.data as Uint16Array).subarray(b * 256, (b + 1) * 256), b * 35 * 128 + 33 * 128);
      }
      const kv = { data: all, dtype: "f16" as const, shape: [2, 35, 2, 64] };
      expect(checkAgainstOracle({ options: { q, k: kv, v: kv, causal: true }, out: out as HostTensor })).toMatchObject({
        ok: true,
      });
    }
  });

  it("an aborted append takes along what was built on it", async () => {
    const mk = (S: number, value: number) => ({ data: new Float32Array(S * 4).fill(value), shape: [1, S, 1, 4] });
    using cache = engine.kvCache({ batch: 1, kvHeads: 1, headDim: 4, capacity: 16, dtype: "f32", pageSize: 4 });
    await cache.append({ k: mk(2, 1), v: mk(2, 1) });
    const next = random(10);
    const long = tensor([1, 2048, 8, 64], next);
    const busy = engine.attention({ q: long, k: long, v: long });
    const controller = new AbortController();
    const { signal } = controller;
    const calls = [
      engine.decode({ q: mk(1, 0), cache, k: mk(1, 7), v: mk(1, 7), signal }),
      engine.decode({ q: mk(1, 0), cache }),
      cache.fork(),
      cache.append({ k: mk(1, 8), v: mk(1, 8) }),
    ];
    controller.abort("no");
    expect((await Promise.allSettled(calls)).map(({ status }) => status)).toEqual(Array(4).fill("rejected"));
    await busy;
    expect([...cache.lengths]).toEqual([2]);
    await cache.append({ k: mk(2, 3), v: mk(2, 3) });
    using fork = await cache.fork();
    const appended = fork.append({ k: mk(1, 9), v: mk(1, 9) }).catch(() => {});
    fork.dispose();
    await appended;
    const { out } = await engine.decode({ q: mk(1, 0), cache });
    expect(out.data[0]).toBe(2);
  });

  it("aborts with the reason", async () => {
    const next = random(9);
    const long = {
      q: tensor([1, 4096, 8, 64], next),
      k: tensor([1, 4096, 8, 64], next),
      v: tensor([1, 4096, 8, 64], next),
    };
    const controller = new AbortController();
    const reason = new Error("stop");
    const call = engine.attention({ ...long, signal: controller.signal });
    setTimeout(() => controller.abort(reason), 5);
    await expect(call).rejects.toBe(reason);
  });

  it("tunes", async () => {
    const table = await engine.tune({ q, k, v, causal: true });
    expect(table.length).toBeGreaterThan(0);
    const { out } = await engine.attention({ q, k, v, causal: true });
    expect(checkAgainstOracle({ options: { q, k, v, causal: true }, out: out as HostTensor }).ok).toBe(true);
  });
});

describe("the one-shot form", () => {
  it("tries again after it found no device", async () => {
    const kept = process.env.TESSERA_BACKEND;
    process.env.TESSERA_BACKEND = "nope";
    try {
      await expect(attention({ q, k, v })).rejects.toThrow(/TESSERA_BACKEND is "nope"/);
    } finally {
      if (kept === undefined) delete process.env.TESSERA_BACKEND;
      else process.env.TESSERA_BACKEND = kept;
    }
    await attention({ q, k, v });
  });

  it("host in, host out, on whatever is best here", async () => {
    const { out, lse } = await attention({ q, k, v, causal: true, returnLse: true });
    expect(checkAgainstOracle({ options: { q, k, v, causal: true }, out: out as HostTensor, lse }).ok).toBe(true);
    await expect(attention({ q, k, v, signal: AbortSignal.abort("no") })).rejects.toBe("no");
    await expect(attention(undefined as never)).rejects.toMatchObject({ code: "invalid-argument" });
  });
});
