import { openEngine } from "@tessera/core";
import { afterAll, describe, expect, it } from "vitest";
import { Arenas, hostRows } from "../src/arena.js";
import { type AttentionCase, flopsOf, visiblePairs } from "../src/case.js";
import { checkRows, spoil } from "../src/check.js";
import { features } from "../src/features.js";
import { period } from "../src/random.js";
import { runBench } from "../src/run.js";
import { casesOf, suiteNames } from "../src/suites.js";
import { validateResult } from "../src/validate.js";

const engine = await openEngine({ backend: "cpu" });
afterAll(() => engine.dispose());
const cpu = [{ backend: "cpu" }] as const;

describe("inputs", () => {
  it.each(["f32", "f16", "q8_0", "q4_0", "f8_e4m3"] as const)(
    "of %s: the host knows what the device holds",
    async (dtype) => {
      const arenas = new Arenas(engine);
      await arenas.begin(new Map([[dtype, 3 * period]]));
      arenas.cut(dtype, [1000, 1, 64]);
      const cut = arenas.cut(dtype, [2, 16381, 1, 64]); // beyond the period
      const rows = [0, 1, 16380, 32761];
      const host = hostRows(cut, rows, 64, 0, 64);
      const flat = cut.tensor.reshape([2 * 16381, 64]);
      const read = await Promise.all(rows.map((row) => flat.slice(0, row, row + 1).read()));
      const bytes = read.flatMap((one) => [...(one as Uint16Array)]);
      expect([...(host.data as Uint16Array)]).toEqual(bytes);
      arenas.dispose();
    },
  );
});

describe("counting", () => {
  it("visible pairs", () => {
    const shape = { batch: 1, heads: 1, kvHeads: 1, queries: 4, keys: 4, dim: 1 };
    expect(visiblePairs(shape, false)).toBe(16);
    expect(visiblePairs(shape, true)).toBe(8); // half, as everyone counts
    expect(visiblePairs({ ...shape, keys: 6 }, true)).toBe(3 + 4 + 5 + 6);
    expect(visiblePairs(shape, true, 2)).toBe(1 + 2 + 2 + 2);
  });
  it("operations of the article's shape", () => {
    const [one] = casesOf("tutorial", engine);
    expect(flopsOf(one as AttentionCase)).toBe((4 * 4 * 32 * 128 * 1024 * 1024) / 2);
  });
});

describe("suites", () => {
  it("name each of their cases once, for CPUs and GPUs", () => {
    const gpu = { device: { caps: { async: true, graphs: true } }, kernels: () => engine.kernels() } as never;
    for (const suite of suiteNames) {
      for (const where of [engine, gpu]) {
        const names = casesOf(suite, where).map(({ name }) => name);
        expect(new Set(names).size, suite).toBe(names.length);
        expect(names.length).toBeGreaterThan(0);
      }
    }
  });
});

describe("outputs are checked", () => {
  const shape = { batch: 2, heads: 4, kvHeads: 2, queries: 128, keys: 128, dim: 64 };
  const one = { kind: "prefill", suite: "features", name: "x", shape, q: "f32", kv: "f32" } as const;
  const size = 2 * 128 * 4 * 64;

  it.each(features.map((feature) => [feature.name, feature] as const))("with %s", async (_, feature) => {
    const { causal = true, extra } = feature;
    const arenas = new Arenas(engine);
    await arenas.begin(new Map([["f32", 3 * Arenas.room(size)]]));
    const made = extra?.(engine, shape) ?? { options: {} };
    const paged = typeof made.form === "object" ? made.form.pageSize : undefined;
    const form = (heads: number) =>
      made.form === "packed" ? [256, heads, 64] : paged ? [256 / paged, paged, heads, 64] : [2, 128, heads, 64];
    const qShape = made.form === "packed" ? [256, 4, 64] : [2, 128, 4, 64];
    const cuts = { q: arenas.cut("f32", qShape), k: arenas.cut("f32", form(2)), v: arenas.cut("f32", form(2)) };
    const out = engine.empty({ shape: qShape, dtype: "f32" });
    spoil(out, shape);
    const wrong = await checkRows({ ...one, causal }, cuts, out, made);
    expect(wrong.ok).toBe(false); // nothing was written yet
    const tensors = { q: cuts.q.tensor, k: cuts.k.tensor, v: cuts.v.tensor, out };
    await engine.attention({ ...tensors, causal, ...made.options } as never);
    const check = await checkRows({ ...one, causal }, cuts, out, made);
    expect(check).toMatchObject({ ok: true, rows: 5 });
    // Another problem's output isn't taken for this one's.
    await engine.attention({ ...tensors, causal, ...made.options, scale: 0.2 } as never);
    expect((await checkRows({ ...one, causal }, cuts, out, made)).ok).toBe(false);
    for (const tensor of made.owned ?? []) tensor.dispose();
    out.dispose();
    arenas.dispose();
  });
});

describe("a run", () => {
  it("measures, checks, and says where it was", async () => {
    const progress: number[] = [];
    const result = await runBench({
      suites: ["quick", "memory"],
      devices: cpu,
      repeats: 20,
      filter: /77²|enqueue, no launch|B1 512² H32:8 D128 causal f32$/,
      rotateBytes: 2 ** 22,
      note: "a test",
      onProgress: ({ secondsLeft }) => progress.push(secondsLeft),
    });
    expect(validateResult(JSON.parse(JSON.stringify(result)), "it")).toEqual(result);
    expect(result).toMatchObject({ state: "complete", note: "a test", suites: ["quick", "memory"], skipped: [] });
    expect(result.devices[0]).toMatchObject({ key: "cpu:0", backend: "cpu", state: "complete" });
    expect(result.devices[0]!.ceilings.copy!.value).toBeGreaterThan(0.5);
    expect(result.devices[0]!.ceilings.read!.value).toBeGreaterThan(0.5);
    const kinds = result.measurements.map(({ kind }) => kind);
    expect(kinds).toEqual(["prefill", "prefill", "overhead", "memory"]);
    for (const one of result.measurements) {
      if (one.kind === "memory") {
        const { workspace, allocated } = one.memory!;
        // In steps of 64 KiB: what the plan says is what was taken.
        expect(allocated).toBe(65536 * Math.ceil(workspace / 65536));
        continue;
      }
      expect(one.samples).toHaveLength(20);
      if (one.kind === "prefill")
        expect(one).toMatchObject({ check: { ok: true }, clock: "host", kernel: expect.any(String) });
    }
    expect(result.measurements[1]!.sets).toBeGreaterThan(1);
    expect(progress.every((seconds) => seconds >= 0 && Number.isFinite(seconds))).toBe(true);
    expect(result.host.cores).toBeGreaterThan(0);
  });

  it("that is interrupted keeps what it has", async () => {
    const controller = new AbortController();
    const result = await runBench({
      suites: ["quick"],
      devices: cpu,
      repeats: 3,
      signal: controller.signal,
      onMeasured: () => controller.abort(new Error("Ctrl-C")),
    });
    expect(result).toMatchObject({ state: "interrupted", devices: [{ state: "interrupted" }] });
    expect(result.measurements).toHaveLength(1);
    validateResult(result, "it");
  });

  it("keeps to its time", async () => {
    const result = await runBench({ suites: ["tutorial"], devices: cpu, repeats: 20, seconds: 1 });
    expect(result.state).toBe("time-limit");
    expect(result.skipped.length).toBeGreaterThan(0);
    expect(result.skipped[0]!.reason).toMatch(/limit of 1 s/);
    expect(result.seconds).toBeLessThan(20);
    validateResult(result, "it");
  });

  it("keeps to it on a device that is slower than anybody thought", async () => {
    const reference = [{ backend: "reference" }] as const;
    const result = await runBench({ suites: ["quick"], devices: reference, filter: /77²/, repeats: 2000, seconds: 3 });
    expect(result).toMatchObject({ state: "time-limit", measurements: [] });
    expect(result.seconds).toBeLessThan(20);
  });

  it("of a device that isn't there doesn't begin", async () => {
    const absent = runBench({ suites: ["quick"], devices: [...cpu, { library: "/nowhere/libx.so" }] });
    await expect(absent).rejects.toMatchObject({ code: expect.stringMatching(/missing|unavailable/) });
    const nothing = runBench({ suites: ["quick"], devices: cpu, filter: /no such case/ });
    await expect(nothing).rejects.toMatchObject({ code: "invalid-argument" });
    const ladder = runBench({ suites: ["ladder"], devices: cpu });
    await expect(ladder).rejects.toMatchObject({
      code: "device-unavailable",
      message: expect.stringMatching(/needs the back end cuda or hip/),
    });
    const twice = runBench({ suites: ["quick"], devices: [...cpu, ...cpu] });
    await expect(twice).rejects.toThrow(/given twice/);
  });
});
