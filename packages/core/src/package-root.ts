/** Where this package's files are, and where others are resolved from. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** Where this code lies. A bundle in CommonJS has no import.meta.url: then the program that was started is taken. */
export const here: string = import.meta.url ?? pathToFileURL(process.argv[1] ?? join(process.cwd(), "program")).href;

/**
 * The folder of @tessera/core, as a URL that ends in "/". Source (src/) and build (dist/) lie at the same depth in it. In a
 * bundle it is some folder of the program.
 */
export const packageRoot = new URL("..", here);

let found: readonly string[] | undefined;

/**
 * URLs that packages are resolved from, best first: this package, the program's folder, and, where this code is bundled, the
 * file that it is bundled in and a @tessera/core that is installed beside it.
 */
export function parents(): readonly string[] {
  const program = pathToFileURL(join(process.cwd(), "package.json")).href;
  found ??= isPackage(packageRoot) ? [packageRoot.href] : bundled();
  return [...found, program];
}

function bundled(): string[] {
  try {
    return [here, pathToFileURL(createRequire(here).resolve("@tessera/core/package.json")).href];
  } catch {
    return [here];
  }
}

function isPackage(folder: URL): boolean {
  try {
    return JSON.parse(readFileSync(new URL("package.json", folder), "utf8")).name === "@tessera/core";
  } catch {
    return false;
  }
}
