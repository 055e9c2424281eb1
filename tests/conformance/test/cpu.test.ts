import { loadBackend } from "@tessera/core";
import { describe, it } from "vitest";
import { tableTests } from "./table-tests.js";

tableTests("cpu", () => loadBackend("cpu"));

describe("cpu, variants that this processor lacks", async () => {
  const context = (await loadBackend("cpu")).open({ device: 0 });
  const lacking = context.kernels().filter((kernel) => !kernel.usable);
  context.dispose();
  for (const { name, reason } of lacking) it(name, (test) => test.skip(`${name}: ${reason}`));
  it("each says what it lacks", () => {
    for (const { name, reason } of lacking)
      if (reason === "") throw new Error(`${name} doesn't say why it is unusable`);
  });
});
