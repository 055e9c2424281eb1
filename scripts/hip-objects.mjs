// What the compiler made of the HIP kernels: for each code object in build/hip, nothing may spill or use scratch memory, LDS
// fits what every chip of the architecture has, and matrix kernels use matrix instructions.
//   node scripts/hip-objects.mjs            checks, and counts each kernel of each code object
//   node scripts/hip-objects.mjs --table    prints the table of docs/kernels/hip.md, too
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { add, line, none, sentence } from "./lib/counts.mjs";
import { costOn, mainLoop, matrixCount, parseCode, spent } from "./lib/hip-code.mjs";
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

/**
 * What the kernels' headers claim: wavefronts of a block, and how many blocks a compute unit is to hold at a time, of registers
 * (512 for each lane of a SIMD on CDNA; 1,536 on gfx110x and gfx1151, 1,024 on the other RDNA, in wavefronts of 32) and of LDS
 * (64 KB; 160 KB on gfx950; 64 KB for each of the two compute units of an RDNA workgroup processor).
 */
function claimOf(name) {
  if (name.startsWith("attention_pipeline")) return { threads: 512, blocks: 1 };
  return { threads: /^append|^advance/.test(name) ? 128 : 256, blocks: 1 };
}
function fits(architecture, kernel) {
  const { threads, blocks } = claimOf(kernel.name);
  const cdna = architecture.startsWith("gfx9");
  const simds = cdna ? 4 : 2;
  const registers = cdna ? 512 : /^gfx110|^gfx1151/.test(architecture) ? 1536 : 1024;
  const waves = Math.ceil((threads / (cdna ? 64 : 32) / simds) * blocks);
  const lds = architecture === "gfx950" ? 163840 : 65536;
  return { registers: Math.floor(registers / waves), lds: Math.floor(lds / blocks), blocks };
}

/** Of all cycles of the loop, if nothing overlapped. */
const shareOf = ({ ldsBytes, ...cycles }) => cycles.matrix / Object.values(cycles).reduce((a, b) => a + b);
const percent = (x) => `${(100 * x).toFixed(1)} %`;
const leastShare = {
  "gfx942 attention_pipeline_f16_128": 0.6,
  "gfx942 attention_pipeline_bf16_128": 0.6,
};

const rows = [];
const check = (good, text) => {
  if (!good) console.log(`FAIL ${text}`);
  return good;
};
for (const architecture of readdirSync(folder).sort()) {
  const file = join(folder, architecture, "kernels.hip.co");
  if (!existsSync(file)) continue;
  const kernels = kernelsOf(file);
  const code = parseCode(read(objdump, ["-d", "--no-show-raw-insn", file]));
  if (!check(kernels.length > 0, `${architecture}: no kernels in the metadata`)) add(counts, { failed: 1 });
  for (const kernel of kernels) {
    const where = `${architecture} ${kernel.name}`;
    const instructions = code.get(kernel.name) ?? [];
    const matrix = matrixCount(instructions);
    const loop = mainLoop(instructions, costOn(architecture));
    const wants = /^attention_(matrix|pipeline|decode)/.test(kernel.name);
    const room = fits(architecture, kernel);
    const share = loop ? shareOf(spent(loop, architecture)) : 0;
    const least = leastShare[`${architecture} ${kernel.name}`] ?? 0;
    const good = [
      check(kernel.vgprSpills === 0, `${where}: ${kernel.vgprSpills} vector registers spilled, must be 0`),
      check(kernel.scratch === 0, `${where}: ${kernel.scratch} bytes of scratch memory, must be 0`),
      check(kernel.lds <= 65536, `${where}: ${kernel.lds} bytes of LDS, must be at most 65,536`),
      check(instructions.length > 0, `${where}: no code found`),
      check(!wants || loop !== undefined, `${where}: no matrix instruction in a loop`),
      check(
        share >= least,
        `${where}: ${percent(share)} of the loop's cycles are matrix instructions', must be ${percent(least)}`,
      ),
      check(
        kernel.vgprs <= room.registers && kernel.lds <= room.lds,
        `${where}: ${kernel.vgprs} registers and ${kernel.lds} bytes of LDS, for ${room.blocks} blocks at a time must be at most ${room.registers} and ${room.lds}`,
      ),
    ].every(Boolean);
    add(counts, good ? { passed: 1 } : { failed: 1 });
    rows.push({ architecture, ...kernel, matrix, loop });
  }
}

if (process.argv.includes("--table")) {
  console.log(
    "| architecture | kernel | VGPR | LDS | matrix instructions | cycles: matrix | vector | transcendental | other | matrix share | LDS bytes per matrix instruction | bound |",
  );
  console.log("|---|---|---|---|---|---|---|---|---|---|---|---|");
  for (const { architecture, name, vgprs, lds, loop } of rows) {
    if (!loop) continue;
    const sum = spent(loop, architecture);
    const other = sum.lds + sum.memory + sum.scalar;
    const vector = sum.vector + sum.transcendental;
    const share = percent(shareOf(sum));
    // 128 bytes of LDS a cycle, shared by the SIMDs of a compute unit; 256 on gfx950, by the article that hip.md names.
    const ldsCycles =
      (sum.ldsBytes * (architecture.startsWith("gfx9") ? 4 : 2)) / (architecture === "gfx950" ? 256 : 128);
    const bound = Object.entries({ matrix: sum.matrix, vector, LDS: ldsCycles }).sort(([, a], [, b]) => b - a)[0][0];
    const count = matrixCount(loop);
    const short = name.replace("attention_", "");
    console.log(
      `| ${architecture} | ${short} | ${vgprs} | ${lds} | ${count} | ${sum.matrix} | ${sum.vector} | ${sum.transcendental} | ${other} | ${share} | ${Math.round(sum.ldsBytes / count)} | ${bound} |`,
    );
  }
}
console.log(line(counts));
console.log(sentence(counts));
process.exitCode = counts.failed > 0 ? 1 : 0;
