import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** This package's folder, from where the workspace's packages resolve. */
export const here = join(dirname(fileURLToPath(import.meta.url)), "..");

/** Runs a program in a Node of its own, as a user's file that can import the packages. */
export function runNode(source: string, extension: "mjs" | "cjs", options: { readonly minutes?: number } = {}) {
  const folder = mkdtempSync(join(here, "node_modules", ".program-"));
  try {
    const file = join(folder, `program.${extension}`);
    writeFileSync(file, source);
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, [file], {
      encoding: "utf8",
      timeout: (options.minutes ?? 1) * 60_000,
      env: { ...process.env, NO_COLOR: "1" },
    });
    return { status, signal, stdout, stderr };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
