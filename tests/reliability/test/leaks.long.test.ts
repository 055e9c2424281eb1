import { expect, it } from "vitest";
import { runScript } from "../src/run-script.js";

it("10,000 engines made, used and disposed of leave less than 1 MB", { timeout: 900_000 }, () => {
  const { cycles, grown } = runScript("cycles.mjs", ["10000", "cpu"], {
    minutes: 14, // The young generation of JavaScript's heap grows with the load; it isn't what is looked for.
    node: ["--expose-gc", "--max-semi-space-size=1"],
  });
  console.log(`${cycles} cycles: ${grown} bytes more`);
  expect(grown).toBeLessThan(1 << 20);
});
