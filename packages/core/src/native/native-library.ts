/** Finds and loads the addon, tessera.node. That it is missing is an answer, not an exception. */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ProbeState } from "../backend.js";
import { damagedFix, fixSteps } from "../fixes.js";
import { packageRoot, parents } from "../package-root.js";
import { version } from "../version.js";
import type { Addon } from "./addon.js";
import { damageNow } from "./intact.js";
import { isMusl, libcFixes, platformName, publishedFor, withoutLibrary, wrongLibc } from "./platform.js";

export interface AddonAttempt {
  readonly path: string;
  readonly result: string;
}

export type NativeLibrary =
  | { readonly addon: Addon; readonly path: string; readonly attempts: readonly AddonAttempt[] }
  | {
      readonly addon?: undefined;
      readonly state: ProbeState;
      readonly reason: string;
      /** What would help, best first, separated by "; or ". */
      readonly fix: string;
      readonly attempts: readonly AddonAttempt[];
    };

/** Version of the contract that this TypeScript was written for. */
const abi = 1;

let found: NativeLibrary | undefined;

/** The addon of this process, looked for once. */
export function nativeLibrary(): NativeLibrary {
  found ??= find();
  return found;
}

interface Trouble {
  readonly state: ProbeState;
  readonly fixes: readonly string[];
}

function find(): NativeLibrary {
  const attempts: AddonAttempt[] = [];
  let trouble: Trouble | undefined;
  for (const { name, path } of candidates()) {
    if (path === undefined) {
      attempts.push({ path: name, result: "is not installed" });
      continue;
    }
    if (!existsSync(path)) {
      attempts.push({ path, result: "does not exist" });
      continue;
    }
    const { addon, result, ...met } = load(path);
    attempts.push({ path, result });
    if (addon !== undefined) return { addon, path, attempts };
    trouble ??= { state: met.state ?? "load-failed", fixes: met.fixes ?? [reinstall] };
  }
  const tried = attempts.map(({ path, result }) => `${path}: ${result}`).join("; ");
  const { state, fixes } = trouble ?? missing();
  return {
    attempts,
    state,
    reason: `tessera.node, the addon that loads back ends, can't be used on ${platformName()} (${tried})`,
    fix: fixes.join("; or "),
  };
}

const reinstall = `run \`npm install --include=optional @tessera/core@${version}\` (after deleting node_modules and the lock file, if that was written on another system)`;

function missing(): Trouble {
  const built = publishedFor.core;
  if (built.includes(platformName()))
    return { state: "package-missing", fixes: [reinstall, "in a clone run `npm run build`"] };
  if (isMusl()) return { state: "wrong-libc", fixes: libcFixes() };
  return {
    state: "package-missing",
    fixes: [
      withoutLibrary,
      `use one of the platforms that there are packages for: ${built.join(", ")}; elsewhere build Tessera from its sources`,
    ],
  };
}

interface Loaded {
  readonly addon?: Addon;
  readonly result: string;
  readonly state?: ProbeState;
  readonly fixes?: readonly string[];
}

function load(path: string): Loaded {
  try {
    const damage = damageNow(path);
    if (damage !== undefined) return { result: damage, fixes: fixSteps(damagedFix) };
    const other = otherVersion(path);
    if (other !== undefined) return { result: other, state: "version-mismatch" };
    const addon = createRequire(packageRoot)(path) as Addon;
    if (addon.abi === abi) return { addon, result: "loaded" };
    return { result: `speaks version ${addon.abi} of the contract, not ${abi}`, state: "abi-mismatch" };
  } catch (error) {
    const { message } = error as Error;
    const libc = wrongLibc(path, message);
    return libc === undefined ? { result: message } : { result: libc.reason, state: "wrong-libc", fixes: libc.fixes };
  }
}

/** What is wrong with the version of the package that brought the addon. What a clone built is in none. */
function otherVersion(path: string): string | undefined {
  const file = join(dirname(path), "package.json");
  if (!existsSync(file)) return undefined;
  const own = JSON.parse(readFileSync(file, "utf8")) as { readonly name: string; readonly version: string };
  if (own.version === version) return undefined;
  return `is there as ${own.name} ${own.version}, beside @tessera/core ${version}: versions must be the same`;
}

function* candidates(): Generator<{ name: string; path: string | undefined }> {
  yield { name: "build", path: fileURLToPath(new URL("native/build/Release/tessera.node", packageRoot)) };
  const name = `@tessera/core-${platformName()}`;
  const paths = new Set(parents().map((parent) => resolved(parent, `${name}/tessera.node`)));
  if (paths.size > 1) paths.delete(undefined);
  for (const path of paths) yield { name, path };
}

function resolved(parent: string, specifier: string): string | undefined {
  try {
    return createRequire(parent).resolve(specifier);
  } catch {
    return undefined;
  }
}
