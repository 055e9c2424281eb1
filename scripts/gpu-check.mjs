// Everything that can be asked of a GPU, in one call without network, each step with a time limit of its own:
//   node scripts/gpu-check.mjs cuda|hip [--only REGEX] [--minutes N] [--library PATH] [--out FOLDER] [--list]
// In a clone that is built (npm run build, npm run build:gpu), or in the bundle of scripts/bench-bundle.mjs. What a step prints
// and the result files go to FOLDER (out/gpu-check), with summary.json. Exit code 1: a step failed; a step that ran out of its
// time, or that lacks a program, is told and no failure.
import { spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { loadBackend } from "@tessera/core";
import { fail, output, root, which } from "./lib/sh.mjs";

const { values: given, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    only: { type: "string", default: "" },
    library: { type: "string" },
    minutes: { type: "string", default: "60" },
    out: { type: "string", default: join(root, "out", "gpu-check") },
    list: { type: "boolean", default: false },
  },
});
const [backend = ""] = positionals;
const minutes = Number(given.minutes);
if (!["cuda", "hip"].includes(backend) || positionals.length > 1)
  fail(
    "usage: node scripts/gpu-check.mjs cuda|hip [--only REGEX] [--minutes N] [--library PATH] [--out FOLDER] [--list]",
  );
if (!(minutes > 0)) fail(`--minutes is ${given.minutes}; allowed: a number above 0`);
let only;
try {
  only = new RegExp(given.only);
} catch {
  fail(`--only is ${given.only}; allowed: a regular expression`);
}
const out = resolve(given.out);

const loaded = await loadBackend(given.library ? { library: given.library } : backend).catch((error) =>
  fail(`${backend}: ${error.message}`),
);
const library = loaded.path;
const { devices, reason } = loaded.probe();
const device = devices.find(({ state }) => state === "usable");
if (!device && !given.list) fail(`${backend}: no usable device: ${devices[0]?.reason || reason}`);
const node = process.execPath;
const inRoot = (...parts) => join(root, ...parts);
const cli = [inRoot("packages/cli"), inRoot("node_modules/@tessera/cli")]
  .map((folder) => join(folder, "bin/tessera.js"))
  .find(existsSync);
const bench = [inRoot("packages/bench"), inRoot("node_modules/@tessera/bench")].find(existsSync);

const torch = backend === "cuda" && output("python3", ["-c", "import torch, triton"]) !== null;

/** `needs`: programs and files without which the step is skipped. */
const step = (name, seconds, command, more = {}) => ({ name, seconds, command, needs: [], ...more });
const tessera = (name, seconds, args, more) => step(name, seconds, [node, cli, ...args], more);

function programs() {
  const folders = [inRoot("build", backend, "tests/abi"), inRoot("build", backend, "backends", backend)];
  const paths = folders.flatMap((folder) =>
    existsSync(folder)
      ? readdirSync(folder)
          .filter((file) => /^test-(abi-\w+|\w+-device)$/.test(file))
          .map((file) => join(folder, file))
      : [],
  );
  if (paths.length === 0) return [step("programs", 0, [], { needs: [join(folders[0], "test-abi-smoke")] })];
  return paths.map((path) => step(basename(path), 180, [path, library]));
}

const suites = { ladder: 180, tutorial: 60, prefill: 90, decode: 120, gqa: 60, "head-dims": 60, features: 90 };

const conform = ["conform", library];
function sanitizer() {
  if (backend !== "cuda") return [];
  const args = ["--library", library, "--whole", "--quick", "--layout", "contiguous", "--seconds", "560"];
  const command = [node, inRoot("tests/reliability/sanitize.mjs"), ...args, "--out", join(out, "sanitize")];
  return [step("sanitizer", 570, command, { needs: ["compute-sanitizer"] })];
}

const mutants = inRoot("out", "cuda-mutants");
const environment = {
  ...process.env,
  TESSERA_CLI: cli,
  TESSERA_BACKEND_PATH: dirname(library),
  TESSERA_CACHE_DIR: join(out, "cache"), // what is tuned here stays here
};
const steps = [
  tessera("devices", 60, ["devices", "--json"]),
  tessera("doctor", 60, ["doctor", "--json"]),
  ...programs(),
  tessera("conform-quick", 300, [...conform, "--quick", "--json"]),
  step("overhead", 90, [node, "--expose-gc", inRoot("benchmarks/overhead.mjs"), "--backend", backend]),
  tessera("bench-overhead", 90, [
    "bench",
    "--backend",
    backend,
    "--suite",
    "overhead",
    "--json",
    join(out, "overhead.json"),
  ]),
  ...Object.entries(suites).map(([suite, seconds]) => {
    const args = ["--suite", suite, "--seconds", String(seconds), "--json", join(out, `${suite}.json`)];
    return tessera(`bench-${suite}`, seconds + 60, ["bench", "--backend", backend, ...args]);
  }),
  step("harness-beside-plain-loop", 180, [node, join(bench ?? "", "native/compare.mjs"), backend], {
    needs: [join(bench ?? "", "native/build/plain_loop")],
  }),
  ...["run", "decode"].map((script) =>
    step(
      script === "run" ? "peers" : "peers-decode",
      300,
      [
        "python3",
        inRoot(`benchmarks/cuda-peers/${script}.py`),
        "--library",
        library,
        "--json",
        join(out, `peers-${script}.json`),
      ],
      { needs: backend !== "cuda" ? ["peers of this back end"] : torch ? [] : ["python3 with torch and triton"] },
    ),
  ),
  tessera("tune", 300, ["tune", "--suite", "prefill", "--suite", "decode", "--backend", backend, "--json"]),
  tessera(
    "profile",
    240,
    ["bench", "--backend", backend, "--filter", "4096", "--profile", "--json", join(out, "profile.json")],
    {
      needs: ["ncu"],
    },
  ),
  tessera("conform-large", 600, [...conform, "--long", "--filter", "^large", "--json"]),
  tessera("conform", 1200, [...conform, "--json"]),
  ...sanitizer(),
  step("mutations", 900, [node, inRoot("tests/mutation/cuda.mjs"), "--check", mutants], { needs: [mutants] }),
].filter(({ name }) => only.test(name));
if (steps.length === 0) fail(`--only ${given.only} matches no step; --list tells them`);

const missing = ({ needs }) => needs.find((need) => (need.includes("/") ? !existsSync(need) : !which(need)));

/** Runs a command, whole group and all, for so long. Its output goes to a file. */
function execute({ name, command }, seconds) {
  const file = openSync(join(out, `${name}.txt`), "w");
  return new Promise((settle) => {
    const child = spawn(command[0], command.slice(1), {
      cwd: root,
      env: environment,
      stdio: ["ignore", file, file],
      detached: true,
    });
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      process.kill(-child.pid, "SIGKILL");
    }, seconds * 1000);
    const end = (state) => {
      clearTimeout(timer);
      closeSync(file);
      settle(late ? "out of time" : state);
    };
    child.on("error", () => end("failed"));
    child.on("exit", (code) => end(code === 0 ? "ok" : code === 77 ? "skipped" : "failed"));
  });
}

if (given.list) {
  for (const { name, seconds } of steps) console.log(`${name}  (at most ${seconds} s)`);
  process.exit();
}
mkdirSync(environment.TESSERA_CACHE_DIR, { recursive: true });
const begin = Date.now();
const results = [];
for (const one of steps) {
  const lacks = missing(one);
  const left = minutes * 60 - (Date.now() - begin) / 1000;
  const started = Date.now();
  let state;
  let why = "";
  if (lacks !== undefined) [state, why] = ["skipped", `lacks ${lacks}`];
  else if (left < 15) [state, why] = ["skipped", `the ${minutes} minutes are over`];
  else state = await execute(one, Math.min(one.seconds, left));
  const seconds = Math.round((Date.now() - started) / 1000);
  const tail =
    state === "failed"
      ? readFileSync(join(out, `${one.name}.txt`), "utf8")
          .trim()
          .split("\n")
          .slice(-8)
      : [];
  results.push({ name: one.name, state, seconds, why, tail });
  console.log(`${state.padEnd(12)}${String(seconds).padStart(5)} s  ${one.name}${why && `: ${why}`}`);
  for (const row of tail) console.log(`    ${row}`);
  // After each: a machine may go away.
  const summary = { backend, device: { ...device }, library: basename(library), minutes, results };
  writeFileSync(join(out, "summary.json"), `${JSON.stringify(summary, null, 2)}\n`);
}
const count = (state) => results.filter((one) => one.state === state).length;
console.log(
  `${device.name}: ${["ok", "failed", "out of time", "skipped"].map((state) => `${count(state)} ${state}`).join(", ")}; ${out}`,
);
process.exitCode = count("failed") > 0 ? 1 : 0;
