// AMD machine code as llvm-objdump prints it: the loop of a kernel that multiplies matrices, its cheapest way round, and the
// cycles that takes. docs/kernels/hip.md says what the figures mean.

const isMatrix = ({ text }) => /^v_(mfma|wmma)/.test(text);
export const matrixCount = (code) => code.filter(isMatrix).length;

/** Instructions of each function: { text, address, target }. */
export function parseCode(listing) {
  const functions = new Map();
  let current;
  for (const row of listing.split("\n")) {
    const head = /^[0-9a-f]+ <(\w+)>:/.exec(row);
    if (head) {
      current = [];
      functions.set(head[1], current);
    }
    const found = /^\t(.*?)\s*\/\/ ([0-9A-F]+):?(.*)$/.exec(row);
    if (!found || !current) continue;
    const offset = /^s_c?branch/.test(found[1]) && /<\w+(?:\+0x([0-9a-f]+))?>/.exec(found[3]);
    const address = Number.parseInt(found[2], 16);
    const start = current[0]?.address ?? address;
    current.push({
      text: found[1],
      address,
      target: offset ? start + Number.parseInt(offset[1] ?? "0", 16) : undefined,
    });
  }
  return functions;
}

/** Basic blocks: { code, next: indices of blocks }. */
function blocksOf(code) {
  const starts = new Set([code[0].address]);
  code.forEach(({ text, target }, i) => {
    if (target !== undefined) starts.add(target);
    if (/^s_(c?branch|endpgm|setpc)/.test(text) && code[i + 1]) starts.add(code[i + 1].address);
  });
  const blocks = [];
  const at = new Map();
  for (const instruction of code) {
    if (starts.has(instruction.address)) {
      at.set(instruction.address, blocks.length);
      blocks.push({ code: [], next: [] });
    }
    blocks.at(-1).code.push(instruction);
  }
  blocks.forEach((block, i) => {
    const { text, target } = block.code.at(-1);
    if (target !== undefined && at.has(target)) block.next.push(at.get(target));
    if (!/^s_(branch|endpgm|setpc)/.test(text) && i + 1 < blocks.length) block.next.push(i + 1);
  });
  return blocks;
}

/** Strongly connected parts of the blocks in `inside`, in reverse order of flow (Tarjan). */
function parts(blocks, inside, without = -1) {
  const index = new Map();
  const low = new Map();
  const stack = [];
  const found = [];
  const visit = (v) => {
    index.set(v, index.size);
    low.set(v, index.get(v));
    stack.push(v);
    for (const w of blocks[v].next) {
      if (!inside.has(w) || w === without) continue;
      if (!index.has(w)) visit(w);
      if (stack.includes(w)) low.set(v, Math.min(low.get(v), low.get(w)));
    }
    if (low.get(v) !== index.get(v)) return;
    const part = [];
    do part.push(stack.pop());
    while (part.at(-1) !== v);
    found.push(part);
  };
  for (const v of inside) if (!index.has(v)) visit(v);
  return found;
}

/**
 * Of the innermost loops around matrix instructions the one with the most (of equals, the slower), and of all ways from its head
 * back to its head that meet the most matrix instructions the one of the fewest cycles. Loops within it that multiply nothing
 * count once. Returns that way's instructions.
 */
export function mainLoop(code, costOf) {
  if (code.length === 0) return undefined;
  const blocks = blocksOf(code);
  const ways = innermost(blocks, new Set(blocks.keys())).map((loop) => wayRound(blocks, loop, costOf));
  ways.sort((a, b) => b.matrix - a.matrix || b.cost - a.cost);
  return ways[0]?.code;
}

const multiplies = (blocks, part) => part.some((v) => matrixCount(blocks[v].code) > 0);
const cyclic = (blocks, part) => part.length > 1 || blocks[part[0]].next.includes(part[0]);

/** Where a loop is entered. */
function headOf(blocks, loop) {
  const entered = [...loop].filter((v) => blocks.some(({ next }, u) => !loop.has(u) && next.includes(v)));
  return Math.min(...(entered.length > 0 ? entered : loop));
}

function innermost(blocks, inside, head = -1) {
  return parts(blocks, inside, head)
    .filter((part) => cyclic(blocks, part) && multiplies(blocks, part) && !(part.length === 1 && part[0] === head))
    .flatMap((part) => {
      const loop = new Set(part);
      const inner = innermost(blocks, loop, headOf(blocks, loop));
      return inner.length > 0 ? inner : [loop];
    });
}

function wayRound(blocks, loop, costOf) {
  const head = headOf(blocks, loop);
  // Without the edges back to the head what is left of loops are inner ones: each is taken as one block.
  const best = new Map(); // by block, the best way from it to the head
  const better = (a, b) => !b || a.matrix > b.matrix || (a.matrix === b.matrix && a.cost < b.cost);
  for (const part of parts(blocks, loop, head)) {
    const members = new Set(part);
    let after;
    for (const v of part) {
      for (const w of blocks[v].next) {
        const way = w === head ? { matrix: 0, cost: 0, code: [] } : members.has(w) ? undefined : best.get(w);
        if (way && better(way, after)) after = way;
      }
    }
    if (!after) continue;
    const own = part.sort((a, b) => a - b).flatMap((v) => blocks[v].code);
    const way = {
      matrix: matrixCount(own) + after.matrix,
      cost: own.reduce((sum, instruction) => sum + costOf(instruction).cycles, 0) + after.cost,
      code: [...own, ...after.code],
    };
    for (const v of part) best.set(v, way);
  }
  return best.get(head) ?? { matrix: 0, cost: 0, code: [] };
}

/** Cycles of matrix instructions, by architecture and shape: passes of 4 cycles in LLVM's model of CDNA; RDNA by peak rates. */
function matrixCycles(architecture, text) {
  if (architecture.startsWith("gfx11")) return 32; // 512 FLOP a cycle and compute unit of two SIMDs
  if (architecture.startsWith("gfx12")) return 16; // 1,024
  const whole = /32x32x/.test(text) ? 32 : 16;
  return architecture === "gfx90a" ? 2 * whole : whole;
}

/** Kind and cycles of one instruction in which its wavefront keeps the SIMD, or its matrix unit, busy. */
export const costOn = (architecture) => {
  const cdna = architecture.startsWith("gfx9");
  const one = cdna ? 4 : 1;
  return ({ text }) => {
    if (isMatrix({ text })) return { kind: "matrix", cycles: matrixCycles(architecture, text) };
    if (/^v_(exp|log|rcp|rsq|sqrt|sin|cos)/.test(text)) return { kind: "transcendental", cycles: 4 * one };
    // Conversions between fp32 and others are quarter rate in LLVM's model of CDNA, packed ones excepted.
    if (cdna && /^v_cvt_(?!pk)/.test(text)) return { kind: "vector", cycles: 4 * one };
    if (/^v_/.test(text)) return { kind: "vector", cycles: one };
    if (/^ds_/.test(text)) return { kind: "lds", cycles: one };
    if (/^(global|buffer|flat)_/.test(text)) return { kind: "memory", cycles: one };
    const nop = /^s_nop (\d+)/.exec(text);
    return { kind: "scalar", cycles: one * (nop ? Number(nop[1]) + 1 : 1) };
  };
};

/** Cycles by kind, and bytes that a wavefront reads and writes in LDS. */
export function spent(loop, architecture) {
  const costOf = costOn(architecture);
  const sum = { matrix: 0, vector: 0, transcendental: 0, lds: 0, memory: 0, scalar: 0, ldsBytes: 0 };
  const lanes = architecture.startsWith("gfx9") ? 64 : 32;
  for (const instruction of loop) {
    const { kind, cycles } = costOf(instruction);
    sum[kind] += cycles;
    if (kind !== "lds") continue;
    const width = /_(?:[bui])(8|16|32|64|96|128)\b/.exec(instruction.text);
    sum.ldsBytes +=
      lanes * (width ? Number(width[1]) / 8 : 4) * (/(read|write|load|store|wrxchg)_?2/.test(instruction.text) ? 2 : 1);
  }
  return sum;
}
