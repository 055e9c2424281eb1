import { loadBackend } from "@tessera/core";
import { tableTests } from "./table-tests.js";

tableTests("reference", () => loadBackend("reference"), { quick: true, badInput: false });
