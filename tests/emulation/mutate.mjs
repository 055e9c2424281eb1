// Breaks the HIP kernels in ways in which such kernels break, and expects the conformance table to notice on the emulator.
//   node tests/emulation/mutate.mjs [NAME…]
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { add, line, none, sentence } from "../../scripts/lib/counts.mjs";
import { buildHip, buildTarget, findHipCompiler, noHipCompiler } from "../../scripts/lib/native.mjs";
import { fail, root } from "../../scripts/lib/sh.mjs";
import { buildKernels, conform, emulated, inTurn } from "./run.mjs";

/** `find` is in the file exactly once. `kernel`: the row that is built and looked at alone. */
const mutations = [
  {
    name: "layout: rows of D on RDNA3",
    file: "kernels-hip/matrix/instructions.h",
    find: "return 2 * e + lane / 16;",
    replace: "return 8 * (lane / 16) + e;",
    architecture: "gfx1100",
    kernel: "prefill-matrix",
  },
  {
    name: "layout: rows of D on CDNA",
    file: "kernels-hip/matrix/instructions.h",
    find: "TSR_DEVICE int row_of(int lane, int e) { return 4 * (lane / 16) + e; }",
    replace: "TSR_DEVICE int row_of(int lane, int e) { return lane / 16 + 4 * e; }",
    architecture: "gfx942",
    kernel: "prefill-matrix",
  },
  {
    name: "layout: k of a fragment on RDNA4",
    file: "kernels-hip/matrix/instructions.h",
    find: "lds_load<word4v>(row + lane / 16 * 16)",
    replace: "lds_load<word4v>(row + (1 - lane / 16) * 16)",
    architecture: "gfx1201",
    kernel: "prefill-matrix",
  },
  {
    name: "exchange: gfx11's other half of P",
    file: "kernels-hip/matrix/instructions.h",
    find: "b[2 * e] = T::round(lane < 16 ? d[e] : other);",
    replace: "b[2 * e] = T::round(d[e]);",
    architecture: "gfx1100",
    kernel: "prefill-matrix",
  },
  {
    name: "reduction: the upper half of a wavefront of 64",
    file: "kernels-hip/matrix/instructions.h",
    find: "return kWave == 64 ? larger(x, from_lane(x, lane ^ 32)) : x;",
    replace: "static_cast<void>(lane);\n  return x;",
    architecture: "gfx942",
    kernel: "prefill-matrix",
  },
  {
    name: "barrier: before K is overwritten",
    file: "kernels-hip/matrix/attention.h",
    find: "    block_barrier();\n    TSR_ROLLED for (int chunk",
    replace: "    TSR_ROLLED for (int chunk",
    architecture: "gfx942",
    kernel: "prefill-matrix",
  },
  {
    name: "barrier: before K is read",
    file: "kernels-hip/matrix/attention.h",
    find: "    block_barrier();\n\n    Sum score",
    replace: "\n    Sum score",
    architecture: "gfx1201",
    kernel: "prefill-matrix",
  },
  {
    name: "barrier: before P is read in the plain kernel",
    file: "kernels-hip/plain/attention.h",
    find: "    block_barrier();  // K has been read by all, and P is whole\n",
    replace: "",
    architecture: "gfx1030",
    kernel: "prefill-plain",
  },
  {
    name: "mask: one key too many",
    file: "kernels-hip/matrix/attention.h",
    find: "j >= begin && j < end ?",
    replace: "j >= begin && j <= end ?",
    architecture: "gfx942",
    kernel: "prefill-matrix",
  },
  {
    name: "mask: a tile taken for whole",
    file: "kernels-hip/matrix/attention.h",
    find: "first + kKeys <= common.end;",
    replace: "first + kKeys <= common.end + kKeys;",
    architecture: "gfx1100",
    kernel: "prefill-matrix",
  },
  {
    name: "tail: rows of V past the length are read",
    file: "kernels-hip/matrix/attention.h",
    find: "if (seen.contains(first + row)) {",
    replace: "if (first + row < a.max_keys) {",
    architecture: "gfx942",
    kernel: "prefill-matrix",
  },
  {
    name: "pad: a row of K begins where the one before ends",
    file: "kernels-hip/matrix/attention.h",
    find: "const Fragment k = load_fragment<T>(k_tile + (n * 16 + column) * kRowBytes",
    replace: "const Fragment k = load_fragment<T>(k_tile + (n * 16 + column) * (kRowBytes - 16)",
    architecture: "gfx1201",
    kernel: "prefill-matrix",
  },
  {
    name: "rescale: O keeps the older maximum",
    file: "kernels-hip/matrix/attention.h",
    find: "out[g][d][e] *= rescale;",
    replace: "out[g][d][e] *= 1.0f;",
    architecture: "gfx942",
    kernel: "prefill-matrix",
  },
  {
    name: "split: the last part is left out",
    file: "kernels-hip/common/split.h",
    find: "  for (int split = 0; split < t.splits; ++split) {\n    const float* const partial",
    replace: "  for (int split = 0; split < t.splits - 1; ++split) {\n    const float* const partial",
    architecture: "gfx1030",
    kernel: "prefill-plain",
  },
  {
    name: "append: the quadrant of an angle",
    file: "kernels-hip/common/rotary.h",
    find: "quarter == 1 || quarter == 2 ? -c : c",
    replace: "quarter == 2 ? -c : c",
    architecture: "gfx1030",
    kernel: "prefill-plain",
  },
  {
    name: "append: a quantiser's first largest value",
    file: "kernels-hip/common/append.h",
    find: "return {most, from_lane(x, lane & (kWave - 1)), nan};",
    replace: "return {most, lane < 0 ? x : most, nan};",
    architecture: "gfx942",
    kernel: "prefill-plain",
  },
  ...[
    {
      name: "layout: rows of D, 32 x 32",
      file: "kernels-hip/matrix/wide.h",
      find: "return 8 * (e / 4) + 4 * (lane / 32) + e % 4;",
      replace: "return 8 * (e / 4) + 4 * (1 - lane / 32) + e % 4;",
    },
    {
      name: "layout: k of gfx950's operands",
      file: "kernels-hip/matrix/wide.h",
      find: "bits_of<half8v>(b), c, 0, 0, 0);",
      replace: "bits_of<half8v>(b.zwxy), c, 0, 0, 0);",
      architecture: "gfx950",
    },
    {
      name: "exchange: gfx950 swaps halves",
      file: "kernels-hip/matrix/wide.h",
      find: "static_cast<uint32_t>(both[1])));",
      replace: "static_cast<uint32_t>(both[0])));",
      architecture: "gfx950",
    },
    {
      name: "copies: nobody waits for them",
      file: "kernels-hip/matrix/wide.h",
      find: "__builtin_amdgcn_s_waitcnt(0x0f70);",
      replace: "__builtin_amdgcn_s_waitcnt(0x0f7f);",
    },
    {
      name: "swizzle: K is copied without",
      file: "kernels-hip/matrix/pipeline.h",
      find: "(at % kRowBytes) ^ (at / kRowBytes & 7) * 16",
      replace: "at % kRowBytes",
    },
    {
      name: "swizzle: the halves of V",
      file: "kernels-hip/matrix/pipeline.h",
      find: "(m % 2 ^ swapped(d)) * 8",
      replace: "m % 2 * 8",
    },
    {
      name: "phases: the second half is two behind",
      file: "kernels-hip/matrix/pipeline.h",
      find: "    if constexpr (kHalf == 1) block_barrier();\n    multiply_keys(0);",
      replace: "    if constexpr (kHalf == 1) block_barrier(), block_barrier();\n    multiply_keys(0);",
    },
    {
      name: "phases: K is fetched a phase early",
      file: "kernels-hip/matrix/pipeline.h",
      find: "    if constexpr (kHalf == 1) fetch<kPlain>(1 - buffer, tile + 1);",
      replace: "    if constexpr (kHalf == 1) fetch<kPlain>(buffer, tile + 1);",
    },
    {
      name: "barrier: between softmax and multiplication",
      file: "kernels-hip/matrix/pipeline.h",
      find: "    if constexpr (kHalf == 0) arrive(1 - buffer);\n    end_phase();",
      replace: "    if constexpr (kHalf == 0) arrive(1 - buffer);",
    },
    {
      name: "mask: the plain loop goes one tile too far",
      file: "kernels-hip/matrix/pipeline.h",
      find: "const int behind_full = first_full + full_tiles - 1,",
      replace: "const int behind_full = first_full + full_tiles + 1,",
    },
    {
      name: "tail: the plain loop fetches past the keys",
      file: "kernels-hip/matrix/pipeline.h",
      find: "behind_inside = first_inside + inside_tiles - 3;",
      replace: "behind_inside = first_inside + inside_tiles + 1;",
    },
    {
      name: "buffers: those of the plain loop",
      file: "kernels-hip/matrix/pipeline.h",
      find: "step<kHalf, true>(1, tile + 1);",
      replace: "step<kHalf, true>(0, tile + 1);",
    },
    {
      name: "rescale: O of the pipeline keeps the older maximum",
      file: "kernels-hip/matrix/pipeline.h",
      find: "out[d] *= rescale;",
      replace: "out[d] *= 1.0f;",
    },
    {
      name: "scale: a negative one",
      file: "kernels-hip/matrix/pipeline.h",
      find: "a.scale < 0 ? 0x80008000u : 0u",
      replace: "0u",
    },
    {
      name: "scale: one of 0",
      file: "kernels-hip/matrix/pipeline.h",
      find: "larger(__builtin_fabsf(a.scale) * kLog2e, 1e-37f)",
      replace: "__builtin_fabsf(a.scale) * kLog2e",
    },
    {
      name: "scale: one so large that the maximum's rounding is whole exponents",
      file: "kernels-hip/matrix/pipeline.h",
      find: "__builtin_fabsf(finite) > kFar",
      replace: "finite > __builtin_inff()",
    },
    {
      name: "chiplets: two blocks have one tile",
      file: "kernels-hip/matrix/pipeline.h",
      find: "pair = slot / each * chiplets + block % chiplets;",
      replace: "pair = slot / each * chiplets;",
    },
    {
      name: "pages: V's is the one that K is at",
      file: "kernels-hip/matrix/pipeline.h",
      find: "key_at(v, v_stride, v_page_stride, v_page, first)",
      replace: "key_at(v, v_stride, v_page_stride, k_page, first)",
    },
    {
      name: "pages: a wavefront's place in its page",
      file: "kernels-hip/matrix/pipeline.h",
      find: "const int slot = (first_key + key) & ((1 << page_shift) - 1);",
      replace: "const int slot = key & 7;",
    },
  ].map((mutation) => ({ architecture: "gfx942", kernel: "prefill-pipeline", ...mutation })),
  ...[
    {
      name: "decode: a block's scale is another key's",
      find: "from_lane(scale, row_of(lane, e))",
      replace: "from_lane(scale, lane % 16)",
    },
    {
      name: "decode: nibbles of the other half of a block",
      find: "const int shift = i < 16 ? 0 : 4;",
      replace: "const int shift = i < 16 ? 4 : 0;",
    },
    {
      name: "decode: V in blocks is rounded to bf16",
      find: "sums = matrix::multiply(b, weights, sums);",
      replace: "static_cast<void>(b);",
    },
    {
      name: "decode: P over blocks is rounded to bf16",
      find: "sums = matrix::multiply(a, rests, sums);",
      replace: "static_cast<void>(rests);",
    },
    {
      name: "decode: keys past those that are seen are read",
      find: "key < most ? key : most",
      replace: "key < most + kKeys ? key : most",
    },
    {
      name: "decode: a wavefront's result replaces those before it",
      find: "w == 0 ? mine :",
      replace: "w <= 1 ? mine :",
    },
    {
      name: "decode: V's page is another key's",
      find: "from_lane(place[n].row, of)",
      replace: "place[n].row",
    },
    {
      name: "layout: k of an operand that V fills on RDNA4",
      find: "return lane / 16 * 8 + e; }",
      replace: "return (1 - lane / 16) * 8 + e; }",
      architecture: "gfx1201",
    },
    {
      name: "barrier: before the queries in LDS are read",
      find: "    if (kQueriesInLds) block_barrier();\n",
      replace: "",
      architecture: "gfx1201",
    },
    {
      name: "f8: which half of a word",
      find: "static_cast<int>(word), kPair != 0)",
      replace: "static_cast<int>(word), kPair == 0)",
      architecture: "gfx1201",
    },
  ].map((mutation) => ({
    file: "kernels-hip/matrix/decode.h",
    architecture: "gfx942",
    kernel: "decode-matrix",
    ...mutation,
  })),
];

function change(path, find, replace, name) {
  const original = readFileSync(path, "utf8");
  if (original.split(find).length !== 2) fail(`${name}: ${path} doesn't have this exactly once:\n${find}`);
  writeFileSync(
    path,
    original.replace(find, () => replace),
  );
}

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
const copies = mkdtempSync(join(tmpdir(), "tsr-emulation-"));
const begin = Date.now();
try {
  const queue = mutations.filter(({ name }) => wanted.length === 0 || wanted.some((part) => name.includes(part)));
  if (queue.length === 0) fail(`No mutation has ${wanted.join(" or ")} in its name`);
  // What isn't changed has to pass.
  const combinations = new Map(queue.map((m) => [`${m.architecture} ${m.kernel}`, m]));
  for (const { architecture, kernel } of combinations.values()) queue.push({ name: "nothing", architecture, kernel });
  await inTurn(queue, async ({ name, file, find, replace, architecture, kernel }, worker) => {
    const copy = join(copies, `${worker}`);
    const library = join(copy, "mutant.so");
    for (const folder of ["kernels-hip", "tests/emulation", "backends/common/include"])
      cpSync(join(root, folder), join(copy, folder), { recursive: true });
    if (file) change(join(copy, file), find, replace, name);
    const built = await buildKernels(compiler, copy, library, [architecture], kernel);
    const result = built ? await conform(architecture, ["--quick", "--kernel", kernel], library) : null;
    const good = result !== null && result.conformant === !file;
    const said = result === null ? "" : `  (${result.passed ?? 0} checks passed, ${result.failed ?? "a crash"} failed)`;
    const verdict = !built ? "DOESN'T COMPILE" : result === null ? "DOESN'T RUN" : file ? "SURVIVED" : "FAILS";
    console.log(`${good ? (file ? "caught" : "passes") : verdict}  ${architecture} ${kernel}: ${name}${said}`);
    add(counts, good ? { passed: 1 } : { failed: 1 });
  });
} finally {
  rmSync(copies, { recursive: true, force: true });
}
console.log(`${mutations.length} mutations in the list; ${Math.round((Date.now() - begin) / 1000)} s`);
console.log(line(counts));
console.log(sentence(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
