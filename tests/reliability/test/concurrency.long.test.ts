import { expect, it } from "vitest";
import { playedCuda, runScript } from "../src/run-script.js";

it("64 calls at once from 8 workers over the CPU, the reference and two devices with queues, aborted at random", (context) => {
  if (!playedCuda) context.skip("the played CUDA back end isn't built, which the lane cuda does");
  const { library, env } = playedCuda!;
  const devices = { ...env, STUB_DEVICES: `${env.STUB_DEVICES},${env.STUB_DEVICES}` };
  const backends = ["cpu", "reference", `${library}:0`, `${library}:1`];
  const counts = runScript("storm.mjs", ["12", "11", ...backends], { env: devices, minutes: 8 });
  expect(counts).toMatchObject({ wrong: 0, failed: [] });
  expect((counts.computed as number) + (counts.aborted as number)).toBe(12 * 64);
});
