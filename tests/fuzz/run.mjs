// Fresh problems: the C++ fuzzer of problems, libFuzzer on the contract, and files nobody vouches for, with a seed that is printed.
//   node tests/fuzz/run.mjs                     500 problems and 60 seconds of each target, what CI runs
//   node tests/fuzz/run.mjs --problems 100000 --seconds 600
//   node tests/fuzz/run.mjs --targets contract --seconds 600    of "contract" and "files" (safetensors, results, tuning)
//   TESSERA_FUZZ_SEED=7 node tests/fuzz/run.mjs     a given seed; without it, the clock
// The corpus of libFuzzer is in corpus/contract; with --keep what is new is added to it (then shrink it with -merge=1). Files have
// theirs in ../reliability/corpus. They take one processor, so they run beside the contract and its build.
import { spawn, spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { add, line, none, told } from "../../scripts/lib/counts.mjs";
import { buildTarget, requireNativeTools } from "../../scripts/lib/native.mjs";
import { root, which } from "../../scripts/lib/sh.mjs";

const { values } = parseArgs({
  options: {
    problems: { type: "string", default: "500" },
    seconds: { type: "string", default: "60" },
    targets: { type: "string", default: "contract,files" },
    backend: { type: "string", default: join(root, "backends/cpu/lib/libtessera-cpu.so") },
    keep: { type: "boolean", default: false },
  },
});
const seed = Number(process.env.TESSERA_FUZZ_SEED ?? Date.now() % 0x7fffffff);
console.log(`TESSERA_FUZZ_SEED=${seed}`);
requireNativeTools();
const counts = none();

function volume() {
  const folder = buildTarget("fuzz-volume");
  if (!existsSync(values.backend)) buildTarget("tessera-cpu");
  const program = join(folder, "tests/fuzz/fuzz-volume");
  const args = [values.backend, "--seed", String(seed), "--problems", values.problems];
  const { status, signal, stdout } = spawnSync(program, args, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  console.log(stdout);
  if (status === 77) add(counts, { skipped: 1, reasons: { [stdout.trim()]: 1 } });
  else add(counts, told(status, stdout));
  if (![0, 1, 77].includes(status)) console.log(`${program} ended with ${signal ?? status}`);
}

function contract() {
  const compiler = which("clang++-22");
  if (!compiler)
    return add(counts, { skipped: 1, reasons: { "libFuzzer: no clang++-22 (Debian: apt-get install clang-22)": 1 } });
  const program = spawnSync(compiler, ["-print-file-name=libclang_rt.fuzzer-x86_64.a"], { encoding: "utf8" });
  const runtime = program.stdout.trim();
  if (process.arch === "x64" && !existsSync(runtime))
    return add(counts, {
      skipped: 1,
      reasons: { "libFuzzer: clang's runtime is missing (Debian: apt-get install libclang-rt-22-dev)": 1 },
    });
  const fuzzer = join(buildTarget("fuzz-contract", "fuzz"), "tests/fuzz/fuzz-contract");
  const scratch = mkdtempSync(join(tmpdir(), "tessera-fuzz-"));
  const corpus = join(root, "tests/fuzz/corpus/contract");
  mkdirSync(join(root, "out/fuzz"), { recursive: true }); // where an input that fails is kept
  const { status } = spawnSync(
    fuzzer,
    [
      ...(values.keep ? [corpus] : [scratch, corpus]),
      `-max_total_time=${values.seconds}`,
      `-seed=${seed}`,
      ...["-max_len=512", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=1"],
      `-artifact_prefix=${join(root, "out/fuzz/")}`,
    ],
    { stdio: "inherit", env: { ...process.env, ASAN_OPTIONS: "detect_leaks=1:allocator_may_return_null=1" } },
  );
  rmSync(scratch, { recursive: true });
  add(counts, status === 0 ? { passed: 1 } : { failed: 1 });
}

/** Starts the fuzzing of files; the promise adds its counts. */
function files() {
  const log = join(root, "out/fuzz/files.log");
  mkdirSync(join(root, "out/fuzz"), { recursive: true });
  const output = openSync(log, "w");
  const child = spawn(process.execPath, [join(root, "scripts/vitest.mjs"), "tests/reliability", "test/files.test.ts"], {
    cwd: root,
    stdio: ["ignore", output, output], // to a file: this process waits for others meanwhile and couldn't empty a pipe
    // Half of them with bytes changed, half with members.
    env: { ...process.env, TESSERA_FILES_SECONDS: String(Number(values.seconds) / 2) },
  });
  return new Promise((done) => {
    child.on("close", (status) => {
      closeSync(output);
      const said = readFileSync(log, "utf8");
      console.log(said);
      add(counts, told(status, said));
      done();
    });
  });
}

const targets = values.targets.split(",");
const unknown = targets.find((target) => !["contract", "files"].includes(target));
if (unknown !== undefined) {
  console.error(`--targets is ${JSON.stringify(unknown)}; allowed: contract, files, or both with a comma`);
  process.exit(2);
}
if (Number(values.problems) > 0) volume();
if (Number(values.seconds) > 0) {
  const filesDone = targets.includes("files") ? files() : undefined;
  if (targets.includes("contract")) contract();
  await filesDone;
}
console.log(line(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
