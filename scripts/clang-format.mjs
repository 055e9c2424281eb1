// Format of all C, C++, CUDA and HIP sources; --write mends them. Releases of clang-format disagree, so only one counts.
import { spawnSync } from "node:child_process";
import { line } from "./lib/counts.mjs";
import { output, root, which } from "./lib/sh.mjs";

const release = 22;
const program = [`clang-format-${release}`, "clang-format"].find(
  (name) => which(name) && output(name, ["--version"])?.includes(`version ${release}.`),
);
const write = process.argv.includes("--write");
const files = (output("git", ["ls-files", "-co", "--exclude-standard"]) ?? "")
  .split("\n")
  .filter((file) => /\.(c|cc|cpp|h|hpp|cu|cuh|hip)$/.test(file));

if (!program) {
  const reason = `clang-format ${release} not found (Debian: apt-get install clang-format-${release}), ${files.length} files not checked`;
  console.error(reason);
  console.log(line({ passed: 0, failed: 0, skipped: files.length, reasons: { [reason]: files.length } }));
} else {
  let failed = 0;
  for (const file of files) {
    const args = write ? ["-i", file] : ["--dry-run", "-Werror", file];
    if (spawnSync(program, args, { cwd: root, stdio: "inherit" }).status !== 0) failed++;
  }
  console.log(line({ passed: files.length - failed, failed, skipped: 0 }));
  process.exitCode = failed > 0 ? 1 : 0;
}
