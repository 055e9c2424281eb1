// node benchmarks/import.mjs [PACKAGE…]: milliseconds that importing takes, each time in a process of its own. The median of 21 of
// the clock and, for a machine that does other things too, of processor time.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";

/** Folder of each package that can be imported. From there its own name leads to it, whoever depends on it. */
const folders = new Map();
for (const group of ["packages", "backends"]) {
  const at = join(import.meta.dirname, "..", group);
  for (const folder of readdirSync(at).map((name) => join(at, name))) {
    if (!existsSync(join(folder, "package.json"))) continue;
    const { name, exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    if (exports?.["."]) folders.set(name, folder);
  }
}

const names = process.argv.length > 2 ? process.argv.slice(2) : ["@tessera/core"];
const unknown = names.filter((name) => !folders.has(name));
if (unknown.length > 0) {
  console.error(`no package ${unknown.join(", ")}; there are: ${[...folders.keys()].join(", ")}`);
  process.exit(2);
}
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1].toFixed(1);

console.log(
  `${cpus()[0].model}, Node ${process.versions.node}, ${loadavg()[0].toFixed(1)} busy processes on ${cpus().length} CPUs`,
);
for (const name of names) {
  const source = `
    const begin = performance.now();
    const before = process.cpuUsage();
    await import("${name}");
    const clock = performance.now() - begin;
    const { user, system } = process.cpuUsage(before);
    console.log(JSON.stringify({ clock, processor: (user + system) / 1000 }));`;
  const cwd = folders.get(name);
  const runs = Array.from({ length: 21 }, () =>
    JSON.parse(execFileSync(process.execPath, ["--input-type=module", "-e", source], { cwd })),
  );
  console.log(
    `${name}: ${median(runs.map((run) => run.clock))} ms, processor ${median(runs.map((run) => run.processor))} ms`,
  );
}
