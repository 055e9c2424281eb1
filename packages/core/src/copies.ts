/**
 * Two copies of this package in one process: two installations, or the ES module and the CommonJS build of one. Their errors
 * and tensors know each other (Symbol.for), but each has engines, memory and threads of its own. That is told once, and where
 * something of one copy is given to the other.
 */
import { fileURLToPath } from "node:url";
import { here, packageRoot } from "./package-root.js";
import { version } from "./version.js";

/** This copy, in words. */
const copy = `@tessera/core ${version} (${here.startsWith("file:") ? fileURLToPath(here) : here})`;

const copyBrand = Symbol.for("tessera.copy");
const installations = Symbol.for("tessera.installations");

/** Marks what a class makes as made by this copy. */
export function brandCopy(prototype: object): void {
  Object.defineProperty(prototype, copyBrand, { value: copy });
}

/** If a value was made by another copy: that copy, in words. */
export function otherCopy(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const made = (value as Record<symbol, unknown>)[copyBrand];
  return typeof made === "string" && made !== copy ? made : undefined;
}

export function ofAnotherCopy(name: string, what: string, other: string): string {
  return (
    `${name} is a ${what} of another copy of this package, ${other}; this is ${copy}. ` +
    `Import @tessera/core in one way and one version (\`npm ls @tessera/core\` shows who asks for it)`
  );
}

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
