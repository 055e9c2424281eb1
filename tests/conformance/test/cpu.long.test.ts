import { loadBackend } from "@tessera/core";
import { it } from "vitest";
import { cases, runConformance, summarize } from "../src/index.js";

it("the long cases of the table on the CPU", async () => {
  const long = cases.filter((c) => c.level === "long").map((c) => c.name);
  const report = await runConformance({ backend: await loadBackend("cpu"), long: true, cases: long });
  if (!report.conformant) throw new Error(`\n${summarize(report, 8)}`);
});
