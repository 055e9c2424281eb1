// Builds packages/bench/native/build: cpu_limits and gpu_limits, which measure what the device can do at most, and plain_loop, which the
// harness is held against. Any C++ compiler does.
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { fail, root, run, which } from "./lib/sh.mjs";

const folder = join(root, "packages/bench/native");
const header = join(root, "packages/core/include/tessera/tessera.h");
for (const name of ["cpu_limits", "gpu_limits", "plain_loop"]) {
  const [source, program] = [join(folder, `${name}.cpp`), join(folder, "build", name)];
  const newest = Math.max(...[source, header, fileURLToPath(import.meta.url)].map((file) => statSync(file).mtimeMs));
  if ((statSync(program, { throwIfNoEntry: false })?.mtimeMs ?? 0) >= newest) continue;
  const compiler = process.env.CXX ?? ["c++", "g++", "clang++"].find((one) => which(one));
  if (!compiler) fail("no C++ compiler");
  mkdirSync(join(folder, "build"), { recursive: true });
  // Static but for what is opened at run time, so that it runs where other compilers' libraries are.
  const flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-static-libstdc++", "-static-libgcc"];
  run(compiler, [...flags, `-I${join(root, "packages/core/include")}`, source, "-o", program, "-ldl", "-pthread"]);
}
