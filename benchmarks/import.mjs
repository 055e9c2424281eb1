// node benchmarks/import.mjs [PACKAGE…]: milliseconds that importing takes, each time in a process of its own. The median of 21 of
// the clock and, for a machine that does other things too, of processor time.
import { execFileSync } from "node:child_process";
import { cpus } from "node:os";

const names = process.argv.length > 2 ? process.argv.slice(2) : ["@tessera/core"];
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1].toFixed(1);

console.log(`${cpus()[0].model}, Node ${process.versions.node}`);
for (const name of names) {
  const source = `
    const begin = performance.now();
    const before = process.cpuUsage();
    await import("${name}");
    const clock = performance.now() - begin;
    const { user, system } = process.cpuUsage(before);
    console.log(JSON.stringify({ clock, processor: (user + system) / 1000 }));`;
  const runs = Array.from({ length: 21 }, () =>
    JSON.parse(execFileSync(process.execPath, ["--input-type=module", "-e", source], { cwd: import.meta.dirname })),
  );
  console.log(
    `${name}: ${median(runs.map((run) => run.clock))} ms, processor ${median(runs.map((run) => run.processor))} ms`,
  );
}
