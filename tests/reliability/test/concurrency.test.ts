import { expect, it } from "vitest";
import { runScript } from "../src/run-script.js";

it("64 calls at once from 8 workers, aborted at random: what is computed has the bits of one after the other", () => {
  const counts = runScript("storm.mjs", ["2", "5", "cpu", "reference"]) as Record<string, number>;
  expect(counts).toMatchObject({ wrong: 0, failed: [] });
  expect(counts.computed! + counts.aborted!).toBe(128);
  expect(counts.late).toBeGreaterThan(12); // and a tenth of each back end's, which the script itself wants
  expect(counts.computed).toBeGreaterThan(12);
});
