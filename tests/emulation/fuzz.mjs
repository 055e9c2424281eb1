// Random problems (tests/fuzz) through today's HIP kernels on the emulator: every kernel that an architecture lists gets its share.
//   node tests/emulation/fuzz.mjs [--problems 2000] [--seed N] [--work 22] [--built] [architectures]
// Builds what it needs, unless it is --built. Prints the problems and results of each kernel; exit code 1: a mismatch, or a kernel with fewer than one
// result for each hundred problems. What each architecture says goes to out/emulation-fuzz.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { add, line, none, told } from "../../scripts/lib/counts.mjs";
import { buildTarget, findHipCompiler, noHipCompiler } from "../../scripts/lib/native.mjs";
import { fail, root } from "../../scripts/lib/sh.mjs";
import { backend, build, emulated, environment, inTurn } from "./run.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    problems: { type: "string", default: "2000" },
    seed: { type: "string", default: process.env.TESSERA_FUZZ_SEED ?? String(Date.now() % 0x7fffffff) },
    work: { type: "string", default: "22" },
    built: { type: "boolean", default: false },
  },
});
const architectures = positionals.length > 0 ? positionals : emulated;
const unknown = architectures.find((name) => !emulated.includes(name));
if (unknown) fail(`${unknown} isn't emulated, must be one of ${emulated.join(", ")}`);
const counts = none();
const compiler = findHipCompiler();
if (compiler) {
  if (!values.built) await build(compiler);
  const fuzzer = join(buildTarget("fuzz-volume"), "tests/fuzz/fuzz-volume");
  const logs = join(root, "out", "emulation-fuzz");
  mkdirSync(logs, { recursive: true });
  console.log(`seed ${values.seed}, --work ${values.work}`);
  await inTurn([...architectures], async (architecture) => {
    const args = ["--seed", values.seed, "--problems", values.problems, "--work", values.work];
    args.push("--least", String(Math.max(1, Math.floor(Number(values.problems) / 100))));
    const child = spawn(fuzzer, [backend, ...args], {
      env: environment(architecture),
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.on("data", (chunk) => {
      said += chunk;
    });
    const [status] = await once(child, "close");
    writeFileSync(join(logs, `${architecture}.log`), said);
    console.log(`${architecture}: ${said.replace(/^::tessera.*\n/gm, "")}`);
    add(counts, told(status, said));
  });
} else {
  add(counts, { skipped: architectures.length, reasons: { [`emulation: ${noHipCompiler}`]: architectures.length } });
}
console.log(line(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
