/**
 * Where the library of a back end is looked for, in this order:
 *   1. the path that the caller gave;
 *   2. TESSERA_BACKEND_PATH: folders or files, separated like PATH, absolute;
 *   3. the package @tessera/<name>, as @tessera/core sees it, then as the program's folder does.
 * The first file that exists is the one: if it can't be used, that is told rather than hidden by another.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, delimiter, dirname, isAbsolute, join } from "node:path";
import { pathToFileURL } from "node:url";
import type { ProbeState } from "../backend.js";
import { parents } from "../package-root.js";
import { version } from "../version.js";
import { isMusl, libcFixes, platformName, publishedFor, withoutLibrary } from "./platform.js";

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
  /** What it comes to, if no file was found. */
  readonly state: ProbeState;
  readonly attempts: readonly LocateAttempt[];
  /** What to do if no file was found, best first. */
  readonly fixes: readonly string[];
}

export function libraryFile(name: string): string {
  return `libtessera-${name}.so`;
}

export function locate(name: string, library?: string): Located {
  const attempts: LocateAttempt[] = [];
  let trouble: Trouble | undefined;
  const candidates = library === undefined ? fromSurroundings(name) : fromOption(library);
  for (const { found, trouble: met, ...attempt } of candidates) {
    attempts.push(attempt);
    if (found !== undefined) return { library: found, state: "usable", attempts, fixes: [] };
    trouble ??= met;
    if (met?.state === "version-mismatch") break; // it is there, and not passed over
  }
  if (library !== undefined) {
    // A library that the caller names by path belongs to no package of ours.
    return { state: "load-failed", attempts, fixes: [`give the absolute path of a file that exists, not ${library}`] };
  }
  const platforms = (publishedFor as { readonly [name: string]: readonly string[] })[name];
  if (trouble === undefined && platforms !== undefined && !platforms.includes(platformName())) {
    // Installing it would bring nothing.
    const { result, trouble: none } = noneBuilt(name, platforms);
    trouble = none;
    attempts.forEach((attempt, n) => {
      if (attempt.from === "package") attempts[n] = { ...attempt, result: `${attempt.result}, and ${result}` };
    });
  }
  trouble ??= { state: "package-missing", fixes: [`run \`${install(name)}\``] };
  const own = `set TESSERA_BACKEND_PATH to the absolute path of the folder that has ${libraryFile(name)}`;
  const told = trouble.fixes.some((fix) => fix.includes("TESSERA_BACKEND_PATH"));
  const fixes = trouble.state === "package-missing" && !told ? [...trouble.fixes, own] : trouble.fixes;
  return { state: trouble.state, attempts, fixes };
}

/** Versions of this package and its back ends are fixed together, so this is the one that belongs here. */
function install(name: string, options = ""): string {
  return `npm install ${options}@tessera/${name}@${version}`;
}

/** Why a package that is there has no library for us. */
interface Trouble {
  readonly state: ProbeState;
  readonly fixes: readonly string[];
}

interface Candidate extends LocateAttempt {
  readonly found?: string;
  readonly trouble?: Trouble;
}

function* fromOption(library: string): Generator<Candidate> {
  yield candidate("library", library);
}

function* fromSurroundings(name: string): Generator<Candidate> {
  yield* fromEnvironment(name);
  const seen = new Set<string>();
  for (const parent of parents()) {
    const one = fromPackage(name, parent);
    const again = seen.has(one.result) && one.result !== notInstalled; // the same package, seen from another place
    seen.add(one.result);
    if (!again) yield one;
  }
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

const notInstalled = "is not installed";

/** The package's main module exports `library`, an absolute path, and `platformPackage`, the name of what brings it. */
function fromPackage(name: string, parent: string): Candidate {
  const specifier = `@tessera/${name}`;
  const attempt = { from: "package", at: `${specifier} from ${parent}` } as const;
  const require = createRequire(parent);
  try {
    require.resolve(specifier);
  } catch {
    return { ...attempt, result: notInstalled };
  }
  try {
    const { library, platformPackage } = require(specifier) as { library?: unknown; platformPackage?: unknown };
    const manifest = require(`${specifier}/package.json`) as Manifest;
    if (typeof library === "string") return checked(name, attempt, library, manifest);
    if (typeof platformPackage !== "string") return { ...attempt, result: "exports no library" };
    const folder = dirname(require.resolve(`${specifier}/package.json`));
    return withoutPlatform(name, attempt, platformPackage, manifest, folder);
  } catch (error) {
    return { ...attempt, result: `can't be used: ${(error as Error).message}` };
  }
}

export interface LocatedModule {
  /** A URL to import. */
  readonly module?: string;
  readonly state: ProbeState;
  readonly attempts: readonly LocateAttempt[];
}

/** The main module of @tessera/<name>, a back end in JavaScript. */
export function locateModule(name: string): LocatedModule {
  const specifier = `@tessera/${name}`;
  const attempts: LocateAttempt[] = [];
  for (const parent of parents()) {
    const attempt = { from: "package", at: `${specifier} from ${parent}` } as const;
    try {
      const require = createRequire(parent);
      const module = pathToFileURL(require.resolve(specifier)).href;
      const manifest = require(`${specifier}/package.json`) as Manifest;
      if (manifest.version === version)
        return { module, state: "usable", attempts: [...attempts, { ...attempt, result: "found" }] };
      const result = ofAnotherVersion(manifest); // it is there, and not passed over
      return { state: "version-mismatch", attempts: [...attempts, { ...attempt, result }] };
    } catch (error) {
      const absent = (error as NodeJS.ErrnoException).code === "MODULE_NOT_FOUND";
      attempts.push({ ...attempt, result: absent ? notInstalled : `can't be used: ${(error as Error).message}` });
    }
  }
  return { state: "package-missing", attempts };
}

const ofAnotherVersion = (other: Manifest) =>
  `is there as ${other.name} ${other.version}, beside @tessera/core ${version}: versions must be the same`;

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly optionalDependencies?: { readonly [name: string]: string };
}

/** A package's library, if the package and the one that brings the file are of our version. */
function checked(name: string, attempt: LocateAttemptStart, library: string, manifest: Manifest): Candidate {
  const { result, found } = candidate("package", library);
  if (found === undefined) return { ...attempt, result: `${library} ${result}` };
  const other = [manifest, manifestBeside(library)].find((one) => one !== undefined && one.version !== version);
  if (other === undefined) return { ...attempt, result, found };
  return {
    ...attempt,
    result: ofAnotherVersion(other),
    trouble: {
      state: "version-mismatch",
      fixes: [`run \`npm install @tessera/core@${version} @tessera/${name}@${version}\``],
    },
  };
}

type LocateAttemptStart = Omit<LocateAttempt, "result">;

function manifestBeside(library: string): Manifest | undefined {
  try {
    return JSON.parse(readFileSync(join(dirname(library), "package.json"), "utf8")) as Manifest;
  } catch {
    return undefined;
  }
}

/** The package is installed, the one with the library for this platform isn't. */
function withoutPlatform(
  name: string,
  attempt: LocateAttemptStart,
  platformPackage: string,
  { optionalDependencies = {} }: Manifest,
  folder: string,
): Candidate {
  if (existsSync(join(folder, "CMakeLists.txt"))) {
    const fixes = [`in this clone, run \`node scripts/build-native.mjs ${name}\``];
    return { ...attempt, result: "is a clone's, and isn't built", trouble: { state: "package-missing", fixes } };
  }
  if (platformPackage in optionalDependencies) {
    const fixes = [
      `run \`${install(name, "--include=optional ")}\` (after deleting node_modules and the lock file, if that was written on another system)`,
    ];
    const result = `is installed without ${platformPackage}, which has its library: optional dependencies were left out`;
    return { ...attempt, result, trouble: { state: "package-missing", fixes } };
  }
  const prefix = `@tessera/${name}-`;
  const built = Object.keys(optionalDependencies)
    .filter((one) => one.startsWith(prefix))
    .map((one) => one.slice(prefix.length));
  return { ...attempt, ...noneBuilt(name, built) };
}

/** There is no package with its library for this platform. */
function noneBuilt(name: string, built: readonly string[]): { readonly result: string; readonly trouble: Trouble } {
  const result = `has no library for ${platformName()}, only for ${built.join(", ")}`;
  if (isMusl()) return { result, trouble: { state: "wrong-libc", fixes: libcFixes() } };
  const fixes = [
    withoutLibrary,
    `build ${libraryFile(name)} from Tessera's sources on this machine, and set TESSERA_BACKEND_PATH to the absolute path of its folder`,
  ];
  return { result, trouble: { state: "package-missing", fixes } };
}
