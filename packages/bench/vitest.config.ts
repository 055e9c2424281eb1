import { fileURLToPath } from "node:url";
import { tests } from "../../vitest.shared.js";

// The long suite runs on a played GPU: the test's processes, which inherit this, find its driver where a real one's would be.
if (process.env.TESSERA_LONG === "1") {
  Object.assign(process.env, {
    LD_LIBRARY_PATH: fileURLToPath(new URL("../../build/cuda/backends/cuda/stub-driver", import.meta.url)),
    STUB_DEVICES: "90",
    STUB_RETAIN: "0",
    TESSERA_EMULATED: "1",
  });
}

export default tests();
