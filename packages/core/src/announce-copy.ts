/** Two installations of this package in one process are told of once: copies.ts. */
import { copy } from "./copies.js";
import { packageRoot } from "./package-root.js";

const installations = Symbol.for("tessera.installations");

/** Called when an engine is opened: warns once for each further installation in the process. */
export function announceCopy(): void {
  const world = globalThis as { [installations]?: Map<string, string> };
  world[installations] ??= new Map();
  const known = world[installations];
  if (known.has(packageRoot.href)) return; // ESM and CommonJS of one installation are fine
  known.set(packageRoot.href, copy);
  if (known.size === 1) return;
  process.emitWarning(
    `There are ${known.size} copies of @tessera/core in this process: ${[...known.values()].join(", ")}`,
    {
      type: "TesseraWarning",
      code: "TESSERA_TWO_COPIES",
      detail:
        "Each has threads and memory of its own, and tensors of one can't be used with the other.\n" +
        "What to do:\n  1. see who asks for which: `npm ls @tessera/core`\n  2. run `npm dedupe`, or ask for one version everywhere",
    },
  );
}
