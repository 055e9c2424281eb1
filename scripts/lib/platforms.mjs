// What there is a prebuilt package for, by part and platform: the one list. scripts/platform-packages.mjs makes the
// packages of it, scripts/release.mjs fills and packs them, tests/packaging holds what they carry to it.

/**
 * Every platform that the loader has a name for. `machine`: as readelf calls it, on Windows objdump. `recipe`: built by hand or
 * by the public CI, and packed by nobody yet.
 */
export const platforms = {
  "linux-x64-gnu": { os: "linux", cpu: "x64", libc: "glibc", machine: "Advanced Micro Devices X86-64" },
  "linux-arm64-gnu": { os: "linux", cpu: "arm64", libc: "glibc", machine: "AArch64" },
  "linux-x64-musl": { os: "linux", cpu: "x64", libc: "musl", recipe: true },
  "linux-arm64-musl": { os: "linux", cpu: "arm64", libc: "musl", recipe: true },
  "darwin-arm64": { os: "darwin", cpu: "arm64", recipe: true },
  "darwin-x64": { os: "darwin", cpu: "x64", recipe: true },
  "win32-x64": { os: "win32", cpu: "x64", machine: "pei-x86-64" },
};

/** The oldest C library that a glibc build may ask for. RHEL 9, Debian 12, Ubuntu 22.04 and newer have it. */
export const glibcFloor = "2.34";

const built = ["linux-x64-gnu", "linux-arm64-gnu", "win32-x64"];

/**
 * Parts with native code. `file`: what a platform package carries, and where a build for this machine leaves it (`built`);
 * `exports`: all that the file shows to the linker; `budget`: most MB (10^6 bytes) of a packed tarball, the platform's package and the part's own taken together; `main`: name of
 * the module that tells where the file is, `index` if left out.
 */
export const parts = {
  core: {
    folder: "packages/core",
    file: "tessera.node",
    built: "native/build/Release/tessera.node",
    exports: ["napi_register_module_v1", "node_api_module_get_api_version_v1"],
    what: "the addon that loads back ends",
    platforms: built,
    budget: 1.5,
  },
  cpu: {
    folder: "backends/cpu",
    file: "libtessera-cpu.so",
    built: "lib/libtessera-cpu.so",
    exports: ["tsr_backend_entry"],
    what: "the back end for CPUs",
    platforms: built,
    budget: 3,
  },
  cuda: {
    folder: "backends/cuda",
    file: "libtessera-cuda.so",
    built: "lib/libtessera-cuda.so",
    exports: ["tsr_backend_entry"],
    what: "the back end for NVIDIA GPUs",
    platforms: ["linux-x64-gnu"], // Arm64 needs the toolkit's target libraries for it
    budget: 60,
  },
  hip: {
    folder: "backends/hip",
    file: "libtessera-hip.so",
    built: "lib/libtessera-hip.so",
    exports: ["tsr_backend_entry"],
    what: "the back end for AMD GPUs",
    platforms: ["linux-x64-gnu"], // ROCm is for nothing else
    budget: 30,
  },
  ggml: {
    folder: "packages/ggml",
    file: "libggml-tessera-2.so",
    built: "lib/libggml-tessera-2.so",
    exports: ["ggml_backend_init", "ggml_backend_score", "tessera_ggml_calls"],
    what: "the back end for llama.cpp runtimes (ggml's API version 2)",
    main: "library", // its index is written by hand
    platforms: ["linux-x64-gnu", "linux-arm64-gnu"],
    budget: 1,
  },
};

/** This machine's platform, as the loader names it (packages/core/src/native/platform.ts). */
export function hostPlatform() {
  const base = `${process.platform}-${process.arch}`;
  if (process.platform !== "linux") return base;
  process.report.excludeNetwork = true; // else it may ask DNS
  return `${base}-${process.report.getReport().header.glibcVersionRuntime ? "gnu" : "musl"}`;
}
