/** Cases on a device with a queue, graphs and memory of its own: the CUDA back end, with runtime and kernels played. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Engine, openEngine } from "@tessera/core";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { Arenas } from "../src/arena.js";
import type { AttentionCase } from "../src/case.js";
import { ceilingsOf } from "../src/ceilings.js";
import { features } from "../src/features.js";
import { overhead } from "../src/overhead.js";
import { type Bench, runCase } from "../src/run-case.js";

const library = fileURLToPath(
  new URL("../../../build/cuda/backends/cuda/libtessera-cuda-emulated.so", import.meta.url),
);
const plan = { repeats: 20, sampleMs: 1, warmUpMs: 1 };
let engine: Engine;
let bench: Bench;
beforeAll(async () => {
  if (!existsSync(library)) return;
  engine = await openEngine({ library });
  bench = {
    engine,
    key: "cuda:0",
    arenas: new Arenas(engine),
    rotateBytes: 2 ** 20,
    plan,
    open: () => openEngine({ library }),
  };
});
afterAll(() => engine?.dispose());
beforeEach((ctx) => {
  if (!existsSync(library)) ctx.skip("the played CUDA back end is not built: the lane cuda does that");
});

const shape = { batch: 2, heads: 4, kvHeads: 2, queries: 128, keys: 128, dim: 64 };
const plain: AttentionCase = {
  kind: "prefill",
  suite: "features",
  name: "x",
  shape,
  q: "f16",
  kv: "f16",
  causal: true,
};

it.each(features.map((feature) => [feature.name, feature] as const))("prefill with %s", async (name, feature) => {
  const { causal = true, extra, window } = feature;
  const one = await runCase(bench, { ...plain, causal, extra, feature: name, window: window?.(shape) });
  expect(one).toMatchObject({ clock: "device", feature: name, check: { ok: true }, kernel: expect.any(String) });
  expect(one.samples).toHaveLength(20);
  expect(one.callsPerSample % one.sets).toBe(0);
  expect(Math.min(...one.samples)).toBeGreaterThan(0);
});

it.each(["f16", "f8_e4m3", "q8_0", "q4_0"] as const)("decode over %s", async (kv) => {
  const one = await runCase(bench, { ...plain, kind: "decode", shape: { ...shape, queries: 1 }, kv, causal: false });
  expect(one).toMatchObject({ check: { ok: true }, bytes: expect.any(Number) });
});

it.each(overhead("overhead"))("overhead of $name", async (one) => {
  const few = { ...bench, plan: { ...plan, repeats: 2 } };
  expect((await runCase(few, one)).samples).toHaveLength(2);
});

it("ceilings", async () => {
  const { copy, read } = await ceilingsOf(engine, 2 ** 20, undefined, plan);
  expect(copy!.value).toBeGreaterThan(0.1);
  expect(read).toBeUndefined();
});
