import type { Backend } from "@tessera/core";
import fc from "fast-check";
import { type FuzzProblem, problems } from "../src/fuzz.js";
import { runConformance, summarize } from "../src/index.js";

/** Random problems against the truth, on every usable variant. fast-check's error has the seed and the smallest problem. */
export async function fuzz(backend: Backend, parameters: fc.Parameters<[FuzzProblem]>): Promise<void> {
  await fc.assert(
    fc.asyncProperty(problems(fc), async (problem) => {
      const report = await runConformance({
        backend,
        table: [problem.case],
        layouts: [problem.layout],
        badInput: false,
      });
      if (report.failed > 0) throw new Error(`\n${summarize({ ...report, skipped: {} }, 4)}`);
    }),
    parameters,
  );
}
