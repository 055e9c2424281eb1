// Valgrind's memcheck on what loads a back end and uses it from C: the programs of tests/abi that are quick enough for it.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { add, line, none } from "./lib/counts.mjs";
import { buildTarget, requireNativeTools } from "./lib/native.mjs";

requireNativeTools();
const counts = none();
const programs = ["smoke", "append", "decode"];
for (const name of programs) {
  const folder = buildTarget(`test-abi-${name}`);
  const library = join(folder, "../../backends/cpu/lib/libtessera-cpu.so");
  if (!existsSync(library)) buildTarget("tessera-cpu");
  const { status, stdout, stderr } = spawnSync(
    "valgrind",
    ["-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"].concat(
      "--fair-sched=yes", // or the workers' short looks for work starve the one that has it
      join(folder, "tests/abi", `test-abi-${name}`),
      library,
    ),
    { encoding: "utf8", env: { ...process.env, TESSERA_EMULATED: "1", TESSERA_CPU_ISA: "avx2" } },
  );
  console.log(`${status === 0 ? "ok  " : "FAIL"} ${name}\n${status === 0 ? "" : stdout + stderr}`.trim());
  add(counts, status === 0 ? { passed: 1 } : { failed: 1 });
}
console.log(line(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
