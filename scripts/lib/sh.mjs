// Running programs and finding them. Plain Node, so that it works before anything is installed.
import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, realpathSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const jobs = String(availableParallelism());

/** Whether a module was started by itself, not imported. */
export const isMain = (meta) =>
  process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(meta.url);

/** Absolute path of a program on PATH (or of one given by path), or null. */
export function which(program) {
  if (program.includes("/")) return existsSync(program) ? program : null;
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const suffix of process.platform === "win32" ? [".exe", ".cmd"] : [""]) {
      const file = join(folder, program + suffix);
      try {
        accessSync(file, constants.X_OK);
        if (statSync(file).isFile()) return file;
      } catch {}
    }
  }
  return null;
}

/** Runs a program with this terminal; ends this process with its exit code if it fails. */
export function run(program, args, options = {}) {
  const { status, signal, error } = spawnSync(program, args, { cwd: root, stdio: "inherit", ...options });
  if (error) fail(`${program}: ${error.message}`);
  if (status !== 0) {
    console.error(`\nfailed (${signal ?? `exit ${status}`}): ${program} ${args.join(" ")}`);
    process.exit(status || 1);
  }
}

/** What a program prints on either stream, trimmed; null if it is missing or fails. */
export function output(program, args) {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd: root, encoding: "utf8" });
  return status === 0 ? (stdout + stderr).trim() : null;
}

export function fail(message) {
  console.error(message);
  process.exit(1);
}
