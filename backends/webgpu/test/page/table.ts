/** The conformance table in a page: bundled by browser.long.test.ts, which calls it. */
import { runConformance, summarize } from "@tessera/conformance";
import { webgpu } from "../../src/index.js";

export async function table(
  pattern: string,
): Promise<{ failed: number; passed: number; declined: number; text: string }> {
  const backend = webgpu({ gpu: (globalThis as unknown as { navigator: { gpu: GPU } }).navigator.gpu });
  const report = await runConformance({ backend, cases: new RegExp(pattern), quick: true, layouts: ["sliced"] });
  return { failed: report.failed, passed: report.passed, declined: report.unsupported.length, text: summarize(report) };
}
