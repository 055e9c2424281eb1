import { expect, it } from "vitest";
import { playedCuda, runScript } from "../src/run-script.js";

it("64 calls at once from 8 workers over the CPU, the reference and a device with queues, aborted at random", (context) => {
  if (!playedCuda) context.skip("the played CUDA back end isn't built, which the lane cuda does");
  const { library, env } = playedCuda!;
  const counts = runScript("storm.mjs", ["12", "11", "cpu", "reference", library], { env, minutes: 8 });
  expect(counts).toMatchObject({ wrong: 0, failed: [] });
  expect((counts.computed as number) + (counts.aborted as number)).toBe(12 * 64);
});
