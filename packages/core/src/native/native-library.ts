/** Finds and loads the addon, tessera.node. That it is missing is an answer, not an exception. */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { packageRoot } from "../package-root.js";
import type { Addon } from "./addon.js";
import { isMusl } from "./platform.js";

export interface AddonAttempt {
  readonly path: string;
  readonly result: string;
}

export type NativeLibrary =
  | { readonly addon: Addon; readonly path: string; readonly attempts: readonly AddonAttempt[] }
  | {
      readonly addon?: undefined;
      readonly reason: string;
      readonly fix: string;
      readonly attempts: readonly AddonAttempt[];
    };

/** Version of the contract that this TypeScript was written for. */
const abi = 1;

const require = createRequire(packageRoot);

let found: NativeLibrary | undefined;

/** The addon of this process, looked for once. */
export function nativeLibrary(): NativeLibrary {
  found ??= find();
  return found;
}

function find(): NativeLibrary {
  const attempts: AddonAttempt[] = [];
  for (const candidate of candidates()) {
    const { path } = candidate;
    if (path === undefined || !existsSync(path)) {
      attempts.push({ path: path ?? candidate.name, result: "does not exist" });
      continue;
    }
    try {
      const addon = require(path) as Addon;
      if (addon.abi !== abi) {
        attempts.push({ path, result: `speaks version ${addon.abi} of the contract, not ${abi}` });
        continue;
      }
      attempts.push({ path, result: "loaded" });
      return { addon, path, attempts };
    } catch (error) {
      attempts.push({ path, result: (error as Error).message });
    }
  }
  const tried = attempts.map(({ path, result }) => `${path}: ${result}`).join("; ");
  return {
    attempts,
    reason: `tessera.node, the addon that loads back ends, can't be used on ${platformName()} (${tried})`,
    fix: "in a clone run `npm run build`; otherwise install @tessera/core again, with optional dependencies",
  };
}

function* candidates(): Generator<{ name: string; path: string | undefined }> {
  yield { name: "build", path: fileURLToPath(new URL("native/build/Release/tessera.node", packageRoot)) };
  const name = `@tessera/core-${platformName()}`;
  yield { name, path: resolved(`${name}/tessera.node`) };
}

function resolved(specifier: string): string | undefined {
  try {
    return require.resolve(specifier);
  } catch {
    return undefined;
  }
}

/** "linux-x64", "linux-arm64-musl", "darwin-arm64", ... */
export function platformName(): string {
  return `${process.platform}-${process.arch}${isMusl() ? "-musl" : ""}`;
}
