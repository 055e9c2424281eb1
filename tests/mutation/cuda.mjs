// Does the conformance table bite on a GPU? Builds the CUDA back end with one defect at a time (cuda-mutations.mjs), for one
// architecture, and expects `tessera conform` to refuse each on that architecture's GPU; a build without a defect has to pass.
//
//   node tests/mutation/cuda.mjs                        both, where there are a CUDA compiler and a GPU; else says what it skips
//   node tests/mutation/cuda.mjs --build FOLDER [90]    libraries only, for a machine that has no compiler
//   node tests/mutation/cuda.mjs --check FOLDER         that machine's part
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { mutations } from "./cuda-mutations.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const [mode, given, architecture = "90"] = process.argv.slice(2);
const nvcc = [process.env.CUDACXX, "nvcc", "/usr/local/cuda/bin/nvcc"].find(
  (name) => name && spawnSync(name, ["--version"]).status === 0,
);
const counts = { passed: 0, failed: 0, skipped: 0, reasons: {} };
const say = (good, text) => {
  counts[good ? "passed" : "failed"]++;
  console.log(text);
};
const skip = (count, reason) => {
  counts.skipped += count;
  counts.reasons[reason] = count;
};

function cmake(...args) {
  const { status, stdout, stderr } = spawnSync("cmake", args, { encoding: "utf8", maxBuffer: 1 << 26 });
  return status === 0 ? "" : `${stdout}\n${stderr}`.trim().slice(-2000);
}

/** Libraries in `folder`: control.so, and one for each mutation that compiles. */
function build(folder) {
  const copy = mkdtempSync(join(tmpdir(), "tessera-cuda-mutation-"));
  try {
    for (const part of [
      "CMakeLists.txt",
      "cmake",
      "backends",
      "kernels-cuda",
      "packages/core/include",
      "tests/abi",
      "tests/fuzz",
    ])
      cpSync(join(root, part), join(copy, part), {
        recursive: true,
        filter: (path) => !/node_modules|\/lib(\/|$)/.test(path),
      });
    const tree = join(copy, "build");
    const library = join(copy, "backends/cuda/lib/libtessera-cuda.so");
    const made = (to) => {
      const complaint = cmake("--build", tree, "--parallel", `${availableParallelism()}`, "--target", "tessera-cuda");
      if (complaint === "") cpSync(library, join(folder, `${to}.so`));
      return complaint;
    };
    mkdirSync(folder, { recursive: true });
    const complaint =
      cmake(
        ...["-S", copy, "-B", tree, "-DTSR_CUDA=ON", `-DTSR_CUDA_ARCHITECTURES=${architecture}`],
        `-DCMAKE_CUDA_COMPILER=${nvcc}`,
      ) || made("control");
    if (complaint) return say(false, `control: does not build\n${complaint}`);
    for (const { name, file, find, replace } of mutations) {
      const path = join(copy, file);
      const source = readFileSync(path, "utf8");
      writeFileSync(
        path,
        source.replace(find, () => replace),
      );
      const problem = made(name);
      if (problem) say(false, `ERROR ${name}: does not compile\n${problem}`);
      else console.log(`built ${name}`);
      writeFileSync(path, source);
    }
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function conform(library, options) {
  const cli = process.env.TESSERA_CLI ?? join(root, "packages/cli/bin/tessera.js");
  const { status, stdout, stderr } = spawnSync(process.execPath, [cli, "conform", library, ...options], {
    encoding: "utf8",
    timeout: 300_000,
    maxBuffer: 1 << 26,
    env: { ...process.env, NO_COLOR: "1" },
  });
  const text = `${stdout}${stderr}`;
  const lines = text.split("\n");
  return { status, why: (lines.find((line) => /FAIL/.test(line)) ?? text.trim().slice(-300)).trim() };
}

function check(folder) {
  const control = join(folder, "control.so");
  const { status, why } = conform(control, ["--quick", "--layout", "contiguous"]);
  if (status === 3) return skip(mutations.length + 1, `mutations of CUDA kernels: ${why}`);
  say(status === 0, `control: ${status === 0 ? "green" : `must be green: ${why}`}`);
  for (const { name, breaks, cases, kernels } of mutations) {
    const library = join(folder, `${name}.so`);
    if (!existsSync(library)) {
      say(false, `ERROR ${name}: was not built`);
      continue;
    }
    const forced = kernels.flatMap((kernel) => ["--kernel", kernel]);
    let result = conform(library, ["--quick", "--filter", cases, "--layout", "contiguous", ...forced]);
    if (result.status === 0) result = conform(library, forced); // the whole table
    const caught = result.status === 1 || result.status === null;
    say(caught, `${caught ? "caught" : "MISSED"} ${name} (${breaks})\n    ${result.why.slice(0, 300)}`);
  }
}

// Whether the list still fits the sources costs nothing, so that is looked at everywhere.
for (const { name, file, find } of mutations) {
  const source = join(root, file);
  if (!existsSync(source)) continue; // a machine that only checks has no sources
  const places = readFileSync(source, "utf8").split(find).length - 1;
  say(places === 1, `${places === 1 ? "fits" : "ERROR"} ${name}: its text occurs ${places} times in ${file}`);
}
if (mode === "--check") check(given);
else if (!nvcc)
  skip(mutations.length + 1, "mutations of CUDA kernels: no CUDA compiler (install the toolkit, or set CUDACXX)");
else if (mode === "--build") build(given);
else if (!readdirSync("/dev").some((name) => basename(name).startsWith("nvidia")))
  skip(mutations.length + 1, "mutations of CUDA kernels: no NVIDIA GPU");
else {
  const folder = mkdtempSync(join(tmpdir(), "tessera-cuda-mutants-"));
  build(folder);
  check(folder);
  rmSync(folder, { recursive: true, force: true });
}
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
console.log(`::tessera ${JSON.stringify(counts)}`);
process.exitCode = counts.failed === 0 ? 0 : 1;
