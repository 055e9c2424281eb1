import type { Backend } from "@tessera/core";
import { afterAll, beforeAll, describe, it } from "vitest";
import {
  type ConformanceOptions,
  type ConformanceReport,
  runConformance,
  selectCases,
  summarize,
} from "../src/index.js";

type Options = Omit<ConformanceOptions, "backend" | "cases" | "kernels" | "onProgress"> & {
  /** Share of the cells that each usable kernel has to take. */
  readonly takes?: number;
};

/** One test for each case of the table, over every usable variant, and one for each variant. */
export function tableTests(title: string, load: () => Promise<Backend>, options: Options = {}): void {
  const { takes = 0.9, ...rest } = options;
  describe(title, () => {
    let backend: Backend;
    const taken = new Map<string, { passed: number; all: number }>();
    beforeAll(async () => {
      backend = await load();
    });

    const add = (report: ConformanceReport) => {
      for (const { name, passed, failed, unsupported } of report.kernels) {
        const sum = taken.get(name) ?? { passed: 0, all: 0 };
        taken.set(name, { passed: sum.passed + passed, all: sum.all + passed + failed + unsupported });
      }
    };
    const run = async (options_: Pick<ConformanceOptions, "cases" | "badInput">) => {
      const report = await runConformance({ backend, ...rest, ...options_ });
      add(report);
      if (report.failed > 0) throw new Error(`\n${summarize({ ...report, skipped: {} }, 8)}`);
    };

    for (const c of selectCases({ ...options, badInput: false }))
      it(c.name, () => run({ cases: [c.name], badInput: false }));
    if (options.badInput ?? true) it("bad input", () => run({ cases: /^bad\// }));

    it("every usable variant takes the table", async () => {
      // Variants that round Q take quantised keys alone.
      const context = await backend.open({ device: 0 });
      const narrow = new Set(context.kernels().flatMap(({ name, roundsQ }) => (roundsQ ? name : [])));
      context.dispose();
      for (const [name, { passed, all }] of taken) {
        const least = narrow.has(name) ? 0.05 : takes;
        if (passed < least * all) throw new Error(`${name} took ${passed} of ${all} cells, must be ${least * 100} %`);
      }
      if (taken.size === 0) throw new Error("no variant ran");
    });

    afterAll(() => taken.clear());
  });
}
