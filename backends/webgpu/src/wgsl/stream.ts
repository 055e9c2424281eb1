/**
 * Decode of aligned rows: a few queries against keys that stream past once, from memory into registers.
 *
 * LANES threads hold a row of K and of V, eight elements each: neighbours read neighbouring 16 bytes. A workgroup has several
 * such teams, each takes every so manieth key, KEYS of them at a time so that many loads are on their way, and has its own
 * running maximum, sums and result for ROWS rows (queries x the query heads of a KV head). Scores are summed over a team by
 * shuffles, or through workgroup memory. Only at the end teams meet: barriers are few, and none in the loop with shuffles.
 *
 * Keys past the end are the last one again with no weight, so that loads are unconditional. What is hidden otherwise (not
 * \`alike\`: several queries; pages elsewhere) is left out of sums by flags, never multiplied by 0 (\`careful\`).
 */
import type { CacheDType, FloatDType } from "@tessera/core/web";
import { fromBits, fromF8, loader, someWeight, storer, toHalves, words } from "./elements.js";
import { declareParams } from "./fields.js";
import { attentionFields, keysOfTile, sequences } from "./problem.js";
import { rowWriter } from "./rows.js";

export interface StreamShader {
  readonly q: FloatDType;
  readonly k: CacheDType;
  readonly v: CacheDType;
  readonly out: FloatDType;
  /** Rows of the result that a workgroup has: 1, 2, 4 or 8. */
  readonly rows: number;
  /** Threads of a team: a power of two up to 32, eight elements each. */
  readonly lanes: number;
  /** Rows of K and V are just as wide as a team. */
  readonly whole: boolean;
  /** Keys of a team at a time. */
  readonly keys: number;
  readonly threads: number;
  readonly paged: boolean;
  /** One query: all rows see the same keys. */
  readonly alike: boolean;
  readonly partial: boolean;
  readonly subgroups: boolean;
}

/** Bytes that a row's beginning has to be a multiple of. */
export const streamAlignment: { readonly [K in CacheDType]: number } = {
  f32: 16,
  f16: 16,
  bf16: 16,
  f8_e4m3: 8,
  q8_0: 2,
  q4_0: 2,
};

const types = { 1: "f32", 2: "vec2<f32>", 4: "vec4<f32>" } as const;

/** How rows are held: vectors of \`width\`, \`groups\` of them. */
function held(rows: number): { width: 1 | 2 | 4; groups: number } {
  const width = rows === 1 ? 1 : rows === 2 ? 2 : 4;
  return { width, groups: rows / width };
}

export function streamBytes({ rows, lanes, keys, threads }: Pick<StreamShader, "rows" | "lanes" | "keys" | "threads">) {
  const { width, groups } = held(rows);
  const teams = threads / lanes;
  return 4 * width * groups * (keys * (threads + teams) + 2 * teams) + 32 * threads + 16;
}

/** Eight elements as they lie in memory, and as numbers: of a block, whole ones to be multiplied by its `scale`. */
interface Eight {
  readonly element: string;
  readonly raw: string;
  readonly fetch: (b: string) => string;
  readonly low: string;
  readonly high: string;
  readonly scale?: string;
}

const bf16 = (w: string) => `vec4<u32>(${w}.x << 16u, ${w}.x & 0xffff0000u, ${w}.y << 16u, ${w}.y & 0xffff0000u)`;
const f8 = (w: string) =>
  `vec4<f32>(from_f8(${w} & 255u), from_f8((${w} >> 8u) & 255u), from_f8((${w} >> 16u) & 255u), from_f8(${w} >> 24u))`;
/** The bytes of a word, less `zero`: as bits of 1,024 + byte, since GPUs are slow at turning integers into floats. */
const bytes = (w: string, mask: number, zero: number) =>
  `bitcast<vec4<f32>>((vec4<u32>(${w} << 13u, ${w} << 5u, ${w} >> 3u, ${w} >> 11u) & vec4<u32>(${mask << 13}u)) | vec4<u32>(0x44800000u)) - ${1024 + zero}.0`;
const q8 = (w: string) => bytes(`(${w} ^ 0x80808080u)`, 255, 128);
const q4 = (w: string) => bytes(w, 15, 8);

/** A block's scale, and eight bytes of it that begin at half a word or a whole one: no branch, so that loads aren't waited for. */
const block = (b: string, bytes: number, within: string, nibble: string) => `
  let at = base + (e >> 5u) * ${bytes}u;
  let d = unpack2x16float(${b}[at >> 2u] >> ((at & 2u) * 8u)).x;
  let begin = at + 2u + ${within};
  let word = begin >> 2u;
  let shift = (begin & 2u) * 8u;
  let middle = ${b}[word + 1u];
  let x = (${b}[word] >> shift) | ((middle << (31u - shift)) << 1u);
  let y = (middle >> shift) | ((${b}[word + 2u] << (31u - shift)) << 1u);
  return RAW(d, x${nibble}, y${nibble});`;

const eights: { readonly [K in CacheDType]: Eight } = {
  f32: {
    element: "vec4<u32>",
    raw: "a: vec4<u32>, b: vec4<u32>",
    fetch: (b) => `let at = (base + 4u * e) >> 4u; return RAW(${b}[at], ${b}[at + 1u]);`,
    low: "from_bits(raw.a)",
    high: "from_bits(raw.b)",
  },
  f16: {
    element: "vec4<u32>",
    raw: "a: vec4<u32>",
    fetch: (b) => `return RAW(${b}[(base + 2u * e) >> 4u]);`,
    low: "vec4<f32>(unpack2x16float(raw.a.x), unpack2x16float(raw.a.y))",
    high: "vec4<f32>(unpack2x16float(raw.a.z), unpack2x16float(raw.a.w))",
  },
  bf16: {
    element: "vec4<u32>",
    raw: "a: vec4<u32>",
    fetch: (b) => `return RAW(${b}[(base + 2u * e) >> 4u]);`,
    low: `from_bits(${bf16("raw.a.xy")})`,
    high: `from_bits(${bf16("raw.a.zw")})`,
  },
  f8_e4m3: {
    element: "vec2<u32>",
    raw: "a: vec2<u32>",
    fetch: (b) => `return RAW(${b}[(base + e) >> 3u]);`,
    low: f8("raw.a.x"),
    high: f8("raw.a.y"),
  },
  q8_0: {
    element: "u32",
    raw: "d: f32, x: u32, y: u32",
    fetch: (b) => block(b, 34, "(e & 31u)", ""),
    low: q8("raw.x"),
    high: q8("raw.y"),
    scale: "raw.d",
  },
  q4_0: {
    element: "u32",
    raw: "d: f32, x: u32, y: u32",
    fetch: (b) => block(b, 18, "(e & 15u)", " >> ((e & 16u) >> 2u)"),
    low: q4("raw.x"),
    high: q4("raw.y"),
    scale: "raw.d",
  },
};

function eightOf(name: "k" | "v", dtype: CacheDType): string {
  const { raw, fetch, low, high, scale = "1.0" } = eights[dtype];
  return /* wgsl */ `
struct ${name}_eight { ${raw} }
fn ${name}_fetch(base: u32, e: u32) -> ${name}_eight { ${fetch(name).replaceAll("RAW", `${name}_eight`)} }
fn ${name}_low(raw: ${name}_eight) -> vec4<f32> { return ${low}; }
fn ${name}_high(raw: ${name}_eight) -> vec4<f32> { return ${high}; }
fn ${name}_scale(raw: ${name}_eight) -> f32 { return ${scale}; }
`;
}

const times = (count: number, text: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => text(i)).join("\n");

export function streamShader(shader: StreamShader): string {
  const { q, k, v, rows, lanes, whole, keys, threads, paged, alike, partial, subgroups } = shader;
  const { width, groups } = held(rows);
  const teams = threads / lanes;
  const type = types[width];
  const careful = paged || !alike;
  /** What V's numbers are multiplied by has their scale in it, and is 0 for hidden keys: whole numbers are neither NaN nor infinite. */
  const scaled = eights[v].scale !== undefined;
  /** Behind the last key is that key once more, with a weight of 0. */
  const there = (u: number, value: string) => (careful || scaled ? value : `select(vec4<f32>(), ${value}, ok${u})`);
  const scaledK = (u: number, value: string) => (eights[k].scale === undefined ? value : `k_scale(k${u}) * ${value}`);
  /** fp32 values: sums of a few tiles at a time, as a long chain of equal terms is rounded the same way at each step. */
  const deep = v === "f32";
  const chained = [
    ...Array.from({ length: groups }, (_, g) => ({ name: `sum_${g}`, type, shrink: `shrink_${g}` })),
    ...Array.from({ length: 2 * rows }, (_, i) => {
      const r = i >> 1;
      return {
        name: `acc${r}_${i & 1}`,
        type: "vec4<f32>",
        shrink: width === 1 ? `shrink_${r}` : `shrink_${Math.floor(r / width)}[${r % width}]`,
      };
    }),
  ];
  const ofDeep = (text: (one: { name: string; type: string; shrink: string }) => string) =>
    deep ? chained.map(text).join("\n") : "";
  const out = partial ? "f32" : shader.out;
  const of = (name: string, r: number) => (width === 1 ? name : `${name}[${r % width}]`);
  const each = (text: (u: number, g: number) => string) => times(keys, (u) => times(groups, (g) => text(u, g)));
  const wide = (x: string, on: string) => (whole ? x : `select(vec4<f32>(), ${x}, ${on})`);

  const shuffled = [1, 2, 4, 8, 16]
    .filter((step) => step < lanes)
    .map((step) => each((u, g) => `      score${u}_${g} += subgroupShuffleXor(score${u}_${g}, ${step}u);`))
    .join("\n");
  const shared = /* wgsl */ `
${each((u, g) => `      scores[${u * groups + g}u * THREADS + thread] = score${u}_${g};`)}
      workgroupBarrier();
      for (var item = lane; item < ${keys * groups}u; item += LANES) {
        var total = ${type}();
        for (var i = 0u; i < LANES; i++) { total += scores[item * THREADS + team * LANES + ((lane + i) & (LANES - 1u))]; }
        totals[item * TEAMS + team] = total;
      }
      workgroupBarrier();
${each((u, g) => `      score${u}_${g} = totals[${u * groups + g}u * TEAMS + team];`)}`;
  const summed = subgroups ? `    if (reach >= LANES) {\n${shuffled}\n    } else {\n${shared}\n    }` : shared;

  return /* wgsl */ `
${subgroups ? "enable subgroups;\ndiagnostic(off, subgroup_uniformity);" : ""}
${declareParams(attentionFields)}
@group(0) @binding(1) var<storage, read> q: array<u32>;
@group(0) @binding(2) var<storage, read> k: array<${eights[k].element}>;
@group(0) @binding(3) var<storage, read> v: array<${eights[v].element}>;
@group(0) @binding(4) var<storage, read> aux: array<u32>;
@group(0) @binding(7) var<storage, read_write> out: array<atomic<u32>>;
@group(0) @binding(8) var<storage, read_write> lse: array<u32>;

const THREADS = ${threads}u;
const LANES = ${lanes}u;
const TEAMS = ${teams}u;
const ROWS = ${rows}u;
const lowest = -3.0e38;
const log2e = 1.4426950408889634;

var<workgroup> scores: array<${type}, ${keys * groups * threads}>;
var<workgroup> totals: array<${type}, ${keys * groups * teams}>;
/** Of each team: maxima and sums. */
var<workgroup> tops: array<${type}, ${groups * teams}>;
var<workgroup> sums: array<${type}, ${groups * teams}>;
var<workgroup> joined: array<vec4<f32>, ${2 * threads}>;
${subgroups ? "var<workgroup> apart: atomic<u32>;" : ""}

${sequences}
${words("q")}
${[k, v].includes("f8_e4m3") ? fromF8 : ""}
${fromBits}${loader("q", "q", q)}
${eightOf("k", k)}${eightOf("v", v)}
${out === "f32" ? "" : toHalves}
${storer(out)}
${rowWriter(partial)}

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  ${subgroups ? "@builtin(subgroup_size) subgroup_size: u32,\n  @builtin(subgroup_invocation_id) subgroup_lane: u32," : ""}
) {
  let task = task_of(workgroup);
  if (task >= p.tasks) { return; }
${
  subgroups
    ? `  if (thread == 0u) { atomicStore(&apart, 0u); }
  workgroupBarrier();
  if ((thread & (subgroup_size - 1u)) != subgroup_lane || (subgroup_size & (subgroup_size - 1u)) != 0u) { atomicStore(&apart, 1u); }
  let reach = select(subgroup_size, 1u, workgroupUniformLoad(&apart) != 0u);`
    : ""
}
  let tilesOfHead = ((p.endQuery - p.firstQuery) * p.group + ROWS - 1u) / ROWS;
  let headTiles = p.headCount / p.group;
  let split = task % p.splits;
  let row0 = ((task / p.splits) % tilesOfHead) * ROWS;
  let headTile = (task / p.splits / tilesOfHead) % headTiles;
  let b = p.firstBatch + task / p.splits / tilesOfHead / headTiles;
  let headOfTile = p.firstHead + headTile * p.group;
  let kvHead = headOfTile / p.group;
  let s = sequence_of(b);
  let team = thread / LANES;
  let lane = thread & (LANES - 1u);
  let d = 8u * lane;

  // Rows: eight elements of q, and which keys they see.
${times(
  rows,
  (r) => `  let query${r} = p.firstQuery + (row0 + ${r}u) / p.group;
  let head${r} = headOfTile + (row0 + ${r}u) % p.group;
  let is_query${r} = i32(query${r}) < s.queries && query${r} < p.endQuery;
  var q${r}_0 = vec4<f32>();
  var q${r}_1 = vec4<f32>();
  if (is_query${r} && d < p.dim) {
    let e = b * p.qBatch + (s.queryRow + query${r}) * p.qRow + head${r} * p.qHead + d - p.qFirst;
    q${r}_0 = q_load4(p.qBase, e, p.dim - d);
    q${r}_1 = q_load4(p.qBase, e + 4u, max(p.dim - d, 4u) - 4u);
  }`,
)}
${
  alike
    ? ""
    : times(
        groups,
        (g) => `  var begin_${g} = ${type.replace("f32", "i32")}();
  var end_${g} = ${type.replace("f32", "i32")}();
${times(
  width,
  (i) =>
    `  if (is_query${g * width + i}) {
    let seen = visible_keys(s, i32(query${g * width + i}));
    ${of(`begin_${g}`, i)} = seen.x;
    ${of(`end_${g}`, i)} = seen.y;
  }`,
)}`,
      )
}
  let firstQuery = i32(p.firstQuery + row0 / p.group);
  let lastQuery = min(i32(p.firstQuery + (row0 + ROWS - 1u) / p.group), min(s.queries, i32(p.endQuery)) - 1);
${keysOfTile}
  var scale = p.scale * log2e;
  if (p.atKScale != none) { scale *= bitcast<f32>(aux[p.atKScale + kvHead]); }
  let kRow0 = ${paged ? "" : "b * p.kBatch + s.keyRow * p.kRow + "}kvHead * p.kHead + ${whole ? "d" : "select(0u, d, d < p.dim)"} - p.kFirst;
  let vRow0 = ${paged ? "" : "b * p.vBatch + s.keyRow * p.vRow + "}kvHead * p.vHead + ${whole ? "d" : "select(0u, d, d < p.valueDim)"} - p.vFirst;
  ${whole ? "" : "let kOn = d < p.dim;\n  let vOn = d < p.valueDim;"}

${times(groups, (g) => `  var top_${g} = ${type}(lowest);\n  var sum_${g} = ${type}();`)}
${times(rows, (r) => `  var acc${r}_0 = vec4<f32>();\n  var acc${r}_1 = vec4<f32>();`)}

${ofDeep(({ name, type: of }) => `  var whole_${name} = ${of}();`)}
  ${deep ? "var turn = 0u;" : ""}

  for (var first = keyBegin; first < keyEnd; first += i32(${keys}u * TEAMS)) {
${times(
  keys,
  (u) => `    let key${u} = first + i32(team + ${u}u * TEAMS);
    let at${u} = u32(min(key${u}, keyEnd - 1));`,
)}
${times(keys, (u) =>
  paged
    ? `    var page${u} = aux[p.atPages + b * p.pagesStride + at${u} / p.pageSize];
    let ok${u} = key${u} < keyEnd && page${u} >= p.firstPage && page${u} < p.endPage;
    page${u} = clamp(page${u}, p.firstPage, p.endPage - 1u);
    let k${u} = k_fetch(p.kBase, kRow0 + page${u} * p.kBatch + (at${u} % p.pageSize) * p.kRow);`
    : `    let ok${u} = key${u} < keyEnd;
    let k${u} = k_fetch(p.kBase, kRow0 + at${u} * p.kRow);`,
)}
${times(keys, (u) =>
  paged
    ? `    let v${u} = v_fetch(p.vBase, vRow0 + page${u} * p.vBatch + (at${u} % p.pageSize) * p.vRow);`
    : `    let v${u} = v_fetch(p.vBase, vRow0 + at${u} * p.vRow);`,
)}
${times(
  keys,
  (u) => `    let k${u}_0 = ${wide(scaledK(u, `k_low(k${u})`), "kOn")};
    let k${u}_1 = ${wide(scaledK(u, `k_high(k${u})`), "kOn")};
${times(groups, (g) => {
  const parts = Array.from({ length: width }, (_, i) => {
    const r = g * width + i;
    return `dot(q${r}_0, k${u}_0) + dot(q${r}_1, k${u}_1)`;
  });
  return `    var score${u}_${g} = ${width === 1 ? parts[0] : `${type}(${parts.join(", ")})`};`;
})}`,
)}
${summed}
${times(groups, (g) => {
  const seen = (u: number) =>
    alike
      ? `ok${u}`
      : `(${type.replace("f32", "i32")}(key${u}) >= begin_${g}) & (${type.replace("f32", "i32")}(key${u}) < end_${g}) & ${width === 1 ? `ok${u}` : `vec${width}<bool>(ok${u})`}`;
  return `    var best_${g} = ${type}(lowest);
${times(
  keys,
  (u) => `    score${u}_${g} *= scale;
    let seen${u}_${g} = ${seen(u)};
    best_${g} = select(best_${g}, max(best_${g}, score${u}_${g}), seen${u}_${g});`,
)}
    let above_${g} = max(top_${g}, best_${g});
    let shrink_${g} = ${someWeight(`exp2(top_${g} - above_${g})`, type)};
    top_${g} = above_${g};
${times(
  keys,
  (u) =>
    `    let weight${u}_${g} = select(${type}(), ${someWeight(`exp2(score${u}_${g} - above_${g})`, type)}, seen${u}_${g});`,
)}
    sum_${g} = sum_${g} * shrink_${g} + (${Array.from({ length: keys }, (_, u) => `weight${u}_${g}`).join(" + ")});`;
})}
${times(
  keys,
  (u) => `    let v${u}_0 = ${there(u, wide(`v_low(v${u})`, "vOn"))};
    let v${u}_1 = ${there(u, wide(`v_high(v${u})`, "vOn"))};`,
)}
${scaled ? each((u, g) => `    let factor${u}_${g} = select(${type}(), weight${u}_${g} * v_scale(v${u}), seen${u}_${g});`) : ""}
${times(rows, (r) => {
  const g = Math.floor(r / width);
  const term = (u: number, half: number) => {
    const product = `${of(`${scaled ? "factor" : "weight"}${u}_${g}`, r)} * v${u}_${half}`;
    return careful && !scaled
      ? `select(vec4<f32>(), ${product}, ${alike ? `seen${u}_${g}` : of(`seen${u}_${g}`, r)})`
      : product;
  };
  return [0, 1]
    .map((half) => {
      const terms = Array.from({ length: keys }, (_, u) => term(u, half));
      return `    acc${r}_${half} = acc${r}_${half} * ${of(`shrink_${g}`, r)} + (${terms.join(" + ")});`;
    })
    .join("\n");
})}
${ofDeep(({ name, shrink }) => `    whole_${name} *= ${shrink};`)}
${
  deep
    ? `    turn++;
    if (turn % 8u == 0u) {
${ofDeep(({ name, type: of }) => `      whole_${name} += ${name};\n      ${name} = ${of}();`)}
    }`
    : ""
}
  }
${ofDeep(({ name }) => `  ${name} += whole_${name};`)}

  // Teams meet.
  if (lane == 0u) {
${times(groups, (g) => `    tops[${g}u * TEAMS + team] = top_${g};\n    sums[${g}u * TEAMS + team] = sum_${g};`)}
  }
  workgroupBarrier();
  var vScale = 1.0;
  if (p.atVScale != none) { vScale = bitcast<f32>(aux[p.atVScale + kvHead]); }
${times(
  groups,
  (g) => `  var all_${g} = ${type}(lowest);
  for (var i = 0u; i < TEAMS; i++) { all_${g} = max(all_${g}, tops[${g}u * TEAMS + i]); }
  var total_${g} = ${type}();
  for (var i = 0u; i < TEAMS; i++) { total_${g} += sums[${g}u * TEAMS + i] * exp2(tops[${g}u * TEAMS + i] - all_${g}); }
  let factor_${g} = exp2(top_${g} - all_${g});`,
)}
  let rows = min(select(p.queryRows, u32(s.queries), p.atCuSeqLensQ != none), p.endQuery);
${times(rows, (r) => {
  const g = Math.floor(r / width);
  return `  if (query${r} < rows) {
    workgroupBarrier();
    joined[2u * thread] = acc${r}_0 * ${of(`factor_${g}`, r)};
    joined[2u * thread + 1u] = acc${r}_1 * ${of(`factor_${g}`, r)};
    workgroupBarrier();
    if (thread < 2u * LANES) {
      var x = vec4<f32>();
      for (var i = 0u; i < TEAMS; i++) { x += joined[i * 2u * LANES + thread]; }
      let end = ending(${of(`total_${g}`, r)}, ${of(`all_${g}`, r)}, head${r}, is_query${r}, vScale);
      if (4u * thread < p.valueDim) { put4(s, b, query${r}, head${r}, split, 4u * thread, x * end.factor); }
      if (thread == 0u) { put_log(s, b, query${r}, head${r}, split, end.bits); }
    }
  }`;
})}
}
`;
}
