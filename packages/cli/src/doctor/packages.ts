import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import type { ProbeReport } from "@tessera/core";

export interface PackageFinding {
  readonly name: string;
  /** Undefined if it isn't installed. */
  readonly version: string | undefined;
  readonly folder: string | undefined;
  /** What is wrong with it, though it is there. */
  readonly problem?: string;
}

const require = createRequire(import.meta.url);

/** The packages of this installation; a back end's is looked for from core, as the engine does. */
export function packages(reports: readonly ProbeReport[], folder = process.cwd()): PackageFinding[] {
  const core = find(require, "@tessera/core");
  const coreRequire = createRequire(require.resolve("@tessera/core"));
  const optional = reports.map(({ backend }) => backend).filter((name) => name !== "reference");
  const found = [
    core,
    ...forPlatforms(core),
    find(require, "@tessera/cli", "../package.json"),
    find(require, "@tessera/bench"),
    ...optional.flatMap((name) => {
      const one = find(coreRequire, `@tessera/${name}`);
      return [one, ...forPlatforms(one)];
    }),
    ...pluginForLlama(coreRequire),
  ].map((one) => checkVersion(one, core.version));
  return [...found, ...secondCopy(core, folder)];
}

function find(from: NodeJS.Require, name: string, specifier = `${name}/package.json`): PackageFinding {
  for (const path of [specifier, `../${specifier}`]) {
    try {
      const resolved = from.resolve(path);
      const { version, name: found } = from(resolved) as { version: string; name: string };
      if (found === name) return { name, version, folder: dirname(resolved) };
    } catch {
      // not there
    }
  }
  return { name, version: undefined, folder: undefined };
}

/** No back end, so it is told of only where it is. */
function pluginForLlama(from: NodeJS.Require): PackageFinding[] {
  const one = find(from, "@tessera/ggml");
  return one.version === undefined ? [] : [one, ...forPlatforms(one)];
}

/** What a package asks for to get its native file: those that are there, else all of them as missing. */
function forPlatforms({ name, folder }: PackageFinding): PackageFinding[] {
  if (folder === undefined || existsSync(join(folder, "CMakeLists.txt")) || existsSync(join(folder, "native/src")))
    return [];
  const { optionalDependencies = {} } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const require = createRequire(join(folder, "package.json"));
  const all = Object.keys(optionalDependencies)
    .filter((other) => other.startsWith(`${name}-`))
    .map((other) => find(require, other));
  const there = all.filter(({ version }) => version !== undefined);
  return there.length > 0 ? there : all;
}

function checkVersion(one: PackageFinding, core: string | undefined): PackageFinding {
  if (one.version === undefined || one.version === core) return one;
  return { ...one, problem: `beside @tessera/core ${core}: versions must be the same` };
}

/** What programs of the folder import, if it isn't what this command does. */
function secondCopy(core: PackageFinding, folder: string): PackageFinding[] {
  const other = find(createRequire(pathToFileURL(join(folder, "package.json"))), "@tessera/core");
  if (other.folder === undefined || core.folder === undefined) return [];
  if (realpathSync(other.folder) === realpathSync(core.folder)) return [];
  return [{ ...other, problem: "a second copy: programs of this folder use it, and this command the first" }];
}
