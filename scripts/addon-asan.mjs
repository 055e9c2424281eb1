// The Node addon and the CPU back end under the address and undefined-behaviour sanitizers, inside an ordinary Node whose
// malloc the sanitizer takes over: conformance cases through the addon, workers that end in the middle, engines disposed of.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { add, line, none } from "./lib/counts.mjs";
import { buildSanitizedAddon, buildTarget, requireNativeTools } from "./lib/native.mjs";
import { output, root } from "./lib/sh.mjs";

requireNativeTools();
const counts = none();
const runtime = output("c++", ["-print-file-name=libasan.so"]);
const undefinedRuntime = output("c++", ["-print-file-name=libubsan.so"]);
if (process.platform !== "linux" || !runtime || !existsSync(runtime)) {
  add(counts, { skipped: 1, reasons: { "the addon under sanitizers: no libasan.so of the C++ compiler": 1 } });
} else {
  const addon = buildSanitizedAddon();
  buildTarget("tessera-cpu", "asan");
  const library = join(root, "build/asan/backends/cpu/libtessera-cpu.so");
  // A copy of what is installed, with that addon in it.
  const place = join(root, "build/asan-packages");
  rmSync(place, { recursive: true, force: true });
  const core = join(place, "node_modules/@tessera/core");
  mkdirSync(join(core, "native/build/Release"), { recursive: true });
  for (const name of ["dist", "package.json", "include"])
    cpSync(join(root, "packages/core", name), join(core, name), { recursive: true });
  cpSync(addon, join(core, "native/build/Release/tessera.node"));
  for (const name of ["problems.mjs", "storm.mjs", "cycles.mjs", "device-memory.mjs", "steady.mjs"])
    cpSync(join(root, "tests/reliability/src", name), join(place, name));
  const env = {
    ...process.env,
    LD_PRELOAD: [runtime, undefinedRuntime].filter((file) => file && existsSync(file)).join(" "),
    // What Node itself leaves to the end of the process is no leak of ours; C++ that unwinds through it confuses the check of
    // stacks.
    ASAN_OPTIONS: "detect_leaks=0:detect_stack_use_after_return=0:alloc_dealloc_mismatch=0",
    UBSAN_OPTIONS: "print_stacktrace=1:halt_on_error=1",
    TESSERA_BACKEND_PATH: library,
    TESSERA_PROBE_TIMEOUT_MS: "120000", // a probe's process starts slowly under them
  };
  const check = (what, ...args) => {
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, args, { cwd: place, env, encoding: "utf8" });
    const good = status === 0 && !/Sanitizer|runtime error/.test(stderr);
    console.log(`${good ? "ok  " : "FAIL"} ${what}: ${stdout.trim()}`);
    if (!good) console.log(signal ?? status, stderr.slice(-8000));
    add(counts, good ? { passed: 1 } : { failed: 1 });
  };
  const loaded = `const { nativeLibrary } = await import("@tessera/core"); const { addon, path } = nativeLibrary();
    if (!addon || !path.includes("asan-packages")) throw new Error("another addon: " + path); console.log(path);`;
  check("it is the one", "--input-type=module", "-e", loaded);
  check("64 calls from 8 workers", "storm.mjs", "2", "3", "cpu", "reference");
  check("200 engines", "cycles.mjs", "200");
}
console.log(line(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
