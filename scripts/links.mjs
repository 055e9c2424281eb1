// Every link of every Markdown file of the repository that leads to a file or a heading of it leads somewhere.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { line } from "./lib/counts.mjs";
import { output, root } from "./lib/sh.mjs";

// Tracked files, and new ones that aren't ignored.
const files = output("git", ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
  .split("\n")
  .filter((file) => !file.startsWith(".changeset/"));
const remark = [join(root, "node_modules/remark-cli/cli.js"), "--frail", "--quiet", "--no-stdout", "--no-color"];
const { status, stdout, stderr } = spawnSync(
  process.execPath,
  [...remark, "--no-config", "--use", "remark-validate-links=repository:false", ...files],
  { cwd: root, encoding: "utf8" },
);
process.stdout.write(stdout + stderr);
const failed = status === 0 ? 0 : Math.max(1, (stderr.match(/\bwarning\b/g) ?? []).length);
console.log(line({ passed: Math.max(0, files.length - failed), failed, skipped: 0 }));
process.exitCode = failed > 0 ? 1 : 0;
