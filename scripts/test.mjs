// Runs the lanes of lanes.mjs one after the other and closes with one line, "N passed, N failed, N skipped".
//   npm test                      the quick lanes            npm test -- --only core,cli     some of them
//   npm run test:full             all lanes                  npm test -- --list              their names
//   npm run test:full -- --ci     the long lanes that .ci/run adds to `npm test`
//   --no-setup                    trust that everything is installed and built
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { lanes } from "./lanes.mjs";
import { add, none, parse, sentence } from "./lib/counts.mjs";
import { fail, root, run, which } from "./lib/sh.mjs";

const args = process.argv.slice(2);
const flag = (name) => args.includes(name);
const full = flag("--full");
const only = flag("--only") ? (args[args.indexOf("--only") + 1] ?? "").split(",") : null;

function chosen() {
  if (only) {
    const unknown = only.filter((name) => !lanes.some((lane) => lane.name === name));
    if (unknown.length > 0)
      fail(`no lane ${unknown.join(", ")}; there are: ${lanes.map((lane) => lane.name).join(", ")}`);
    return lanes.filter((lane) => only.includes(lane.name));
  }
  if (full && flag("--ci")) return lanes.filter((lane) => lane.long && lane.ci);
  return lanes.filter((lane) => full || !lane.long);
}

const missing = (lane) => (lane.needs ?? []).filter((need) => !which(need) && !existsSync(join(root, need)));

/** Runs the lane's command into its log. The process group is ended with it, so that no child outlives a time limit. */
async function execute(lane, logFile) {
  const [program, ...rest] = lane.command;
  const child = spawn(program === "node" ? process.execPath : program, rest, {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    env: { ...process.env, NO_COLOR: "1", FORCE_COLOR: undefined }, // logs are read by people and by grep
  });
  const log = createWriteStream(logFile);
  child.stdout.pipe(log, { end: false });
  child.stderr.pipe(log, { end: false });
  let late = false;
  const timer = setTimeout(
    () => {
      late = true;
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {}
    },
    (lane.minutes ?? 10) * 60_000,
  );
  const [code, signal] = await Promise.race([
    once(child, "close"),
    once(child, "error").then(([error]) => [String(error), null]),
  ]);
  clearTimeout(timer);
  log.end();
  await once(log, "finish");
  if (late) return `time limit of ${lane.minutes ?? 10} minutes`;
  return code === 0 ? null : (signal ?? `exit ${code}`);
}

async function runLane(lane) {
  const gone = missing(lane);
  if (gone.length > 0) {
    const reason = `${lane.name}: needs ${gone.join(", ")}, not found here`;
    return { counts: { ...none(), skipped: 1, reasons: { [reason]: 1 } }, problem: null };
  }
  const logFile = join(root, "out", "logs", `${lane.name}.log`);
  const failure = await execute(lane, logFile);
  const text = readFileSync(logFile, "utf8");
  const counts = lane.counts === "exit" ? { ...none(), passed: failure ? 0 : 1 } : (parse(text) ?? none());
  let problem = failure;
  if (!problem && counts.failed > 0) problem = `${counts.failed} failed`;
  if (!problem && counts.passed + counts.skipped === 0) problem = "it counted no test";
  if (problem && counts.failed === 0) counts.failed = 1;
  return { counts, problem, text, logFile };
}

if (flag("--list")) {
  for (const lane of lanes) console.log(`${lane.name}${lane.long ? (lane.ci ? "  (long, ci)" : "  (long)") : ""}`);
  process.exit(0);
}
if (!flag("--no-setup")) run(process.execPath, [join(root, "scripts/setup.mjs")]);
mkdirSync(join(root, "out", "logs"), { recursive: true });

const total = none();
const failures = [];
const started = Date.now();
for (const lane of chosen()) {
  const begin = Date.now();
  console.log(`${lane.name} …`);
  const { counts, problem, text, logFile } = await runLane(lane);
  add(total, counts);
  console.log(`${lane.name}: ${sentence(counts)} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
  for (const [reason, n] of Object.entries(counts.reasons)) console.log(`  SKIPPED ${n}: ${reason}`);
  if (problem) {
    failures.push(lane.name);
    console.log(`  FAILED: ${problem}. The end of ${logFile.slice(root.length + 1)}:\n`);
    console.log(
      text
        .trimEnd()
        .split("\n")
        .slice(-60)
        .map((row) => `  | ${row}`)
        .join("\n"),
      "\n",
    );
  }
}

writeFileSync(join(root, "out", full ? "summary-full.json" : "summary-quick.json"), `${JSON.stringify(total)}\n`);
console.log(`\n${((Date.now() - started) / 1000).toFixed(0)} s; logs in out/logs/`);
if (failures.length > 0) console.log(`failed: ${failures.join(", ")}`);
console.log(sentence(total));
process.exitCode = failures.length > 0 ? 1 : 0;
