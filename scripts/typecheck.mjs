// tsc over every tsconfig.json of the workspace. The packages must be built: they see each other through dist/*.d.ts.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { line } from "./lib/counts.mjs";
import { root } from "./lib/sh.mjs";

let passed = 0;
let failed = 0;
for (const group of ["packages", "backends", "tests", "examples"]) {
  for (const name of readdirSync(join(root, group)).sort()) {
    const project = join(group, name, "tsconfig.json");
    if (!existsSync(join(root, project))) continue;
    const { status } = spawnSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", project], {
      cwd: root,
      stdio: "inherit",
    });
    console.log(`${status === 0 ? "ok  " : "FAIL"} ${project}`);
    if (status === 0) passed++;
    else failed++;
  }
}
console.log(line({ passed, failed, skipped: 0 }));
process.exitCode = failed > 0 ? 1 : 0;
