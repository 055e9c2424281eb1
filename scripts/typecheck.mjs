// tsc over every tsconfig.json of the workspace. The packages must be built: they see each other through dist/*.d.ts.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { line } from "./lib/counts.mjs";
import { jobs, root } from "./lib/sh.mjs";

const projects = ["packages", "backends", "tests", "examples"]
  .flatMap((group) => readdirSync(join(root, group)).map((name) => join(group, name, "tsconfig.json")))
  .filter((project) => existsSync(join(root, project)));

async function check(project) {
  const tsc = [join(root, "node_modules/typescript/bin/tsc"), "-p", project];
  const child = spawn(process.execPath, tsc, { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    said += text;
  });
  const [code] = await once(child, "close");
  console.log(`${code === 0 ? "ok  " : "FAIL"} ${project}\n${said}`.trimEnd());
  return code === 0;
}

const results = [];
const worker = async () => {
  for (let project = projects.shift(); project; project = projects.shift()) results.push(await check(project));
};
await Promise.all(Array.from({ length: Number(jobs) }, worker));
const failed = results.filter((ok) => !ok).length;
console.log(line({ passed: results.length - failed, failed, skipped: 0 }));
process.exitCode = failed > 0 ? 1 : 0;
