import { expect, it } from "vitest";
import { runScript } from "../src/run-script.js";

it("10,000 engines made, used and disposed of leave less than 1 MB", { timeout: 900_000 }, () => {
  const { cycles, grown, ours } = runScript("cycles.mjs", ["10000", "cpu"], { minutes: 14 });
  console.log(`${cycles} cycles: ${grown} bytes more, ${ours} without JavaScript's heap`);
  expect(ours).toBeLessThan(1 << 20);
});
