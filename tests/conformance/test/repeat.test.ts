/** Bits that repeat, over more runs and other thread counts than the table has. */
import { loadBackend } from "@tessera/core";
import { expect, it } from "vitest";
import { describeProblem } from "../src/attention-run.js";
import { type AttentionCase, attention } from "../src/case.js";
import { sameBytes } from "../src/compare.js";
import { Placement } from "../src/layout.js";
import { buildProblem } from "../src/problem.js";

const repeated: AttentionCase[] = [
  attention("repeat/prefill", "flash-attention #2244: 30 runs", [2, 150, 170, 4, 2, 64], {
    causal: true,
    types: "f16",
  }),
  attention("repeat/decode", "splits merge in one order", [2, 2, 1500, 8, 2, 64], { types: "bf16" }),
  attention("repeat/blocks", "and those of variants that round q", [1, 1, 1100, 8, 2, 64], { types: "f32/q8_0" }),
];

for (const c of repeated) {
  it(`${c.name}: 30 runs on each variant, equal bits`, async () => {
    const backend = await loadBackend("cpu");
    const context = backend.open({ device: 0 });
    const problem = buildProblem(c);
    const able = context.kernels().filter(({ usable, kvDTypes }) => usable && kvDTypes.includes(c.types.k));
    for (const kernel of able) {
      const placement = new Placement(context, "sliced");
      const desc = { ...describeProblem(c, problem, placement), kernel: kernel.name };
      let first: Uint8Array | undefined;
      for (let run = 0; run < 30; run++) {
        await context.attention(desc as Parameters<typeof context.attention>[0]);
        const now = await placement.result("out");
        first ??= now;
        expect(sameBytes(first, now), `${kernel.name}, run ${run}`).toBe(true);
      }
      placement.dispose();
    }
    context.dispose();
  });
}

it("one thread gives the same bits as all of them", async () => {
  const backend = await loadBackend("cpu");
  for (const c of repeated) {
    const problem = buildProblem(c);
    const results: Uint8Array[] = [];
    for (const threads of [1, 2, 5]) {
      const context = backend.open({ device: 0, threads });
      const placement = new Placement(context, "contiguous");
      await context.attention(describeProblem(c, problem, placement) as Parameters<typeof context.attention>[0]);
      results.push(await placement.result("out"));
      placement.dispose();
      context.dispose();
    }
    for (const other of results) expect(sameBytes(results[0] as Uint8Array, other), c.name).toBe(true);
  }
});
