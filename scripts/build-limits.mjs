// Builds packages/bench/native/build/gpu_limits, which measures what an NVIDIA GPU can do at most: any C++ compiler does.
import { mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { fail, root, run, which } from "./lib/sh.mjs";

const source = join(root, "packages/bench/native/gpu_limits.cpp");
const program = join(root, "packages/bench/native/build/gpu_limits");
const newest = Math.max(...[source, fileURLToPath(import.meta.url)].map((file) => statSync(file).mtimeMs));
if ((statSync(program, { throwIfNoEntry: false })?.mtimeMs ?? 0) < newest) {
  const compiler = process.env.CXX ?? ["c++", "g++", "clang++"].find((name) => which(name));
  if (!compiler) fail("no C++ compiler");
  mkdirSync(dirname(program), { recursive: true });
  // Static but for what is opened at run time, so that it runs where other compilers' libraries are.
  const flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-static-libstdc++", "-static-libgcc"];
  run(compiler, [...flags, source, "-o", program, "-ldl"]);
}
