// Fresh problems: the C++ fuzzer of problems and libFuzzer on the contract, with a seed that is printed.
//   node tests/fuzz/run.mjs                     500 problems and 20 seconds of libFuzzer, what CI runs
//   node tests/fuzz/run.mjs --problems 100000 --seconds 600
//   TESSERA_FUZZ_SEED=7 node tests/fuzz/run.mjs     a given seed; without it, the clock
// The corpus of libFuzzer is in corpus/contract; with --keep what is new is added to it (then shrink it with -merge=1).
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { add, line, none, parse } from "../../scripts/lib/counts.mjs";
import { buildTarget, requireNativeTools } from "../../scripts/lib/native.mjs";
import { root, which } from "../../scripts/lib/sh.mjs";

const { values } = parseArgs({
  options: {
    problems: { type: "string", default: "500" },
    seconds: { type: "string", default: "20" },
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
  const { status, stdout } = spawnSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  console.log(stdout);
  if (status === 77) add(counts, { skipped: 1, reasons: { [stdout.trim()]: 1 } });
  else add(counts, parse(stdout) ?? { failed: 1 });
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

if (Number(values.problems) > 0) volume();
if (Number(values.seconds) > 0) contract();
console.log(line(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
