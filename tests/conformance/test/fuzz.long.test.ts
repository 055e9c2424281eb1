import { loadBackend } from "@tessera/core";
import { it } from "vitest";
import { fuzz } from "./fuzz-tests.js";

// TESSERA_FUZZ_SEED repeats a run (a failure prints its seed), TESSERA_FUZZ_MINUTES lengthens it.
const seed = Number(process.env.TESSERA_FUZZ_SEED ?? Date.now() % 0x7fffffff);
const minutes = Number(process.env.TESSERA_FUZZ_MINUTES ?? 4);

it(`random problems for ${minutes} minutes, seed ${seed}`, { timeout: (minutes + 10) * 60_000 }, async () => {
  await fuzz(await loadBackend("cpu"), {
    seed,
    numRuns: 10_000_000,
    interruptAfterTimeLimit: minutes * 60_000,
    markInterruptAsFailure: false,
  });
});
