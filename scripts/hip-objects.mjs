// What the compiler made of the HIP kernels: for each code object in build/hip, nothing may spill or use scratch memory, LDS
// fits what every chip of the architecture has, and matrix kernels use matrix instructions.
//   node scripts/hip-objects.mjs            checks, and counts each kernel of each code object
//   node scripts/hip-objects.mjs --table    prints the tables of docs/kernels/hip.md
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { add, line, none, sentence } from "./lib/counts.mjs";
import { fail, root, which } from "./lib/sh.mjs";

const folder = join(root, "build/hip/backends/hip/code-objects");
const tool = (name) => [`${name}-22`, `/opt/rocm/llvm/bin/${name}`, name].find(which);
const [readelf, objdump] = ["llvm-readelf", "llvm-objdump"].map(tool);
const counts = none();
if (!existsSync(folder)) fail("No code objects: run `node scripts/build-native.mjs hip` first.");
if (!readelf || !objdump) {
  const reason = "no llvm-readelf and llvm-objdump (install llvm-22)";
  add(counts, { skipped: 1, reasons: { [reason]: 1 } });
  console.log(line(counts));
  process.exit(0);
}

const read = (program, args) =>
  spawnSync(program, args, { encoding: "utf8", maxBuffer: 1 << 30, stdio: ["ignore", "pipe", "ignore"] }).stdout;

/** Kernels of a code object, with what the metadata says of each. */
function kernelsOf(file) {
  const kernels = [];
  for (const part of read(readelf, ["--notes", file])
    .split(/\n\s+- \.(?:agpr_count|args):/)
    .slice(1)) {
    const number = (name) => Number(new RegExp(`\\.${name}:\\s+(\\d+)`).exec(part)?.[1] ?? 0);
    const name = /\n\s{4}\.name:\s+(\w+)/.exec(part)?.[1];
    if (!name) continue;
    kernels.push({
      name,
      vgprs: number("vgpr_count"),
      sgprs: number("sgpr_count"),
      vgprSpills: number("vgpr_spill_count"),
      sgprSpills: number("sgpr_spill_count"),
      lds: number("group_segment_fixed_size"),
      scratch: number("private_segment_fixed_size"),
    });
  }
  return kernels;
}

/** Instructions of each function: address, text. */
function codeOf(file) {
  const functions = new Map();
  let current;
  for (const text of read(objdump, ["-d", "--no-show-raw-insn", file]).split("\n")) {
    const head = /^[0-9a-f]+ <(\w+)>:/.exec(text);
    if (head) {
      current = [];
      functions.set(head[1], current);
    }
    const instruction = /^\t(.*?)\s*\/\/ ([0-9A-F]+):?(.*)$/.exec(text);
    if (instruction && current)
      current.push({ text: instruction[1], address: Number.parseInt(instruction[2], 16), more: instruction[3] });
  }
  return functions;
}

const isMatrix = ({ text }) => /^v_(mfma|wmma)/.test(text);

/** The innermost loop around all matrix instructions: the shortest backward branch across them. */
function mainLoop(code) {
  const matrix = code.flatMap((instruction, i) => (isMatrix(instruction) ? [i] : []));
  if (matrix.length === 0) return undefined;
  const start = code[0].address;
  let best;
  code.forEach((instruction, i) => {
    if (!/^s_c?branch/.test(instruction.text)) return;
    const offset = /\+0x([0-9a-f]+)>/.exec(instruction.more)?.[1];
    if (!offset) return;
    const target = code.findIndex(({ address }) => address === start + Number.parseInt(offset, 16));
    if (target < 0 || target >= i || target > matrix[0] || i < matrix.at(-1)) return;
    if (!best || i - target < best.length) best = code.slice(target, i + 1);
  });
  return best;
}

/**
 * Cycles in which a wavefront keeps its SIMD busy, by kind. CDNA: a wave64 instruction of the ordinary unit takes 4 cycles,
 * transcendental ones 16, 16x16x16 MFMA 16 (1,307 TFLOP/s of fp16 in 304 units at 2.1 GHz); RDNA: 1, 4 and 16 (WMMA). All
 * blocks of the loop count once, those of masked tiles too, so that the share of matrix instructions is a lower bound.
 */
function cycles(loop, cdna) {
  const sum = { matrix: 0, ordinary: 0, transcendental: 0, lds: 0, memory: 0, scalar: 0 };
  for (const { text } of loop) {
    if (isMatrix({ text })) sum.matrix += 16;
    else if (/^v_(exp|log|rcp|rsq|sqrt|sin|cos)/.test(text)) sum.transcendental += cdna ? 16 : 4;
    else if (/^v_/.test(text)) sum.ordinary += cdna ? 4 : 1;
    else if (/^ds_/.test(text)) sum.lds += cdna ? 4 : 1;
    else if (/^(global|buffer|flat)_/.test(text)) sum.memory += cdna ? 4 : 1;
    else sum.scalar += cdna ? 4 : 1;
  }
  return sum;
}

const rows = [];
const check = (good, text) => {
  if (!good) console.log(`FAIL ${text}`);
  return good;
};
for (const architecture of readdirSync(folder).sort()) {
  const file = join(folder, architecture, "kernels.hip.co");
  if (!existsSync(file)) continue;
  const kernels = kernelsOf(file);
  const code = codeOf(file);
  if (!check(kernels.length > 0, `${architecture}: no kernels in the metadata`)) add(counts, { failed: 1 });
  for (const kernel of kernels) {
    const where = `${architecture} ${kernel.name}`;
    const instructions = code.get(kernel.name) ?? [];
    const matrix = instructions.filter(isMatrix).length;
    const wants = kernel.name.startsWith("attention_matrix");
    const good = [
      check(kernel.vgprSpills === 0, `${where}: ${kernel.vgprSpills} vector registers spilled, must be 0`),
      check(kernel.scratch === 0, `${where}: ${kernel.scratch} bytes of scratch memory, must be 0`),
      check(kernel.lds <= 65536, `${where}: ${kernel.lds} bytes of LDS, must be at most 65,536`),
      check(instructions.length > 0, `${where}: no code found`),
      check(!wants || matrix > 0, `${where}: no matrix instruction`),
    ].every(Boolean);
    add(counts, good ? { passed: 1 } : { failed: 1 });
    rows.push({ architecture, ...kernel, matrix, instructions });
  }
}

if (process.argv.includes("--table")) {
  console.log(
    "| architecture | kernel | VGPR | LDS | matrix instructions in the loop | of the loop's cycles | ordinary | LDS |",
  );
  console.log("|---|---|---|---|---|---|---|---|");
  for (const row of rows.filter(({ matrix }) => matrix > 0)) {
    const loop = mainLoop(row.instructions);
    if (!loop) continue;
    const spent = cycles(loop, row.architecture.startsWith("gfx9"));
    const all = Object.values(spent).reduce((a, b) => a + b);
    const percent = (x) => `${Math.round((100 * x) / all)} %`;
    console.log(
      `| ${row.architecture} | ${row.name.replace("attention_matrix_", "")} | ${row.vgprs} | ${row.lds} | ${loop.filter(isMatrix).length} | ${percent(spent.matrix)} | ${percent(spent.ordinary + spent.transcendental)} | ${percent(spent.lds)} |`,
    );
  }
}
console.log(line(counts));
console.log(sentence(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
