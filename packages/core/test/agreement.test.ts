import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Engine } from "../src/engine.js";
import { openEngine } from "../src/open-engine.js";
import { probe } from "../src/probe.js";
import { checkAgainstOracle } from "../src/tolerance.js";
import { random, reference, stored, tensor } from "./support.js";

/** Problems of every kind, a few of them impossible. */
const problem = fc
  .record({
    seed: fc.integer({ min: 1, max: 1e6 }),
    batch: fc.integer({ min: 0, max: 3 }),
    sq: fc.integer({ min: 0, max: 40 }),
    sk: fc.integer({ min: 0, max: 70 }),
    kvHeads: fc.integer({ min: 1, max: 3 }),
    group: fc.constantFrom(1, 2, 3, 7),
    dim: fc.constantFrom(1, 8, 32, 64, 513),
    valueDim: fc.constantFrom(3, 32, 64),
    qType: fc.constantFrom("f32", "f16", "bf16" as const),
    kType: fc.constantFrom("f32", "f16", "bf16", "f8_e4m3", "q8_0" as const),
    form: fc.constantFrom("padded", "lengths", "packed", "paged" as const),
    layout: fc.constantFrom(undefined, "bshd", "bhsd" as const),
    causal: fc.option(fc.boolean(), { nil: undefined }),
    align: fc.constantFrom(undefined, "top-left", "bottom-right" as const),
    window: fc.constantFrom(undefined, [-1, 0], [3, -1], [2, 2], [0, 0] as const),
    softcap: fc.constantFrom(undefined, 0, 1.5, -1),
    scale: fc.constantFrom(undefined, 0, 0.3, -2),
    alibi: fc.boolean(),
    sinks: fc.boolean(),
    bias: fc.boolean(),
    mask: fc.boolean(),
    offset: fc.constantFrom(undefined, undefined, -3, 5),
    numSplits: fc.constantFrom(undefined, undefined, 0, 1, 3),
    kernel: fc.constantFrom(undefined, undefined, undefined, "none"),
    excess: fc.constantFrom(0, 0, 0, 0, 1),
  })
  .map((p) => {
    const next = random(p.seed);
    const draw = (most: number) => Math.floor(((next() + 1) / 2) * (most + 1));
    const heads = p.kvHeads * p.group;
    const turn = (rows: number[], h: number, d: number) =>
      p.layout === "bhsd" ? [...rows.slice(0, -1), h, rows.at(-1)!, d] : [...rows, h, d];
    const lengths = (most: number) => Array.from({ length: p.batch }, () => draw(most));
    const starts = (each: number[]) => [0, ...each.map((_, i) => each.slice(0, i + 1).reduce((sum, n) => sum + n, 0))];
    const packedQ = lengths(p.sq);
    const packedK = lengths(p.sk);
    const pageSize = 8;
    const width = Math.ceil(p.sk / pageSize);
    const qRows = p.form === "packed" ? [starts(packedQ).at(-1)!] : [p.batch, p.sq];
    const kRows = {
      padded: [p.batch, p.sk],
      lengths: [p.batch, p.sk],
      packed: [starts(packedK).at(-1)!],
      paged: [p.batch * width + 1, pageSize],
    }[p.form];
    const [rows, columns] = {
      padded: [p.sq, p.sk],
      lengths: [p.sq, p.sk],
      packed: [Math.max(0, ...packedQ), Math.max(0, ...packedK)],
      paged: [p.sq, width * pageSize],
    }[p.form] as [number, number];
    return {
      q: tensor(turn(qRows, heads, p.dim), next, p.qType),
      k: stored(turn(kRows, p.kvHeads, p.dim % 32 && p.kType === "q8_0" ? 32 : p.dim), next, p.kType),
      v: tensor(turn(kRows, p.kvHeads, p.valueDim), next, p.kType === "bf16" ? "bf16" : "f16"),
      layout: p.layout,
      causal: p.causal,
      align: p.offset === undefined ? p.align : undefined,
      window: p.window,
      softcap: p.softcap,
      scale: p.scale,
      ...(p.alibi && { alibiSlopes: Array.from({ length: heads }, (_, h) => 2 ** -h) }),
      ...(p.sinks && { sinks: Array.from({ length: heads }, () => next() * 3) }),
      ...(p.bias && { bias: tensor([heads, rows, columns], next) }),
      ...(p.mask && {
        mask: { data: Uint8Array.from({ length: rows * columns }, () => draw(1)), shape: [rows, columns] },
      }),
      ...(p.offset !== undefined && { queryOffset: Array.from({ length: p.batch }, () => p.offset) }),
      ...(p.form === "packed" && { cuSeqLensQ: starts(packedQ), cuSeqLensK: starts(packedK) }),
      ...(p.form === "lengths" && { seqLensQ: lengths(p.sq), seqLensK: lengths(p.sk + p.excess) }),
      ...(p.form === "paged" && {
        seqLensK: lengths(p.sk + p.excess),
        pageTable: Array.from({ length: p.batch }, (_, b) =>
          Array.from({ length: width }, (_, n) => p.batch * width - b * width - n),
        ),
      }),
      numSplits: p.numSplits,
      kernel: p.kernel,
    };
  });

async function agree(engine: Engine, runs: number): Promise<number> {
  let done = 0;
  await fc.assert(
    fc.asyncProperty(problem, async (options) => {
      const support = engine.supports(options as never);
      const outcome = await engine.attention({ ...options, returnLse: true } as never).then(
        (result) => ({ result }),
        (error: { code: string; message: string }) => ({ error }),
      );
      if ("error" in outcome) {
        expect(support).toEqual({ supported: false, code: outcome.error.code, reason: outcome.error.message });
        expect(() => engine.explain(options as never)).toThrow();
        return;
      }
      expect(support).toEqual({ supported: true });
      expect(engine.explain(options as never).kernel).not.toBe("");
      const { out, lse } = outcome.result as never as { out: never; lse: never };
      expect(checkAgainstOracle({ options: options as never, out, lse })).toMatchObject({ ok: true });
      done++;
    }),
    { numRuns: runs, seed: 20240611 },
  );
  return done;
}

describe("supports, explain and attention agree, and the result with the oracle, whatever is asked", () => {
  it("reference", async () => {
    using engine = await reference();
    expect(await agree(engine, 120)).toBeGreaterThan(30);
  });

  it("cpu", async () => {
    const [cpu] = await probe({ backends: ["cpu"] });
    expect(cpu).toMatchObject({ state: "usable", reason: "" });
    using engine = await openEngine({ backend: "cpu" });
    expect(await agree(engine, 200)).toBeGreaterThan(50);
  });
});
