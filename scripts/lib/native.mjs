// The CMake trees: build/<variant> for the back ends and native tests; the addon's own is cmake-js's business.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildPlugin, headers } from "./ggml.mjs";
import { parts } from "./platforms.mjs";
import { fail, jobs, output, root, run, which } from "./sh.mjs";

// With sanitizers gcc takes minutes over the kernels: four over AVX-512's at -O2, one at -O1. What this processor couldn't run is
// left out.
const cpuFlags = existsSync("/proc/cpuinfo") ? readFileSync("/proc/cpuinfo", "utf8").split(/\s+/) : [];
const checked = [
  "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
  "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g -DNDEBUG",
  ...(process.arch === "x64" && !cpuFlags.includes("avx512f") ? ["-DTSR_ISAS=portable;avx2;avx2int8"] : []),
];

export const variants = {
  release: [],
  asan: ["-DTSR_SANITIZE=address,undefined", ...checked],
  tsan: ["-DTSR_SANITIZE=thread", ...checked],
  // For tests/fuzz/contract. Few instruction sets, as a fuzzer looks for what is wrong around the kernels.
  fuzz: [
    "-DCMAKE_C_COMPILER=clang-22",
    "-DCMAKE_CXX_COMPILER=clang++-22",
    "-DTSR_SANITIZE=fuzzer-no-link,address,undefined",
    ...checked,
    `-DTSR_ISAS=${process.arch === "x64" ? "portable;avx2" : "portable"}`,
  ],
  // The NEON kernels, cross-compiled and run on this machine by an emulator.
  arm64: [
    "-DCMAKE_SYSTEM_NAME=Linux",
    "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc",
    "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
    "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64-static;-L;/usr/aarch64-linux-gnu",
  ],
  // Clang rather than mingw's gcc, which doesn't align the stack for AVX registers on Windows.
  win32: [
    "-DCMAKE_SYSTEM_NAME=Windows",
    "-DCMAKE_SYSTEM_PROCESSOR=AMD64",
    "-DCMAKE_C_COMPILER=clang-22",
    "-DCMAKE_CXX_COMPILER=clang++-22",
    "-DCMAKE_C_COMPILER_TARGET=x86_64-w64-windows-gnu",
    "-DCMAKE_CXX_COMPILER_TARGET=x86_64-w64-windows-gnu",
    "-DCMAKE_CXX_FLAGS=-femulated-tls", // as mingw's C++ library has it
    "-DCMAKE_RC_COMPILER=x86_64-w64-mingw32-windres",
    ...["EXE", "SHARED", "MODULE"].map((kind) => `-DCMAKE_${kind}_LINKER_FLAGS=-fuse-ld=lld-22`),
  ],
  cuda: ["-DTSR_CUDA=ON"],
  hip: ["-DTSR_HIP=ON"],
};

/** Path of nvcc, or null. */
export const findNvcc = () =>
  [process.env.CUDACXX, "nvcc", "/usr/local/cuda/bin/nvcc"].map((name) => name && which(name)).find(Boolean) ?? null;
export const noNvcc = "no CUDA compiler (install the CUDA toolkit, or set CUDACXX to its nvcc)";

/** Path of a clang++ for AMD GPUs, or null. */
export const findHipCompiler = () =>
  [process.env.HIPCXX, "clang++-22", "/opt/rocm/llvm/bin/clang++"].map((name) => name && which(name)).find(Boolean) ??
  null;
export const noHipCompiler =
  "no HIP compiler (install clang-22 and lld-22, or set HIPCXX to a clang++ that knows amdgcn)";

/** Compute capabilities that a published library has machine code for: the default of backends/cuda/CMakeLists.txt. */
export const cudaArchitectures = [80, 86, 89, 90, 100, 120];

/** What ships, unless a build is told otherwise: the default of backends/hip/CMakeLists.txt. */
export const hipArchitectures =
  "gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1102 gfx1150 gfx1151 gfx1200 gfx1201".split(" ");

const oldestCMake = [3, 22];

/** Ends with one message that says what to install, if anything is missing. */
export function requireNativeTools() {
  const missing = [];
  const version = which("cmake") && output("cmake", ["--version"])?.match(/(\d+)\.(\d+)/);
  if (!version) missing.push("cmake (not found on PATH)");
  else if (Number(version[1]) < oldestCMake[0] || (+version[1] === oldestCMake[0] && +version[2] < oldestCMake[1]))
    missing.push(`cmake ${oldestCMake.join(".")} or newer (found ${version[0]})`);
  const compilers = process.env.CXX ? [process.env.CXX.split(" ")[0]] : ["c++", "g++", "clang++"];
  if (!compilers.some((compiler) => which(compiler)))
    missing.push(`a C++17 compiler (looked for ${compilers.join(", ")})`);
  if (!process.env.CMAKE_GENERATOR && !which("make") && !which("ninja")) missing.push("make or ninja");
  if (missing.length === 0) return;
  fail(
    `Tessera's native parts can't be built here. Missing: ${missing.join("; ")}.\n` +
      "  Debian, Ubuntu:  sudo apt-get install cmake g++ make\n" +
      "  Fedora:          sudo dnf install cmake gcc-c++ make\n" +
      "  Alpine:          sudo apk add cmake g++ make\n" +
      "  macOS:           xcode-select --install && brew install cmake\n" +
      "Then run the same command again.",
  );
}

/** Configures (once; CMake itself notices later changes) and builds a target of build/<variant>. Returns the folder. */
export function buildTarget(target, variant = "release") {
  const folder = join(root, "build", variant);
  const isas = process.env.TSR_ISAS ? [`-DTSR_ISAS=${process.env.TSR_ISAS}`] : [];
  if (!existsSync(join(folder, "CMakeCache.txt")) || isas.length > 0)
    run("cmake", ["-S", ".", "-B", folder, "--log-level=WARNING", ...variants[variant], ...isas]);
  run("cmake", ["--build", folder, "--parallel", jobs, "--target", target]);
  return folder;
}

/**
 * The CUDA back end: target(s) of build/cuda, for the architectures given ("90", "80-ptx"), else for all that ship. The tree
 * stays with what it was last built for; its tests take that.
 */
export function buildCuda(targets, architectures = []) {
  const chosen =
    architectures.length > 0 ? `-DTSR_CUDA_ARCHITECTURES=${architectures.join(" ")}` : "-UTSR_CUDA_ARCHITECTURES";
  run("cmake", ["-S", ".", "-B", join(root, "build", "cuda"), "--log-level=WARNING", ...variants.cuda, chosen]);
  for (const target of targets) buildTarget(target, "cuda");
}

/** The HIP back end: target(s) of build/hip, for the architectures given ("gfx942"), else for all that ship. As buildCuda. */
export function buildHip(targets, architectures = hipArchitectures) {
  const chosen = `-DTSR_HIP_ARCHITECTURES=${architectures.join(" ")}`;
  run("cmake", ["-S", ".", "-B", join(root, "build", "hip"), "--log-level=WARNING", ...variants.hip, chosen]);
  for (const target of targets) buildTarget(target, "hip");
}

/**
 * The addon, the CPU back end and, where there is one for it, the ggml plug-in for another platform, with a compiler for that:
 * build/arm64 (where the tests of the NEON kernels are), build/arm64-addon and build/arm64-ggml, build/win32 and build/win32-addon.
 */
export function buildCross(id) {
  const variant = crossVariants[id];
  if (!variant) fail(`There is no compiler known here for ${id}; known: ${Object.keys(crossVariants).join(", ")}.`);
  buildTarget("tessera-cpu", variant);
  buildAddonTree(`${variant}-addon`, variants[variant]);
  // Its headers are there if somebody built the plug-in for this machine.
  if (parts.ggml.platforms.includes(id) && existsSync(headers))
    buildPlugin("ggml-tessera", { variant, options: variants[variant] });
}

/** The addon without cmake-js, whose Node is this machine's: build/<name>/tessera.node. */
function buildAddonTree(name, options) {
  const modules = join(root, "packages/core/node_modules");
  const include = [join(modules, "node-api-headers/include"), join(modules, "node-addon-api")].join(";");
  const folder = join(root, "build", name);
  const given = [
    `-DCMAKE_JS_INC=${include}`,
    `-DTSR_NODE_API_DEFINITIONS=${join(modules, "node-api-headers/def")}`,
    "--log-level=WARNING",
    "--no-warn-unused-cli",
  ];
  run("cmake", ["-S", "packages/core/native", "-B", folder, ...given, ...options]);
  run("cmake", ["--build", folder, "--parallel", jobs]);
  return join(folder, "tessera.node");
}

/** The addon under the sanitizers of build/asan, for this machine. */
export const buildSanitizedAddon = () => buildAddonTree("asan-addon", variants.asan);

const crossVariants = { "linux-arm64-gnu": "arm64", "win32-x64": "win32" };

/** What buildCross made of a part for a platform (by the list of ./platforms.mjs), whether it is there or not. */
export function crossFile(part, id) {
  const variant = crossVariants[id];
  if (!variant) return undefined;
  if (part === "core") return join(root, "build", `${variant}-addon`, "tessera.node");
  if (part === "ggml") return join(root, "build", `${variant}-ggml`, parts.ggml.file);
  return join(root, "build", variant, "backends", part, `libtessera-${part}.so`);
}

/** The Node addon, through cmake-js: Node-API headers come from npm, nothing is downloaded. */
export function buildAddon() {
  const cmakeJs = join(root, "packages/core/node_modules/cmake-js/bin/cmake-js");
  if (!existsSync(cmakeJs)) fail("cmake-js is not installed. Run `npm run setup` first.");
  const js = (...args) =>
    run(process.execPath, [
      cmakeJs,
      ...args,
      "--directory",
      join(root, "packages/core/native"),
      "--prefer-make",
      "-l",
      "warn",
    ]);
  if (!existsSync(join(root, "packages/core/native/build/CMakeCache.txt"))) js("configure");
  js("build", "--parallel", jobs);
}
