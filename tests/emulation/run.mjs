// The HIP back end with its real kernels, on the emulator: builds both and holds them to the conformance table, for each
// architecture of which the emulator knows the matrix instructions.
//   node tests/emulation/run.mjs [--full] [architectures]     quick cases (or all), gfx90a gfx942 gfx950 gfx1100 gfx1201
//   node tests/emulation/run.mjs --build                      builds only
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { add, line, none, sentence } from "../../scripts/lib/counts.mjs";
import { buildHip, buildTarget, findHipCompiler, noHipCompiler } from "../../scripts/lib/native.mjs";
import { fail, jobs, root } from "../../scripts/lib/sh.mjs";

/** Those with kernels of their own; gfx1101 to 1151 share gfx1100's, gfx1200 gfx1201's. */
export const emulated = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];
const tested = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"];

const folder = join(root, "build", "emulation");
export const kernels = join(folder, "libtsr-emulated-kernels.so");

/** Builds the emulated kernels from `sources` (the repository, or a changed copy of it). False if they don't compile. */
export async function buildKernels(compiler, sources = root, to = kernels, architectures = emulated) {
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
    ]),
    [join(here, "emulator.cpp"), join(objects, "emulator.o")],
    [join(here, "launch.cpp"), join(objects, "launch.o"), `-DTSR_EACH(X)=${each((name) => `X(${name})`)}`],
  ];
  const outputs = queue.map(([, object]) => object);
  let good = true;
  const worker = async () => {
    for (let job = queue.shift(); job && good; job = queue.shift()) {
      const [source, object, ...defines] = job;
      good = (await run(compiler, [...flags, ...defines, "-c", source, "-o", object])) === 0 && good;
    }
  };
  await Promise.all(Array.from({ length: Number(jobs) }, worker));
  return good && (await run(compiler, ["-shared", ...outputs, "-o", to])) === 0;
}

/** The emulator's own conversions against their specifications. True if they are right. */
async function checkFormats(compiler) {
  const program = join(folder, "formats");
  const here = join(root, "tests", "emulation");
  const flags = ["-std=c++17", "-O1", "-march=x86-64-v3", "-Wno-psabi", "-D__gfx942__=1"];
  const sources = [join(here, "formats.cpp"), join(here, "emulator.cpp")];
  return (await run(compiler, [...flags, ...sources, "-o", program])) === 0 && (await run(program, [])) === 0;
}

async function run(program, args, options = {}) {
  const child = spawn(program, args, { cwd: root, stdio: "inherit", ...options });
  const [code] = await once(child, "close");
  return code;
}

/** Runs `tessera conform` on an emulated device; resolves to its JSON, or to null if there is none. */
export async function conform(architecture, args, library = kernels) {
  const env = {
    ...process.env,
    LD_LIBRARY_PATH: join(root, "build/hip/backends/hip/runtime-7"),
    STUB_DEVICES: `${architecture}:sramecc+:xnack-`,
    TSR_EMULATED_KERNELS: library,
    TESSERA_EMULATED: "1",
  };
  const cli = join(root, "packages/cli/bin/tessera.js");
  const backend = join(root, "backends/hip/lib/libtessera-hip.so");
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
  buildHip(["tessera-hip"], emulated); // a code object more or less makes no difference here
  buildTarget("played-hip7", "hip");
  if (!(await buildKernels(compiler))) fail("the kernels don't compile for the emulator");
  if (args.includes("--build")) return;
  add(counts, (await checkFormats(compiler)) ? { passed: 1 } : { failed: 1 });
  if (!existsSync(join(root, "packages/cli/dist"))) fail("The packages aren't built. Run `npm run setup` first.");
  for (const name of asked.length > 0 ? asked : tested) {
    const begin = Date.now();
    const result = await conform(name, full ? [] : ["--quick"]);
    // A process that died has no counts.
    const said =
      result?.passed === undefined ? { passed: 0, failed: 1 } : { passed: result.passed, failed: result.failed };
    for (const finding of result?.findings ?? result?.failures ?? [])
      console.log(`FAIL ${name}`, JSON.stringify(finding));
    console.log(`${name}: ${sentence({ ...none(), ...said })} in ${((Date.now() - begin) / 1000).toFixed(0)} s`);
    add(counts, said);
  }
  console.log(line(counts));
  console.log(sentence(counts));
  process.exitCode = counts.failed > 0 ? 1 : 0;
}

if (process.argv[1] === import.meta.filename) await main();
