import { expect, it } from "vitest";
import { runScript } from "../src/run-script.js";

it("10,000 engines made, used and disposed of leave less than 1 MB", { timeout: 900_000 }, () => {
  const { cycles, grown } = runScript("cycles.mjs", ["10000", "cpu"], { minutes: 14, node: ["--expose-gc"] });
  console.log(`${cycles} cycles: ${grown} bytes more`);
  expect(grown).toBeLessThan(1 << 20);
});
