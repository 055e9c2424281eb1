// The tools of compute-sanitizer over the table of `tessera conform`, every case through every kernel that takes it, side by side:
//   node tests/reliability/sanitize.mjs [--library /path/to/libtessera-cuda.so] [--seconds 570] [--jobs 16] [--parts 16]
//                                       [--tools memcheck,racecheck,initcheck,synccheck] [--from N | --from TOOL:N,TOOL:N]
//                                       [--whole] [--quick] [--layout NAME]... [--kernel NAME]... [--filter REGEX] [--out FOLDER]
// The table is cut into parts; part n has each case whose number leaves n when divided by their number. Every tool does part 0, then
// every tool part 1, and so on. When the time is over, no case is begun any more, and it is told what wasn't reached and how to go on
// there. Logs go to FOLDER (out/sanitize). Exit code 1: a tool found something or had no result, a result was wrong, a process died or
// wouldn't end, or, with --whole, a part wasn't reached.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = fileURLToPath(new URL("../../", import.meta.url));
const all = ["memcheck", "racecheck", "initcheck", "synccheck"];
const { values: given } = parseArgs({
  options: {
    library: { type: "string" },
    seconds: { type: "string", default: "570" },
    jobs: { type: "string", default: String(availableParallelism()) },
    parts: { type: "string", default: "16" },
    tools: { type: "string", default: all.join() },
    from: { type: "string", default: "0" },
    quick: { type: "boolean", default: false },
    whole: { type: "boolean", default: false },
    layout: { type: "string", multiple: true },
    kernel: { type: "string", multiple: true },
    filter: { type: "string" },
    out: { type: "string", default: join(root, "out/sanitize") },
  },
});

function refuse(message) {
  console.error(message);
  process.exit(2);
}
function whole(name, least, most) {
  const value = Number(given[name]);
  if (!Number.isInteger(value) || value < least || value > most)
    refuse(`--${name} is ${given[name]}; allowed: a whole number from ${least} to ${most}`);
  return value;
}
const [seconds, jobs, parts] = [whole("seconds", 60, 1e6), whole("jobs", 1, 256), whole("parts", 1, 1000)];
const tools = given.tools.split(",");
const first = Object.fromEntries(tools.map((tool) => [tool, 0]));
for (const text of given.from.split(",")) {
  const [, tool, number] = /^(?:(\w+):)?(\d+)$/.exec(text) ?? refuse(`--from is ${text}; allowed: 3 or memcheck:3`);
  if (Number(number) > parts) refuse(`--from is ${text}; there are ${parts} parts`);
  for (const one of tool === undefined ? tools : [tool]) first[one] = Number(number);
}
for (const tool of Object.keys(first)) if (!all.includes(tool)) refuse(`${tool} isn't one of ${all.join(", ")}`);

const found = (paths) => paths.map((path) => join(root, path)).find(existsSync);
const library = given.library
  ? resolve(given.library)
  : found(["backends/cuda/lib/libtessera-cuda.so", "node_modules/@tessera/cuda-linux-x64-gnu/libtessera-cuda.so"]);
if (!library || !existsSync(library))
  refuse(`${library ?? "libtessera-cuda.so"} isn't there; --library gives another place`);
const conform = found(["packages/cli/dist/conform-child.js", "node_modules/@tessera/cli/dist/conform-child.js"]);
if (!conform) refuse("The packages aren't built. Run `npm run setup` first.");
mkdirSync(given.out, { recursive: true });

const begun = Date.now();
const end = begun + seconds * 1000;
/** What a case and a tool's last words may take; who hasn't ended then is killed. */
const grace = 20_000;
/** A process that starts later would hardly come to its first case. */
const startup = 30_000;

/** One part under one tool: what it did, and what was wrong. */
async function run({ tool, part }) {
  const log = join(given.out, `${tool}-${part}.log`);
  rmSync(log, { force: true });
  const { quick, filter, layout: layouts, kernel: kernels } = given;
  const request = { library, quick, filter, layouts, kernels, part: [part, parts], until: end - grace };
  const args = ["--tool", tool, "--error-exitcode", "9", "--log-file", log];
  const child = spawn("compute-sanitizer", [...args, process.execPath, conform, JSON.stringify(request)], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true, // a group of its own, which ends together
  });
  let [text, printed, current, late] = ["", "", "its start", false];
  let report;
  let progress = {};
  child.stdout.on("data", (data) => {
    const lines = (text + data).split("\n");
    text = lines.pop();
    for (const line of lines) {
      let message = {};
      try {
        message = JSON.parse(line);
      } catch {
        printed += `${line}\n`;
      }
      if (message.kind === "progress") {
        progress = message.progress;
        current = progress.case || current;
      } else if (message.kind === "report") report = message.report;
      else if (message.message ?? message.reason) printed += `${message.message ?? message.reason}\n`;
    }
  });
  child.stderr.on("data", (data) => {
    printed += data;
  });
  const timer = setTimeout(() => {
    late = true;
    process.kill(-child.pid, "SIGKILL");
  }, end - Date.now());
  const status = await new Promise((done) => {
    child.once("error", (error) => done(error.message));
    child.once("close", (code, signal) => done(signal ?? code));
  });
  clearTimeout(timer);
  const said = existsSync(log) ? readFileSync(log, "utf8") : "";
  const sums = [...said.matchAll(/SUMMARY: (\d+)/g)].map(([, number]) => Number(number));
  const trouble = [];
  if (sums.some((sum) => sum > 0)) trouble.push(`${tool} found ${Math.max(...sums)}: ${log}`);
  else if (/Error|Hazard|Invalid|Uninitialized/.test(said.replace(/SUMMARY.*/g, ""))) trouble.push(`see ${log}`);
  if (late) {
    // Cases that are slow end within the grace, behind which none is begun.
    trouble.push(`didn't end: killed in ${current}`);
  } else {
    if (status !== 0) trouble.push(`ended with ${status} in ${current}: ${printed.trim().slice(-500)}`);
    if (sums.length === 0) trouble.push(`${tool} gave no summary`);
    if (!report) trouble.push("no report");
  }
  for (const { id, check, message } of report?.failures ?? []) trouble.push(`FAIL ${id} [${check}] ${message}`);
  const [cases, selected] = [report?.cases ?? progress.done ?? 0, report?.selected ?? progress.total];
  const state = trouble.length > 0 ? "FAILED" : cases < selected ? "cut short" : "done";
  return { tool, part, state, trouble, cases, selected, passed: report?.passed ?? 0, kernels: report?.kernels ?? [] };
}

const queue = [];
for (let part = 0; part < parts; part++) for (const tool of tools) if (part >= first[tool]) queue.push({ tool, part });
const results = [];
const worker = async () => {
  while (queue.length > 0 && Date.now() + grace + startup < end) {
    const from = Date.now();
    const result = await run(queue.shift());
    results.push(result);
    const { tool, part, state, trouble, cases, selected, passed } = result;
    const took = `${Math.round((Date.now() - from) / 1000)} s, at ${Math.round((Date.now() - begun) / 1000)} s`;
    console.log(`${tool} ${part}: ${state}, ${cases} of ${selected ?? "?"} cases, ${passed} results, ${took}`);
    for (const line of trouble.slice(0, 20)) console.log(`  ${line}`);
  }
};
await Promise.all(Array.from({ length: jobs }, worker));

const list = (numbers) => (numbers.length === 0 ? "none" : numbers.join(" "));
const next = [];
for (const tool of tools) {
  const its = results.filter((result) => result.tool === tool).sort((a, b) => a.part - b.part);
  const sum = (key) => its.reduce((total, result) => total + result[key], 0);
  const byKernel = new Map();
  for (const { name, passed } of its.flatMap(({ kernels }) => kernels))
    byKernel.set(name, (byKernel.get(name) ?? 0) + passed);
  const partsOf = (test) => its.filter(test).map(({ part }) => part);
  const failed = partsOf(({ state }) => state === "FAILED");
  const short = partsOf(({ state }) => state === "cut short");
  const unreached = queue.filter((unit) => unit.tool === tool).map(({ part }) => part);
  console.log(`${tool}: ${sum("cases")} cases, ${sum("passed")} results, ${failed.length} parts failed`);
  console.log(`  ${[...byKernel].map(([name, passed]) => `${name} ${passed}`).join(", ")}`);
  console.log(`  parts done: ${list(partsOf(({ state }) => state === "done"))}; failed: ${list(failed)}`);
  console.log(`  cut short: ${list(short)}; not reached: ${list(unreached)}`);
  next.push(`${tool}:${Math.min(parts, ...short, ...unreached)}`);
}
const finished = next.every((text) => text.endsWith(`:${parts}`));
console.log(finished ? "every part was reached" : `to go on: --parts ${parts} --from ${next.join()}`);
const failed = results.filter(({ state }) => state === "FAILED").length;
console.log(`${Math.round((Date.now() - begun) / 1000)} s, ${failed} failed`);
const idle = tools.filter(
  (tool) => first[tool] < parts && !results.some((result) => result.tool === tool && result.passed > 0),
);
if (idle.length > 0) console.log(`FAILED: no result from ${idle.join(", ")}`);
if (given.whole && !finished) console.log("FAILED: parts weren't reached");
process.exitCode = failed > 0 || idle.length > 0 || (given.whole && !finished) ? 1 : 0;
