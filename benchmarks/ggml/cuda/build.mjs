// What run.py needs on a machine with an NVIDIA GPU: ggml's CUDA back end of the llama.cpp that node-llama-cpp carries, with what
// this benchmark calls and no more, and programs against the libraries that node-llama-cpp ships. Needs nvcc, no GPU.
//
//   node benchmarks/ggml/cuda/build.mjs [FOLDER]        default: build/ggml-cuda
//
// The whole back end takes hours of one core. Here it is for sm_90, for heads of 64 and 128 dims and the caches that are measured;
// every other function that these files ask for ends the program ("left out").
import { execFile, execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import * as ggml from "../../../scripts/lib/ggml.mjs";
import { fail, root, run } from "../../../scripts/lib/sh.mjs";

const here = import.meta.dirname;
const folder = resolve(process.argv[2] ?? join(root, "build/ggml-cuda"));
const objects = join(folder, "objects");
const nvcc = process.env.CUDACXX ?? "/usr/local/cuda/bin/nvcc";
const toolkit = dirname(dirname(nvcc));
const jobs = Number(process.env.JOBS ?? 2);

const hindrance = existsSync(nvcc) ? (ggml.installRuntime() ?? ggml.unpackSources()) : `there is no ${nvcc}`;
if (hindrance) fail(`This can't be built here: ${hindrance}.`);
mkdirSync(objects, { recursive: true });

const from = join(ggml.sources, "ggml/src/ggml-cuda");
const mma = [4, 1].flatMap((group) => [8, 16, 32, 64].map((columns) => `ncols1_${columns / group}-ncols2_${group}`));
const caches = ["f16", "q8_0", "q4_0"];
const sources = [
  ...["ggml-cuda", "mmvf", "norm", "rope", "fattn", "binbcast", "convert", "cpy", "getrows", "set-rows", "unary"],
  ...["scale", "mmf", "fwht", "template-instances/mmf-instance-ncols_8"],
  ...caches.map((type) => `template-instances/fattn-vec-instance-${type}-${type}`),
  ...mma.map((columns) => `template-instances/fattn-mma-f16-instance-${columns}`),
];

// As ggml's CMake says which pairs of cache types it has kernels for.
const types = ["F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16"];
const pairs = types.flatMap((k) =>
  types.map((v) => `GGML_CUDA_FA_${k}_${v}=${Number(k === v && caches.includes(k.toLowerCase()))}`),
);
const includes = [from, join(ggml.sources, "ggml/src"), join(ggml.sources, "ggml/include")];
if (!existsSync(join(toolkit, "include/cublas_v2.h"))) includes.push(join(here, "cublas"));
const defines = [
  ...["GGML_BACKEND_DL", "GGML_BACKEND_SHARED", "GGML_BACKEND_BUILD", "GGML_SHARED", "GGML_CUDA_USE_GRAPHS"],
  // Without virtual memory nothing of the driver is linked; buffers of a graph are cudaMalloc's in any case.
  ...["GGML_CUDA_NO_VMM", "GGML_CUDA_PEER_MAX_BATCH_SIZE=128", "GGML_SCHED_MAX_COPIES=4", "NDEBUG", "_GNU_SOURCE"],
  ...pairs,
];
const flags = [
  ...["-std=c++17", "-O3", "-gencode=arch=compute_90,code=sm_90", "-use_fast_math", "-extended-lambda", "-w"],
  ...["-Xcompiler=-fPIC", "-Xfatbin=-compress-all", ...defines.map((name) => `-D${name}`)],
  ...includes.map((name) => `-I${name}`),
];
const started = promisify(execFile);

/** The source as it is, or a copy without the head dims that nobody here measures. */
function source(name) {
  const path = join(from, `${name}.cu`);
  if (!name.includes("/")) return path;
  const wanted = /\(\s*(64|128)\b/;
  const lines = readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => !/^(DECL_FATTN|extern DECL_FATTN)/.test(line) || wanted.test(line));
  const copy = join(objects, `${name.split("/")[1]}.cu`);
  writeFileSync(copy, lines.join("\n").replaceAll('"../', '"'));
  return copy;
}

const objectOf = (name) => join(objects, `${name.split("/").at(-1)}.o`);
const waiting = sources.filter((name) => !existsSync(objectOf(name)));
console.log(`${waiting.length} of ${sources.length} files to compile`);
await Promise.all(
  Array.from({ length: jobs }, async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      const start = Date.now();
      const compile = started(nvcc, [...flags, "-c", source(name), "-o", objectOf(name)], { maxBuffer: 1 << 28 });
      await compile.catch((error) => fail(`${name}: ${error.stderr.slice(0, 2000)}`));
      console.log(`${name} ${Math.round((Date.now() - start) / 1000)} s`);
    }
  }),
);

// -------------------------------------------------------------------------------------------------------- libraries

const libraries = join(folder, "bin");
mkdirSync(libraries, { recursive: true });
for (const name of readdirSync(ggml.prebuilt)) {
  if (/^lib(ggml-base|ggml\.v|llama\.v|ggml-cpu-(haswell|skylakex|icelake|zen4|sapphirerapids))/.test(name))
    cpSync(join(ggml.prebuilt, name), join(libraries, name));
}
const named = (pattern) => {
  const name = readdirSync(libraries).find((file) => pattern.test(file));
  return join(libraries, name);
};
const base = join(libraries, "libggml-base.so");

/** Names that objects use and none of them defines, nor any library. */
function missing() {
  const symbols = (args) =>
    execFileSync("nm", args, { encoding: "utf8", maxBuffer: 1 << 28 })
      .split("\n")
      .map((line) => line.trim().split(/\s+/).at(-1));
  const all = sources.map(objectOf);
  const defined = new Set(symbols(["--defined-only", ...all]));
  return [...new Set(symbols(["--undefined-only", ...all]))].filter(
    (name) => !defined.has(name) && /^_Z.*(ggml_cuda|mul_mat|mmq|mmf|mmvq|quantize_|flash_attn)/.test(name),
  );
}

const stubs = missing();
// What is asked whether it wants something says no; what is asked to do something can't.
const asked = /should_use|_supported|max_batch/;
const labels = (which) => stubs.filter(which).flatMap((name) => [`.globl ${name}`, `${name}:`]);
const assembly = [
  ...labels((name) => asked.test(name)),
  ...["  xorl %eax, %eax", "  ret"],
  ...labels((name) => !asked.test(name)),
];
writeFileSync(
  join(objects, "left-out.s"),
  [".text", ...assembly, "  call left_out@PLT", '.section .note.GNU-stack,"",@progbits', ""].join("\n"),
);
writeFileSync(
  join(objects, "left_out.c"),
  '#include <stdio.h>\n#include <stdlib.h>\nvoid left_out(void) { fputs("left out of this build\\n", stderr); abort(); }\n',
);
// Their real names are in the libraries of the machine that runs this.
const cublas = join(objects, "libcublas.so.13");
writeFileSync(join(objects, "none.c"), "");
run("cc", ["-shared", "-o", cublas, `-Wl,-soname,libcublas.so.13`, join(objects, "none.c")]);
for (const name of ["left-out.s", "left_out.c"])
  run("cc", ["-c", "-fPIC", join(objects, name), "-o", join(objects, `${name}.o`)]);
run("c++", [
  ...["-shared", "-s", "-o", join(libraries, "libggml-cuda.so"), ...sources.map(objectOf)],
  ...[join(objects, "left-out.s.o"), join(objects, "left_out.c.o"), base, "-Wl,--no-as-needed", cublas],
  ...[
    `-L${join(toolkit, "lib64")}`,
    `-L${join(toolkit, "lib")}`,
    "-lcudart_static",
    "-lculibos",
    "-lpthread",
    "-lrt",
    "-ldl",
  ],
  ...["-Wl,--unresolved-symbols=ignore-all", "-Wl,-rpath,$ORIGIN"],
]);
console.log(`libggml-cuda.so: ${stubs.length} functions left out`);

// --------------------------------------------------------------------------------------------------------- programs

const program = (name, path) => {
  run("c++", [
    ...["-std=c++17", "-O2", "-s", "-pthread", "-o", join(libraries, name), path],
    ...[
      `-I${join(ggml.sources, "ggml/include")}`,
      `-I${join(ggml.sources, "ggml/src")}`,
      `-I${join(ggml.sources, "include")}`,
    ],
    ...[named(/^libllama\.v/), named(/^libggml\.v/), base, "-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined"],
  ]);
};
program("attention", join(here, "attention.cpp"));
program("model", join(here, "model.cpp"));
program("test-backend-ops", join(ggml.sources, "tests/test-backend-ops.cpp"));
cpSync(join(here, "run.py"), join(folder, "run.py"));
ggml.buildPlugin("ggml-tessera");
cpSync(ggml.plugin, join(libraries, "libggml-tessera-2.so"));
for (const name of readdirSync(libraries)) console.log(name, statSync(join(libraries, name)).size);
