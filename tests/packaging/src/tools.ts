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

/** By major version; the middle one is whoever runs this. */
export const nodes: readonly (readonly [string, string])[] = [
  [process.version, process.execPath],
  ["22", tool("node-22/bin/node")],
  ["24", tool("node-24/bin/node")],
];
