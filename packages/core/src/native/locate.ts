/**
 * Where the library of a back end is looked for, in this order:
 *   1. the path that the caller gave;
 *   2. TESSERA_BACKEND_PATH: folders or files, separated like PATH, absolute;
 *   3. the package @tessera/<name>, as @tessera/core sees it, then as the program's folder does.
 * The first file that exists is the one: if it can't be used, that is told rather than hidden by another.
 */
import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, delimiter, isAbsolute, join } from "node:path";
import { pathToFileURL } from "node:url";
import { packageRoot } from "../package-root.js";
import { isMusl } from "./platform.js";

export interface LocateAttempt {
  /** What led here. */
  readonly from: "library" | "TESSERA_BACKEND_PATH" | "package";
  /** A path, or the name of a package and from where it was resolved. */
  readonly at: string;
  readonly result: string;
}

export interface Located {
  /** Absolute path, if a file was found. */
  readonly library?: string;
  readonly attempts: readonly LocateAttempt[];
}

export function libraryFile(name: string): string {
  return `libtessera-${name}.so`;
}

export function locate(name: string, library?: string): Located {
  const attempts: LocateAttempt[] = [];
  const candidates = library === undefined ? fromSurroundings(name) : fromOption(library);
  for (const { found, ...attempt } of candidates) {
    attempts.push(attempt);
    if (found !== undefined) return { library: found, attempts };
  }
  return { attempts };
}

interface Candidate extends LocateAttempt {
  readonly found?: string;
}

function* fromOption(library: string): Generator<Candidate> {
  yield candidate("library", library);
}

function* fromSurroundings(name: string): Generator<Candidate> {
  yield* fromEnvironment(name);
  yield fromPackage(name, packageRoot.href);
  yield fromPackage(name, pathToFileURL(join(process.cwd(), "package.json")).href);
}

function* fromEnvironment(name: string): Generator<Candidate> {
  const from = "TESSERA_BACKEND_PATH";
  for (const entry of (process.env[from] ?? "").split(delimiter)) {
    if (entry === "") continue;
    const folder = isAbsolute(entry) && statSync(entry, { throwIfNoEntry: false })?.isDirectory();
    if (folder) yield candidate(from, join(entry, libraryFile(name)));
    else if (!isAbsolute(entry) || !existsSync(entry) || basename(entry) === libraryFile(name))
      yield candidate(from, entry);
    else yield { from, at: entry, result: `is named after another back end, not ${libraryFile(name)}` };
  }
}

function candidate(from: Candidate["from"], at: string): Candidate {
  if (!isAbsolute(at)) return { from, at, result: "is not an absolute path" };
  if (!existsSync(at)) return { from, at, result: "does not exist" };
  return { from, at, result: "found", found: at };
}

/** The package's main module exports `library`, an absolute path. */
function fromPackage(name: string, parent: string): Candidate {
  const specifier = `@tessera/${name}`;
  const from = "package";
  const at = `${specifier} from ${parent}`;
  const require = createRequire(parent);
  try {
    require.resolve(specifier);
  } catch {
    return { from, at, result: "is not installed" };
  }
  try {
    const { library } = require(specifier) as { library?: unknown };
    if (typeof library !== "string") return { from, at, result: "exports no library" };
    const { result, found } = candidate(from, library);
    return found === undefined ? { from, at, result: `${library} ${result}` } : { from, at, result, found };
  } catch (error) {
    return { from, at, result: `can't be used: ${(error as Error).message}` };
  }
}

/** What to do when nothing was found, best first. */
export function fixes(name: string, attempts: readonly LocateAttempt[]): string[] {
  const ordered: string[] = [];
  const asked = attempts.find(({ from }) => from === "library");
  // A library that the caller names by path belongs to no package of ours.
  if (asked !== undefined) return [`give the absolute path of a file that exists, not ${asked.at}`];
  if (attempts.some(({ from, result }) => from === "package" && result.endsWith("does not exist")))
    ordered.push("its package is there but its library isn't: in a clone run `npm run build`");
  ordered.push(`run \`npm install @tessera/${name}\``);
  ordered.push(`set TESSERA_BACKEND_PATH to the absolute path of the folder that has ${libraryFile(name)}`);
  if (isMusl())
    ordered.push("use a system with glibc: prebuilt libraries don't load on this one, whose C library is musl");
  return ordered;
}
