// npm run build:gpu: compiles all GPU code for every architecture that Tessera is for, whether or not this machine has
// such a card: the back ends themselves, for all that ships, in build/cuda and build/hip. What can't be compiled here is
// skipped, and said.
//   --part    of CUDA's architectures sm_90, PTX and one more, drawn by TESSERA_FUZZ_SEED: for CI's hour
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { add, line, none, sentence } from "./lib/counts.mjs";
import { cudaObjects } from "./lib/fatbin.mjs";
import {
  buildCuda,
  buildHip,
  findHipCompiler,
  findNvcc,
  hipArchitectures,
  noHipCompiler,
  noNvcc,
} from "./lib/native.mjs";
import { root } from "./lib/sh.mjs";

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
  const always = ["sm_90", "compute_80"];
  const drawn = ["sm_80", "sm_86", "sm_89", "sm_100", "sm_120"];
  if (!findNvcc()) return skip(always.length + drawn.length + 1, noNvcc);
  const part = process.argv.includes("--part");
  const chosen = part ? [drawn[Number(process.env.TESSERA_FUZZ_SEED ?? 1) % drawn.length]] : drawn;
  if (part) skip(drawn.length - 1, `CUDA architectures that other commits draw; this one drew ${chosen}`);
  const wanted = [...always, ...chosen];
  const numbers = wanted.map((one) => (one === "compute_80" ? "80-ptx" : one.slice(3)));
  buildCuda(["tessera-cuda", "tessera-cuda-checks", "native-tests"], part ? numbers : []);
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

/** The library has each of its code objects, to the byte, for each architecture; the *_check.hip compile for all of them. */
function hip() {
  if (!findHipCompiler()) return skip(hipArchitectures.length, noHipCompiler);
  buildHip(["tessera-hip", "tessera-hip-checks", "native-tests"]);
  const library = "backends/hip/lib/libtessera-hip.so";
  const bytes = readFileSync(join(root, library));
  const sources = readdirSync(join(root, "kernels-hip"), { recursive: true }).filter((file) => file.endsWith(".hip"));
  for (const architecture of hipArchitectures) {
    const objects = join(root, "build/hip/backends/hip/code-objects", architecture);
    const there = sources.filter((source) => {
      const object = join(objects, `${source}.co`);
      return existsSync(object) && (source.endsWith("_check.hip") || bytes.includes(readFileSync(object)));
    });
    const ok = sources.length > 0 && there.length === sources.length;
    console.log(`${ok ? "ok  " : "FAIL"} ${architecture}: ${there.length} of ${sources.length} sources of kernels-hip`);
    add(counts, ok ? { passed: 1 } : { failed: 1 });
  }
}

hip();
cuda();
console.log(line(counts));
console.log(sentence(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
