// Breaks the HIP kernels in ways in which such kernels break, and expects the conformance table to notice on the emulator.
//   node tests/emulation/mutate.mjs [NAME…]
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { add, line, none, sentence } from "../../scripts/lib/counts.mjs";
import { buildHip, buildTarget, findHipCompiler, noHipCompiler } from "../../scripts/lib/native.mjs";
import { fail, root } from "../../scripts/lib/sh.mjs";
import { buildKernels, conform, emulated } from "./run.mjs";

/** `find` is in the file exactly once. `cases`: where to look; kernels of that name are looked at alone. */
const mutations = [
  {
    name: "layout: rows of D on RDNA3",
    file: "kernels-hip/matrix/instructions.h",
    find: "return 2 * e + lane / 16;",
    replace: "return 8 * (lane / 16) + e;",
    architecture: "gfx1100",
  },
  {
    name: "layout: rows of D on CDNA",
    file: "kernels-hip/matrix/instructions.h",
    find: "TSR_DEVICE int row_of(int lane, int e) { return 4 * (lane / 16) + e; }",
    replace: "TSR_DEVICE int row_of(int lane, int e) { return lane / 16 + 4 * e; }",
    architecture: "gfx942",
  },
  {
    name: "layout: k of a fragment on RDNA4",
    file: "kernels-hip/matrix/instructions.h",
    find: "lds_load<word4v>(row + lane / 16 * 16)",
    replace: "lds_load<word4v>(row + (1 - lane / 16) * 16)",
    architecture: "gfx1201",
  },
  {
    name: "exchange: gfx11's other half of P",
    file: "kernels-hip/matrix/instructions.h",
    find: "b[2 * e] = T::round(lane < 16 ? d[e] : other);",
    replace: "b[2 * e] = T::round(d[e]);",
    architecture: "gfx1100",
  },
  {
    name: "reduction: the upper half of a wavefront of 64",
    file: "kernels-hip/matrix/instructions.h",
    find: "return kWave == 64 ? larger(x, from_lane(x, lane ^ 32)) : x;",
    replace: "static_cast<void>(lane);\n  return x;",
    architecture: "gfx942",
  },
  {
    name: "barrier: before K is overwritten",
    file: "kernels-hip/matrix/attention.h",
    find: "    block_barrier();\n    TSR_ROLLED for (int chunk",
    replace: "    TSR_ROLLED for (int chunk",
    architecture: "gfx942",
  },
  {
    name: "barrier: before K is read",
    file: "kernels-hip/matrix/attention.h",
    find: "    block_barrier();\n\n    Sum score",
    replace: "\n    Sum score",
    architecture: "gfx1201",
  },
  {
    name: "barrier: before P is read in the plain kernel",
    file: "kernels-hip/plain/attention.h",
    find: "    block_barrier();  // K has been read by all, and P is whole\n",
    replace: "",
    architecture: "gfx1030",
  },
  {
    name: "mask: one key too many",
    file: "kernels-hip/matrix/attention.h",
    find: "j >= begin && j < end ?",
    replace: "j >= begin && j <= end ?",
    architecture: "gfx942",
  },
  {
    name: "mask: a tile taken for whole",
    file: "kernels-hip/matrix/attention.h",
    find: "first + kKeys <= common.end;",
    replace: "first + kKeys <= common.end + kKeys;",
    architecture: "gfx1100",
  },
  {
    name: "tail: rows of V past the length are read",
    file: "kernels-hip/matrix/attention.h",
    find: "if (seen.contains(first + row)) {",
    replace: "if (first + row < a.max_keys) {",
    architecture: "gfx942",
  },
  {
    name: "pad: a row of K begins where the one before ends",
    file: "kernels-hip/matrix/attention.h",
    find: "const Fragment k = load_fragment<T>(k_tile + (n * 16 + column) * kRowBytes",
    replace: "const Fragment k = load_fragment<T>(k_tile + (n * 16 + column) * (kRowBytes - 16)",
    architecture: "gfx1201",
  },
  {
    name: "rescale: O keeps the older maximum",
    file: "kernels-hip/matrix/attention.h",
    find: "out[g][d][e] *= rescale;",
    replace: "out[g][d][e] *= 1.0f;",
    architecture: "gfx942",
  },
  {
    name: "split: the last part is left out",
    file: "kernels-hip/common/split.h",
    find: "  for (int split = 0; split < t.splits; ++split) {\n    const float* const partial",
    replace: "  for (int split = 0; split < t.splits - 1; ++split) {\n    const float* const partial",
    architecture: "gfx1030",
  },
  {
    name: "append: the quadrant of an angle",
    file: "kernels-hip/common/rotary.h",
    find: "quarter == 1 || quarter == 2 ? -c : c",
    replace: "quarter == 2 ? -c : c",
    architecture: "gfx1030",
  },
  {
    name: "append: a quantiser's first largest value",
    file: "kernels-hip/common/append.h",
    find: "return {most, from_lane(x, lane & (kWave - 1)), nan};",
    replace: "return {most, lane < 0 ? x : most, nan};",
    architecture: "gfx942",
  },
];

const wanted = process.argv.slice(2);
const counts = none();
const compiler = findHipCompiler();
if (!compiler) {
  add(counts, { skipped: mutations.length, reasons: { [`emulation: ${noHipCompiler}`]: mutations.length } });
  console.log(line(counts));
  process.exit(0);
}
buildHip(["tessera-hip"], emulated);
buildTarget("played-hip7", "hip");
const copy = mkdtempSync(join(tmpdir(), "tsr-emulation-"));
const library = join(copy, "mutant.so");
try {
  for (const folder of ["kernels-hip", "tests/emulation", "backends/common/include"])
    cpSync(join(root, folder), join(copy, folder), { recursive: true });
  for (const { name, file, find, replace, architecture } of mutations) {
    if (wanted.length > 0 && !wanted.some((part) => name.includes(part))) continue;
    const original = readFileSync(join(copy, file), "utf8");
    if (original.split(find).length !== 2) fail(`${name}: ${file} doesn't have this exactly once:\n${find}`);
    writeFileSync(
      join(copy, file),
      original.replace(find, () => replace),
    );
    const built = await buildKernels(compiler, copy, library, [architecture]);
    const result = built ? await conform(architecture, ["--quick"], library) : null;
    writeFileSync(join(copy, file), original);
    const caught = built && (result === null || result.failed > 0);
    console.log(`${caught ? "caught" : built ? "SURVIVED" : "DOESN'T COMPILE"}  ${architecture}  ${name}`);
    add(counts, caught ? { passed: 1 } : { failed: 1 });
  }
} finally {
  rmSync(copy, { recursive: true, force: true });
}
console.log(line(counts));
console.log(sentence(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
