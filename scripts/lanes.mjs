// The test lanes, in the order they run. `npm test` runs the quick ones, `npm run test:full` all of them.
//
// A lane is one command. It tells its counts by lines of its output, summed over the lane:
//
//     ::tessera {"passed":12,"failed":0,"skipped":3,"reasons":{"no CUDA device":3}}
//
// "reasons" is optional and says why tests were skipped; the runner repeats it, so that no skip is silent.
//   - vitest suites: nothing to do, scripts/vitest.mjs prints the line. Skip with `ctx.skip("reason")` inside the test.
//     A new *.test.ts in a folder of `suites` is found by itself; *.long.test.ts runs in the long lanes only.
//   - C and C++ tests: nothing to do, scripts/ctest.mjs prints it. A program counts as one test; one that has many checks
//     prints the line itself: printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":%d}\n", …). Exit 77 = skipped, and the
//     last line that it printed says why.
//   - any other script: print the line once, at the end, and exit non-zero if something failed.
// A lane that fails without having counted a failure counts as one failed test; one that counts nothing fails too.
//
// Fields of a lane
//   name      also names its log, out/logs/<name>.log
//   command   [program, ...arguments], run at the repository's root; "node" is this Node
//   counts    "exit": the command prints no counts, it is one check that passes or fails
//   long      not part of `npm test`
//   ci        a long lane that .ci/run runs too (a fixed list: all of them together must fit in its hour)
//   needs     programs on PATH, or paths in the repository; if one is missing, the lane is skipped, loudly
//   minutes   time limit, 10 if left out
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "./lib/sh.mjs";

/** Folders with a vitest.config.ts; the lane is named after the folder. */
const suites = [
  "packages/core",
  "packages/cli",
  "packages/bench",
  "packages/ggml",
  "tests/conformance",
  "tests/integration",
  "tests/packaging",
  "tests/reliability",
];

/** Their long tests are run by hand: they took 100 s of a busy machine. */
const byHand = ["tests/reliability"];

const hasLongTests = (folder) =>
  existsSync(join(root, folder, "test")) &&
  readdirSync(join(root, folder, "test"), { recursive: true }).some((file) => file.endsWith(".long.test.ts"));

export const lanes = [
  {
    name: "lint",
    command: ["node", "node_modules/@biomejs/biome/bin/biome", "ci", "--colors=off", "."],
    counts: "exit",
  },
  { name: "knip", command: ["node", "node_modules/knip/bin/knip.js", "--no-progress"], counts: "exit" },
  { name: "clang-format", command: ["node", "scripts/clang-format.mjs"] },
  { name: "platform-packages", command: ["node", "scripts/platform-packages.mjs", "--check"] },
  { name: "c-api", command: ["node", "scripts/c-api.mjs", "--check"] },
  { name: "links", command: ["node", "scripts/links.mjs"] },
  { name: "translation", command: ["node", "scripts/translation.mjs", "--check"] },
  {
    name: "lockfile",
    command: ["node", "node_modules/pnpm/bin/pnpm.cjs", "install", "--frozen-lockfile", "--lockfile-only", "--offline"],
    counts: "exit",
  },
  { name: "audit", command: ["node", "scripts/audit.mjs"], long: true, ci: true },
  { name: "typecheck", command: ["node", "scripts/typecheck.mjs"] },
  { name: "native", command: ["node", "scripts/ctest.mjs", "release"] },
  ...suites.map((folder) => ({ name: folder.split("/")[1], command: ["node", "scripts/vitest.mjs", folder] })),
  { name: "webgpu", command: ["node", "scripts/vitest.mjs", "backends/webgpu"] },
  { name: "mutation", command: ["node", "tests/mutation/run.mjs"] },
  {
    name: "typedoc",
    command: ["node", "node_modules/typedoc/bin/typedoc"],
    counts: "exit",
    long: true,
    ci: true,
  },
  { name: "cuda-mutation", command: ["node", "tests/mutation/cuda.mjs"], long: true, ci: true, minutes: 30 },

  { name: "native-asan", command: ["node", "scripts/ctest.mjs", "asan"], long: true, ci: true, minutes: 15 },
  // Fresh problems each time, by a seed that is printed (TESSERA_FUZZ_SEED).
  { name: "fuzz", command: ["node", "tests/fuzz/run.mjs"], long: true, ci: true, minutes: 15 },
  { name: "valgrind", command: ["node", "scripts/valgrind.mjs"], long: true, ci: true, needs: ["valgrind"] },
  { name: "native-tsan", command: ["node", "scripts/ctest.mjs", "tsan"], long: true, ci: true, minutes: 15 },
  {
    name: "native-arm64",
    command: ["node", "scripts/ctest.mjs", "arm64"],
    long: true,
    ci: true,
    minutes: 15,
    needs: ["aarch64-linux-gnu-g++", "qemu-aarch64-static"],
  },
  // Builds on what native-asan has built.
  { name: "addon-asan", command: ["node", "scripts/addon-asan.mjs"], long: true, minutes: 15 },
  // `npm run build:gpu` compiles for all architectures; each commit draws one of the five that CI has no time for together.
  { name: "gpu-compile", command: ["node", "scripts/build-gpu.mjs", "--part"], long: true, ci: true, minutes: 40 },
  // The plug-in for llama.cpp: installs the runtime that it is built for, builds it, runs its C++ tests.
  { name: "ggml-native", command: ["node", "scripts/ctest.mjs", "ggml"], long: true, ci: true, needs: ["git"] },
  // What `packaging` asks of libraries, of those too that the two lanes before this one have built.
  {
    name: "packaging-built",
    command: ["node", "scripts/vitest.mjs", "tests/packaging", "--built", "test/binaries.test", "test/installed.test"],
    long: true,
    ci: true,
  },
  {
    name: "cross-arm64",
    command: ["node", "scripts/build-native.mjs", "cross", "linux-arm64-gnu"],
    counts: "exit",
    long: true,
    ci: true,
    needs: ["aarch64-linux-gnu-g++"],
  },
  {
    name: "cross-win32",
    command: ["node", "scripts/build-native.mjs", "cross", "win32-x64"],
    counts: "exit",
    long: true,
    ci: true,
    needs: ["x86_64-w64-mingw32-windres", "clang++-22", "ld.lld-22"],
  },
  // After those that build what it packs.
  {
    name: "release-dry",
    command: ["node", "scripts/release.mjs", "--incomplete", "--counts"],
    long: true,
    ci: true,
    needs: ["readelf"],
  },
  // After gpu-compile, which has built what they run.
  { name: "cuda", command: ["node", "scripts/ctest.mjs", "cuda"], long: true, ci: true, minutes: 40 },
  { name: "hip", command: ["node", "scripts/ctest.mjs", "hip"], long: true, ci: true, minutes: 20 },
  {
    name: "hip-objects",
    command: ["node", "scripts/hip-objects.mjs"],
    long: true,
    ci: true,
    needs: ["build/hip/backends/hip/code-objects"],
  },
  { name: "hip-emulation", command: ["node", "tests/emulation/run.mjs"], long: true, ci: true, minutes: 20 },
  { name: "hip-fuzz", command: ["node", "tests/emulation/fuzz.mjs"], long: true, minutes: 120 },
  { name: "hip-mutation", command: ["node", "tests/emulation/mutate.mjs"], long: true, minutes: 30 },
  ...suites.filter(hasLongTests).map((folder) => ({
    name: `${folder.split("/")[1]}-long`,
    command: ["node", "scripts/vitest.mjs", folder, "--long"],
    long: true,
    ci: !byHand.includes(folder),
    minutes: 20,
  })),
  // Its eight minutes are for a GPU (tests/reliability/gpu.sh); what a round does to the CPU's memory is seen behind 24 of them.
  { name: "soak", command: ["node", "tests/reliability/soak.mjs", "--minutes", "1.5"], long: true },
  // WebGPU on SwiftShader, which comes with Chromium; installs Dawn.
  {
    name: "webgpu-swiftshader",
    command: ["node", "backends/webgpu/test/run.mjs", "--part", "swiftshader"],
    long: true,
    ci: true,
    minutes: 15,
  },
  // llama.cpp's own tests of the plug-in, by hand all of them, for each commit a thirtieth.
  {
    name: "ggml-ops",
    command: ["node", "packages/ggml/test/backend-ops/run.mjs"],
    long: true,
    needs: ["git"],
    minutes: 60,
  },
  {
    name: "ggml-ops-part",
    command: ["node", "packages/ggml/test/backend-ops/run.mjs", "--part"],
    long: true,
    ci: true,
    needs: ["git"],
    minutes: 15,
  },
  // The same tests in the plug-in's CUDA mode, where the CPU plays a GPU.
  {
    name: "ggml-ops-cuda",
    command: ["node", "packages/ggml/test/backend-ops/run.mjs", "--cuda"],
    long: true,
    ci: true,
    needs: ["git"],
    minutes: 15,
  },
  // On adapters that the CPU plays, in Node and in Chromium; what isn't there is skipped.
  { name: "webgpu-adapters", command: ["node", "backends/webgpu/test/run.mjs"], long: true, minutes: 60 },
  // Each commit has another third, and every run checks that all of them fit the sources.
  { name: "mutation-third", command: ["node", "tests/mutation/run.mjs", "--third"], long: true, ci: true, minutes: 15 },
];
