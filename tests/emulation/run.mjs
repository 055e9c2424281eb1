// The HIP back end with its real kernels, on the emulator: builds both and holds them to the conformance table, for each
// architecture of which the emulator knows the matrix instructions.
//   node tests/emulation/run.mjs [--full] [architectures]     quick cases (or all), gfx90a gfx942 gfx950 gfx1100 gfx1201
//   node tests/emulation/run.mjs --build                      builds only
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { add, line, none, sentence } from "../../scripts/lib/counts.mjs";
import { buildHip, buildTarget, findHipCompiler, noHipCompiler } from "../../scripts/lib/native.mjs";
import { fail, jobs, root } from "../../scripts/lib/sh.mjs";

/** Those with kernels of their own; gfx1101 to 1151 share gfx1100's, gfx1200 gfx1201's. */
export const emulated = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];
const tested = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"];

/** Of attention kernels, as architecture.cpp counts them, from 1. */
const rows = ["prefill-plain", "prefill-matrix", "decode-matrix", "prefill-pipeline"];

const manyBlocks = "large/batch-";

const folder = join(root, "build", "emulation");
export const kernels = join(folder, "libtsr-emulated-kernels.so");

/**
 * Builds the emulated kernels from `sources` (the repository, or a changed copy of it). False if they don't compile. `row`: with the
 * attention kernels of that row alone, which takes less time.
 */
export async function buildKernels(compiler, sources = root, to = kernels, architectures = emulated, row = undefined) {
  const objects = join(to, "..", `objects-${architectures.length === emulated.length ? "all" : architectures[0]}`);
  mkdirSync(objects, { recursive: true });
  const here = join(sources, "tests", "emulation");
  const flags = [
    ...[
      "-std=c++17",
      "-O2",
      "-march=x86-64-v3",
      "-fPIC",
      "-fvisibility=hidden",
      "-Wall",
      "-Wextra",
      "-Werror",
      "-Wno-psabi",
    ],
    ...["-I", join(sources, "backends/common/include"), "-I", join(sources, "kernels-hip")],
  ];
  const each = (f) => architectures.map(f).join(" ");
  const queue = [
    ...architectures.map((name) => [
      join(here, "architecture.cpp"),
      join(objects, `${name}.o`),
      `-D__${name}__=1`,
      `-DTSR_ARCHITECTURE=${name}`,
      `-Dhip=hip_${name}`, // a namespace each, so that they can be linked together
      ...(row ? [`-DTSR_ROWS=${rows.indexOf(row) + 1}`, "-Wno-unused-function"] : []),
    ]),
    ...["emulator", "lds"].map((name) => [join(here, `${name}.cpp`), join(objects, `${name}.o`)]),
    [join(here, "launch.cpp"), join(objects, "launch.o"), `-DTSR_EACH(X)=${each((name) => `X(${name})`)}`],
  ];
  const outputs = queue.map(([, object]) => object);
  let good = true;
  await inTurn(queue, async ([source, object, ...defines]) => {
    if (good) good = (await run(compiler, [...flags, ...defines, "-c", source, "-o", object])) === 0 && good;
  });
  return good && (await run(compiler, ["-shared", ...outputs, "-o", to])) === 0;
}

/** One job of the queue after the other, on each processor one at a time. */
export async function inTurn(queue, job, workers = Number(jobs)) {
  const worker = async (number) => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await job(next, number);
  };
  await Promise.all(Array.from({ length: workers }, (_, number) => worker(number)));
}

/** The emulator's own conversions and matrix instructions against their specifications: a count for each program. */
async function checkEmulator(compiler) {
  const here = join(root, "tests", "emulation");
  const flags = ["-std=c++17", "-O1", "-march=x86-64-v3", "-Wno-psabi"];
  const counts = none();
  for (const [name, architecture] of [
    ["formats", "gfx942"],
    ["products", "gfx942"],
    ["products", "gfx90a"],
  ]) {
    const program = join(folder, name);
    const sources = [name, "emulator", "lds"].map((source) => join(here, `${source}.cpp`));
    const built = await run(compiler, [...flags, `-D__${architecture}__=1`, ...sources, "-o", program]);
    add(counts, built === 0 && (await run(program, [])) === 0 ? { passed: 1 } : { failed: 1 });
  }
  return counts;
}

async function run(program, args, options = {}) {
  const child = spawn(program, args, { cwd: root, stdio: "inherit", ...options });
  const [code] = await once(child, "close");
  return code;
}

export const backend = join(root, "backends/hip/lib/libtessera-hip.so");

/** The environment in which the back end finds an emulated device of that architecture. */
export const environment = (architecture, library = kernels, ran = "") => ({
  ...process.env,
  LD_LIBRARY_PATH: join(root, "build/hip/backends/hip/runtime-7"),
  STUB_DEVICES: `${architecture}:sramecc+:xnack-`,
  TSR_EMULATED_KERNELS: library,
  ...(ran && { TSR_EMULATED_RAN: ran }),
  TESSERA_EMULATED: "1",
});

/** The back end and the kernels for the emulator. */
export async function build(compiler) {
  buildHip(["tessera-hip"], emulated); // a code object more or less makes no difference here
  buildTarget("played-hip7", "hip");
  if (!(await buildKernels(compiler))) fail("the kernels don't compile for the emulator");
}

/**
 * Runs `tessera conform` on an emulated device; resolves to its JSON, or to null if there is none. `ran`: a file to which the names of
 * the kernels go that there are and that ran.
 */
export async function conform(architecture, args, library = kernels, ran = "") {
  const env = environment(architecture, library, ran);
  const cli = join(root, "packages/cli/bin/tessera.js");
  const child = spawn(process.execPath, [cli, "conform", backend, "--json", ...args], { cwd: root, env });
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  child.stderr.pipe(process.stderr);
  await once(child, "close");
  try {
    return JSON.parse(text);
  } catch {
    console.log(text);
    return null;
  }
}

/** Kernels of the code object that no case launched. */
function idleKernels(file) {
  const words = readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .map((text) => text.split(" "));
  const ran = new Set(words.flatMap(([what, name]) => (what === "ran" ? [name] : [])));
  return [...new Set(words.flatMap(([, name]) => (ran.has(name) ? [] : [name])))];
}

async function main() {
  const args = process.argv.slice(2);
  const full = args.includes("--full");
  const asked = args.filter((arg) => !arg.startsWith("--"));
  const unknown = asked.find((name) => !emulated.includes(name));
  if (unknown) fail(`${unknown} isn't emulated, must be one of ${emulated.join(", ")}`);
  const counts = none();
  const compiler = findHipCompiler();
  if (!compiler) {
    add(counts, { skipped: tested.length, reasons: { [`emulation: ${noHipCompiler}`]: tested.length } });
    console.log(line(counts));
    return;
  }
  const begun = Date.now();
  await build(compiler);
  const building = (Date.now() - begun) / 1000;
  if (args.includes("--build")) return;
  add(counts, await checkEmulator(compiler));
  if (!existsSync(join(root, "packages/cli/dist"))) fail("The packages aren't built. Run `npm run setup` first.");
  const queue = (asked.length > 0 ? asked : tested).map((name) => ({
    name,
    only: full ? [] : ["--quick"],
    every: true,
  }));
  // 65,536 blocks of a kernel, once: what counts them is the same for all. First, because it takes longest.
  if (full) {
    for (const job of queue) job.only = ["--filter", `^(?!${manyBlocks})`];
    const name = queue.some((job) => job.name === "gfx942") ? "gfx942" : queue[0].name;
    queue.unshift({ name, only: ["--filter", `^${manyBlocks}`] });
  }
  await inTurn(queue, async ({ name, only, every = false }) => {
    const begin = Date.now();
    const ran = every ? join(folder, `ran-${name}`) : "";
    if (every) rmSync(ran, { force: true });
    const result = await conform(name, only, kernels, ran);
    // A process that died has no counts.
    const said =
      result?.passed === undefined ? { passed: 0, failed: 1 } : { passed: result.passed, failed: result.failed };
    if (every) {
      const idle = existsSync(ran) ? idleKernels(ran) : ["all of them"];
      if (idle.length > 0) console.log(`FAIL ${name}: no case launched ${idle.join(", ")}`);
      said[idle.length > 0 ? "failed" : "passed"]++;
    }
    for (const finding of result?.findings ?? result?.failures ?? [])
      console.log(`FAIL ${name}`, JSON.stringify(finding));
    console.log(
      `${name} ${only.join(" ")}: ${sentence({ ...none(), ...said })} in ${((Date.now() - begin) / 1000).toFixed(0)} s`,
    );
    add(counts, said);
  });
  console.log(line(counts));
  console.log(sentence(counts));
  console.log(`${Math.round((Date.now() - begun) / 1000)} s, of which ${Math.round(building)} to compile`);
  process.exitCode = counts.failed > 0 ? 1 : 0;
}

if (process.argv[1] === import.meta.filename) await main();
