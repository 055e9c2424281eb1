/** What the install tests use: tools/, with a lock file of its own, so that a clone doesn't install it to get started. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./pack.js";

const folder = join(root, "tests/packaging/tools");

/** Installs tools/ if it has changed. Returns what hinders, or undefined. */
export function installTools(): string | undefined {
  const stamp = createHash("sha256")
    .update(readFileSync(join(folder, "package-lock.json")))
    .digest("hex");
  const stampFile = join(folder, "node_modules", ".tessera-tools");
  if (existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return undefined;
  const { status, stderr, error } = spawnSync("npm", ["ci", "--no-audit", "--no-fund"], {
    cwd: folder,
    encoding: "utf8",
  });
  if (status !== 0) return `npm ci in tests/packaging/tools failed: ${error?.message ?? stderr.trim().split("\n")[0]}`;
  writeFileSync(stampFile, stamp);
  return undefined;
}

export const tool = (path: string) => join(folder, "node_modules", path);

const { dependencies } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
  dependencies: Record<string, string>;
};

/** Each with the exact version that tools/package.json pins, and the one that runs this if it is another. */
const pinned = ["node-20", "node-22", "node-24"].map(
  (name) => [`v${dependencies[name]!.split("@").at(-1)}`, tool(`${name}/bin/node`)] as const,
);
export const nodes: readonly (readonly [string, string])[] = pinned.some(([version]) => version === process.version)
  ? pinned
  : [[process.version, process.execPath], ...pinned];
