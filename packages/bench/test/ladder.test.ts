import { type Engine, openEngine } from "@tessera/core";
import { describe, expect, it } from "vitest";
import { Arenas } from "../src/arena.js";
import { runCase } from "../src/run-case.js";
import { casesOf } from "../src/suites.js";

const catalogue = [
  ["prefill-mma", true],
  ["decode-mma", true],
  ["ladder-64x64", true],
  ["ladder-256x128", false],
  ["ladder-reversed", true],
  ["ladder-tuned-64x64", true],
  ["ladder-tuned-128x128", true],
] as const;

describe("the ladder", () => {
  it("takes the usable steps in their order, the tuned one out of its candidates, then what else there is", () => {
    const kernels = () =>
      catalogue.map(([name, usable]) => ({ name, usable, family: name.startsWith("decode") ? "decode" : "prefill" }));
    const cases = casesOf("ladder", { kernels } as unknown as Engine);
    const of1024 = cases.filter(({ name }) => name.startsWith("B4 1024²"));
    expect(cases).toHaveLength(5 * of1024.length);
    expect(
      of1024.map((one) => [one.kind, "step" in one ? one.step : "", "kernel" in one ? one.kernel : undefined]),
    ).toEqual([
      ["unfused", "", undefined],
      ["prefill", "ladder-64x64", "ladder-64x64"],
      ["prefill", "ladder-reversed", "ladder-reversed"],
      ["prefill", "ladder-tuned", undefined],
      ["prefill", "prefill-mma", "prefill-mma"],
    ]);
    expect(of1024[3]).toMatchObject({ candidates: ["ladder-tuned-64x64", "ladder-tuned-128x128", "ladder-reversed"] });
    expect(new Set(cases.map(({ name }) => name)).size).toBe(cases.length);
  });

  it("measures the fastest of a case's candidates", async () => {
    using engine = await openEngine({ backend: "cpu" });
    const slow = "prefill-portable";
    const shape = { batch: 1, heads: 2, kvHeads: 2, queries: 256, keys: 256, dim: 64 };
    const candidates = engine
      .kernels()
      .filter(({ usable, family }) => usable && family === "prefill")
      .map(({ name }) => name);
    expect(candidates.length).toBeGreaterThan(1);
    expect(candidates).toContain(slow);
    const arenas = new Arenas(engine);
    try {
      const plan = { repeats: 3, sampleMs: 1, warmUpMs: 1 };
      const bench = { engine, arenas, rotateBytes: 0, key: "cpu:0", plan, open: () => openEngine({ backend: "cpu" }) };
      const one = { kind: "prefill", suite: "ladder", name: "it", shape, q: "f32", kv: "f32", causal: true } as const;
      const measured = await runCase(bench, { ...one, candidates, step: "ladder-tuned" });
      expect(measured).toMatchObject({ step: "ladder-tuned", check: { ok: true } });
      // The scalar one is several times as slow as any other.
      expect(candidates.filter((name) => name !== slow)).toContain(measured.kernel);
      const alone = await runCase(bench, { ...one, candidates: [slow] });
      expect(alone.kernel).toBe(slow);
    } finally {
      arenas.dispose();
    }
  });
});
