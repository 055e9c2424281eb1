// npm run build:gpu: compiles all GPU code for every architecture that Tessera is for, whether or not this machine has
// such a card. CUDA: the back end itself, for all that ships, in build/cuda. HIP: files in build/gpu/<architecture>/. What
// can't be compiled here is skipped, and said.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { add, line, none, sentence } from "./lib/counts.mjs";
import { cudaObjects } from "./lib/fatbin.mjs";
import { buildCuda, findNvcc, noNvcc } from "./lib/native.mjs";
import { jobs, output, root, which } from "./lib/sh.mjs";

const include = `-I${join(root, "backends/common/include")}`;
const toolchains = [
  {
    name: "HIP",
    folder: "kernels-hip",
    suffix: ".hip",
    architectures: "gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1102 gfx1150 gfx1151 gfx1200 gfx1201".split(" "),
    compilers: [process.env.HIPCXX, "clang++-22", "/opt/rocm/llvm/bin/clang++"],
    fix: "install clang-22 and lld-22, or set HIPCXX to a clang++ that knows amdgcn",
    known: (compiler) => output(compiler, ["--target=amdgcn-amd-amdhsa", "--print-supported-cpus"]),
    // Freestanding: no HIP header and no device library, so that Debian's clang is enough.
    args: (architecture, source, target) =>
      [
        "-x",
        "hip",
        `--offload-arch=${architecture}`,
        "--offload-device-only",
        "--no-gpu-bundle-output",
        "-nogpuinc",
      ].concat(
        ["-nogpulib", "-std=c++17", "-O3", "-mcode-object-version=5", "-Wall", "-Wextra", "-Werror", include],
        ["-o", target, source],
      ),
    object: ".co",
  },
];

const counts = none();
const skip = (skipped, reason) => {
  console.log(`SKIPPED ${skipped}: ${reason}`);
  add(counts, { skipped, reasons: { [reason]: skipped } });
};

/**
 * Every object of the library has machine code of each architecture that ships, and PTX of the lowest for those to come;
 * those of the kernels on wgmma have code for sm_90a alone.
 */
function cuda() {
  const wanted = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "compute_80"];
  if (!findNvcc()) return skip(wanted.length + 1, noNvcc);
  buildCuda(["tessera-cuda", "tessera-cuda-checks", "native-tests"]);
  const library = "backends/cuda/lib/libtessera-cuda.so";
  const objects = cudaObjects(join(root, library));
  const check = (what, have, of) => {
    const ok = of > 0 && have === of;
    console.log(`${ok ? "ok  " : "FAIL"} ${what}: ${have} of ${of} objects of ${library}`);
    add(counts, ok ? { passed: 1 } : { failed: 1 });
  };
  const hopperOnly = (object) => object.length === 1 && object[0] === "sm_90";
  const hopperSources = readdirSync(join(root, "kernels-cuda/sm90")).filter((file) => /^prefill_.*\.cu$/.test(file));
  check("sm_90a alone", objects.filter(hopperOnly).length, hopperSources.length);
  const others = objects.filter((object) => !hopperOnly(object));
  for (const architecture of wanted)
    check(architecture, others.filter((object) => object.includes(architecture)).length, others.length);
}

const queue = [];
for (const { name, folder, suffix, architectures, compilers, fix, known, args, object } of toolchains) {
  const sources = readdirSync(join(root, folder), { recursive: true }).filter((file) => file.endsWith(suffix));
  const compiler = compilers.find((candidate) => candidate && which(candidate));
  if (!compiler) {
    skip(sources.length * architectures.length, `no ${name} compiler (${fix})`);
    continue;
  }
  const list = known(compiler) ?? "";
  for (const architecture of architectures) {
    if (!new RegExp(`\\b${architecture}\\b`).test(list)) {
      skip(sources.length, `${compiler} doesn't know ${architecture}`);
      continue;
    }
    const target = join(root, "build", "gpu", architecture);
    mkdirSync(target, { recursive: true });
    for (const source of sources) {
      const out = join(target, basename(source, suffix) + object);
      queue.push({
        what: `${architecture} ${folder}/${source}`,
        compiler,
        args: args(architecture, join(folder, source), out),
      });
    }
  }
}

async function worker() {
  for (let job = queue.shift(); job; job = queue.shift()) {
    const child = spawn(job.compiler, job.args, { cwd: root, stdio: "inherit" });
    const [code] = await once(child, "close");
    console.log(`${code === 0 ? "ok  " : "FAIL"} ${job.what}`);
    add(counts, code === 0 ? { passed: 1 } : { failed: 1 });
  }
}
await Promise.all(Array.from({ length: Number(jobs) }, worker));
cuda();
console.log(line(counts));
console.log(sentence(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
