import { loadBackend } from "@tessera/core";
import { it } from "vitest";
import { fuzz } from "./fuzz-tests.js";

// Always the same problems; `fuzz.long.test.ts` draws new ones.
it("200 random problems on every variant of the CPU", { timeout: 120_000 }, async () => {
  await fuzz(await loadBackend("cpu"), { seed: 20250, numRuns: 200 });
});

it("60 random problems on the reference", { timeout: 120_000 }, async () => {
  await fuzz(await loadBackend("reference"), { seed: 7, numRuns: 60 });
});
