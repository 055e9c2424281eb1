/**
 * Two copies of this package in one process: two installations, or the ES module and the CommonJS build of one. Their errors
 * and tensors know each other (Symbol.for), but each has engines, memory and threads of its own. That is told once, and where
 * something of one copy is given to the other.
 */
import { version } from "./version.js";

// A bundle in CommonJS has no import.meta.url.
const url: string | undefined = import.meta.url;
const place = url?.startsWith("file:") ? decodeURIComponent(new URL(url).pathname) : url;

/** This copy, in words. */
export const copy = `@tessera/core ${version} (${place ?? "in a bundle"})`;

const copyBrand = Symbol.for("tessera.copy");
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
