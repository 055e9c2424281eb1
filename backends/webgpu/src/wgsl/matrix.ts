/**
 * Prefill on subgroup matrices (experimental in Dawn): f16 x f16 summed in f32, of whatever M, N and K the device lists.
 *
 * A workgroup has SUBGROUPS subgroups of SIZE threads, each with M queries of one head. Q stays in matrices, as does the result.
 * A tile of BK keys of K and V goes into workgroup memory; scores S come out through it, since a thread can't see what is in
 * a matrix; threads make P of them, with masks and all, and put it back in f16.
 *
 * A row's reference m is raised only once its maximum is 2^8 above, so that the result seldom has to be rescaled: that goes through
 * workgroup memory, too. P = 2^(s - m) is then at most 2^8, and rounded once to 11 bits wherever m lies. Where V holds NaN or
 * infinity the product of that tile is made by threads, without what a query doesn't see.
 */
import type { FloatDType } from "@tessera/core/web";
import { someWeight, storer, toHalves, words } from "./elements.js";
import { declareParams } from "./fields.js";
import { attentionFields, keysOfTile, sequences } from "./problem.js";
import { rowWriter } from "./rows.js";
import { keyPlaces, pairScore } from "./scores.js";

/** Shapes of matrices: M x K times K x N. */
export interface MatrixShape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Threads of a subgroup. */
  readonly size: number;
}

export interface MatrixShader {
  readonly shape: MatrixShape;
  readonly out: FloatDType;
  readonly dim: number;
  readonly valueDim: number;
  readonly partial: boolean;
  readonly plain: boolean;
  readonly paged: boolean;
  readonly subgroups: number;
}

/** Keys of a tile. */
export const matrixKeys = 32;

const up = (n: number, to: number) => Math.ceil(n / to) * to;

/** Elements between rows in workgroup memory: 16 bytes more than a row, so that columns lie in several banks. */
const pitches = ({ k, n }: MatrixShape, dim: number, valueDim: number) => ({
  k: up(dim, Math.max(8, k)) + 8,
  v: up(valueDim, Math.max(8, n)) + 8,
  s: matrixKeys + 4,
  p: matrixKeys + 8,
});

export function matrixBytes(shape: MatrixShape, subgroups: number, dim: number, valueDim: number): number {
  const pitch = pitches(shape, dim, valueDim);
  const rows = subgroups * shape.m;
  return 2 * matrixKeys * (pitch.k + pitch.v) + 4 * rows * pitch.s + 2 * rows * pitch.p + 4 * rows + 16;
}

const times = (count: number, text: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => text(i)).join("\n");

export function matrixShader(shader: MatrixShader): string {
  const { shape, out: dtype, dim, valueDim, partial, plain, paged, subgroups } = shader;
  const { m, n, k, size } = shape;
  const pitch = pitches(shape, dim, valueDim);
  const rows = subgroups * m;
  const threads = subgroups * size;
  const [depth, width] = [pitch.k - 8, pitch.v - 8];
  const [steps, columns] = [depth / k, width / n];
  const out = partial ? "f32" : dtype;
  /** Matrices of the result that workgroup memory takes at a time. */
  const held = matrixKeys / n;
  /** Threads of a row of scores, and what each of them has of it: vec4. */
  const share = size / m;
  const own = matrixKeys / share / 4;
  const here = paged ? "key_here(b, u32(key))" : "true";
  const overRow = (text: (step: number) => string) =>
    [1, 2, 4, 8, 16, 32, 64]
      .filter((step) => step < share)
      .map(text)
      .join("\n");

  /**
   * The result through workgroup memory, as many matrices as that takes; `change` is what a thread does with four numbers at
   * `at`, of row `r` and column `c`.
   */
  const through = (change: string, back: boolean) =>
    times(Math.ceil(columns / held), (part) => {
      const some = Array.from({ length: Math.min(held, columns - part * held) }, (_, i) => part * held + i);
      const fours = (some.length * n) / 4;
      const place = (i: number) => `strip * SPITCH + ${(i * n) / 4}u`;
      return `${some.map((c, i) => `      subgroupMatrixStore<row_major>(&s_tile, ${place(i)}, acc${c}, SPITCH);`).join("\n")}
      workgroupBarrier();
      for (var i = lane; i < ${m * fours}u; i += SIZE) {
        let r = strip + i / ${fours}u;
        let c = ${part * held * n}u + 4u * (i % ${fours}u);
        let at = r * SPITCH + i % ${fours}u;
${change}
      }
      workgroupBarrier();
${back ? some.map((c, i) => `      acc${c} = subgroupMatrixLoad<Result, row_major>(&s_tile, ${place(i)}, SPITCH);`).join("\n") : ""}`;
    });

  return /* wgsl */ `
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
diagnostic(off, subgroup_uniformity);
${declareParams(attentionFields)}
@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> aux: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<u32>;
@group(0) @binding(6) var<storage, read> mask: array<u32>;
@group(0) @binding(7) var<storage, read_write> out: array<atomic<u32>>;
@group(0) @binding(8) var<storage, read_write> lse: array<u32>;

alias Left = subgroup_matrix_left<f16, ${k}, ${m}>;
alias Right = subgroup_matrix_right<f16, ${n}, ${k}>;
alias Result = subgroup_matrix_result<f32, ${n}, ${m}>;

const SIZE = ${size}u;
const THREADS = ${threads}u;
const BQ = ${rows}u;
const BK = ${matrixKeys}u;
// Of elements of arrays.
const KPITCH = ${pitch.k / 8}u;
const VPITCH = ${pitch.v / 8}u;
const SPITCH = ${pitch.s / 4}u;
const PPITCH = ${pitch.p / 4}u;
const lowest = -3.0e38;
const log2e = 1.4426950408889634;
const odd = 1u;
const raised = 2u;

/** K; before the first tile Q. */
var<workgroup> k_tile: array<vec4<u32>, ${(matrixKeys * pitch.k) / 8}>;
var<workgroup> v_tile: array<vec4<u32>, ${(matrixKeys * pitch.v) / 8}>;
var<workgroup> s_tile: array<vec4<f32>, ${(rows * pitch.s) / 4}>;
var<workgroup> p_tile: array<vec2<u32>, ${(rows * pitch.p) / 4}>;
/** What rows are multiplied by. */
var<workgroup> factors: array<f32, ${rows}>;
/** \`odd\`: V of this tile holds NaN or infinity. \`raised\`: a row's reference was. */
var<workgroup> flags: atomic<u32>;

${sequences}
${keyPlaces}
${plain ? "" : `${words("bias")}${words("mask")}${pairScore}`}
${out === "f32" ? "" : toHalves}
${storer(out)}
${rowWriter(partial)}

/** To eleven bits, to nearest even, which conversions to f16 needn't do. */
fn eleven_bits(x: vec4<f32>) -> vec4<f32> {
  let bits = bitcast<vec4<u32>>(x);
  return bitcast<vec4<f32>>((bits + 0xfffu + ((bits >> vec4<u32>(13u)) & vec4<u32>(1u))) & vec4<u32>(0xffffe000u));
}

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let task = task_of(workgroup);
  if (task >= p.tasks) { return; }
  let tilesOfHead = (p.endQuery - p.firstQuery + BQ - 1u) / BQ;
  // Splits are one after the other; the last queries, which have most keys, come first.
  let split = task % p.splits;
  let row0 = (tilesOfHead - 1u - (task / p.splits) % tilesOfHead) * BQ;
  let head = p.firstHead + (task / p.splits / tilesOfHead) % p.headCount;
  let b = p.firstBatch + task / p.splits / tilesOfHead / p.headCount;
  let kvHead = head / p.group;
  let s = sequence_of(b);
  let strip = subgroup * ${m}u;

  // This thread's row of scores, and its share of the row's keys.
  let row = strip + lane / ${share}u;
  let part = lane % ${share}u;
  let query = p.firstQuery + row0 + row;
  let is_query = i32(query) < s.queries && query < p.endQuery;
  let firstQuery = i32(p.firstQuery + row0);
  let lastQuery = min(firstQuery + i32(BQ) - 1, min(s.queries, i32(p.endQuery)) - 1);
${keysOfTile}  var begin = 0;
  var end = 0;
  if (is_query) {
    let seen = visible_keys(s, i32(query));
    begin = seen.x;
    end = min(seen.y, keyEnd);
  }
  var scale = p.scale;
  if (p.atKScale != none) { scale *= bitcast<f32>(aux[p.atKScale + kvHead]); }

${times(steps, (i) => `  var q${i} = Left();`)}
  for (var from_row = 0u; from_row < BQ; from_row += BK) {
    workgroupBarrier();
    for (var at = thread; at < min(BK, BQ) * ${depth / 8}u; at += THREADS) {
      let r = at / ${depth / 8}u;
      let d = 8u * (at % ${depth / 8}u);
      let i = p.firstQuery + row0 + from_row + r;
      var x = vec4<u32>();
      if (i32(i) < s.queries && i < p.endQuery && d < p.dim) {
        x = q[(p.qBase + 2u * (b * p.qBatch + (s.queryRow + i) * p.qRow + head * p.qHead + d - p.qFirst)) >> 4u];
      }
      k_tile[r * KPITCH + d / 8u] = x;
    }
    workgroupBarrier();
    if (strip >= from_row && strip < from_row + BK) {
${times(steps, (i) => `      q${i} = subgroupMatrixLoad<Left, row_major>(&k_tile, (strip - from_row) * KPITCH + ${(i * k) / 8}u, KPITCH);`)}
    }
  }
${times(columns, (c) => `  var acc${c} = Result();`)}
  var top = lowest;
  var sum = 0.0;
  if (thread == 0u) { atomicStore(&flags, 0u); }

  for (var first = keyBegin; first < keyEnd; first += i32(BK)) {
    workgroupBarrier();
    for (var at = thread; at < BK * ${depth / 8}u; at += THREADS) {
      let r = at / ${depth / 8}u;
      let d = 8u * (at % ${depth / 8}u);
      let key = first + i32(r);
      var x = vec4<u32>();
      if (key < keyEnd && d < p.dim && ${here}) {
        let e = key_element(s, b, u32(key), p.kBatch, p.kRow) + kvHead * p.kHead + d - p.kFirst;
        x = k[(p.kBase + 2u * e) >> 4u];
      }
      k_tile[r * KPITCH + d / 8u] = x;
    }
    for (var at = thread; at < BK * ${width / 8}u; at += THREADS) {
      let r = at / ${width / 8}u;
      let d = 8u * (at % ${width / 8}u);
      let key = first + i32(r);
      var x = vec4<u32>();
      if (key < keyEnd && d < p.valueDim && ${here}) {
        let e = key_element(s, b, u32(key), p.vBatch, p.vRow) + kvHead * p.vHead + d - p.vFirst;
        x = v[(p.vBase + 2u * e) >> 4u];
        let low = (x & vec4<u32>(0x7c00u)) == vec4<u32>(0x7c00u);
        let high = (x & vec4<u32>(0x7c000000u)) == vec4<u32>(0x7c000000u);
        if (any(low | high)) { atomicOr(&flags, odd); }
      }
      v_tile[r * VPITCH + d / 8u] = x;
    }
    workgroupBarrier();

    // Scores.
${times(matrixKeys / n, (j) => {
  const product = times(
    steps,
    (i) =>
      `      score = subgroupMatrixMultiplyAccumulate(q${i}, subgroupMatrixLoad<Right, col_major>(&k_tile, ${j * n}u * KPITCH + ${(i * k) / 8}u, KPITCH), score);`,
  );
  return `    {
      var score = Result();
${product}
      subgroupMatrixStore<row_major>(&s_tile, strip * SPITCH + ${(j * n) / 4}u, score, SPITCH);
    }`;
})}
    workgroupBarrier();

    // Which of them count, and the best of each row.
    let key_own = first + i32(part * ${own * 4}u);
    var best = lowest;
${times(own, (i) =>
  plain
    ? `    let key${i} = vec4<i32>(key_own + ${4 * i}) + vec4<i32>(0, 1, 2, 3);
    let x${i} = s_tile[row * SPITCH + part * ${own}u + ${i}u] * (scale * log2e);
    let seen${i} = (key${i} >= vec4<i32>(begin)) & (key${i} < vec4<i32>(end))${paged ? ` & vec4<bool>(${[0, 1, 2, 3].map((c) => `key_here(b, u32(key${i}[${c}]))`).join(", ")})` : ""};
    let masked${i} = select(vec4<f32>(lowest), x${i}, seen${i});
    best = max(best, max(max(masked${i}.x, masked${i}.y), max(masked${i}.z, masked${i}.w)));`
    : `    var x${i} = s_tile[row * SPITCH + part * ${own}u + ${i}u];
    var seen${i} = vec4<bool>();
    for (var c = 0; c < 4; c++) {
      let key = key_own + ${4 * i} + c;
      if (key >= begin && key < end && ${here}) {
        let pair = pair_score(s, b, head, query, key, x${i}[c] * scale);
        if (pair.seen) {
          x${i}[c] = pair.score;
          seen${i}[c] = true;
          best = max(best, pair.score);
        }
      }
    }`,
)}
${overRow((step) => `    best = max(best, subgroupShuffleXor(best, ${step}u));`)}
    let raise = best > top + 8.0;
    let above = select(top, best, raise);
    let shrink = ${someWeight("exp2(top - above)")};
    if (raise && first != keyBegin) { atomicOr(&flags, raised); }
    if (part == 0u) { factors[row] = shrink; }
    top = above;
    sum *= shrink;
    // Where V is odd, a weight of 0 says that the key isn't seen.
    let least = select(0u, 0x33800000u, (atomicLoad(&flags) & odd) != 0u);
${times(
  own,
  (i) => `    let weight${i} = select(vec4<f32>(), exp2(x${i} - above), seen${i});
    sum += weight${i}.x + weight${i}.y + weight${i}.z + weight${i}.w;
    let kept${i} = select(vec4<f32>(), bitcast<vec4<f32>>(max(bitcast<vec4<u32>>(eleven_bits(weight${i})), vec4<u32>(least))), seen${i});
    p_tile[row * PPITCH + part * ${own}u + ${i}u] = vec2<u32>(pack2x16float(kept${i}.xy), pack2x16float(kept${i}.zw));`,
)}
    let flagged = workgroupUniformLoad(&flags);
    if (thread == 0u) { atomicStore(&flags, 0u); }
    if ((flagged & raised) != 0u) {
${through("        s_tile[at] *= factors[r];", true)}
    }
    if ((flagged & odd) != 0u) {
${through(
  `        var more = vec4<f32>();
        for (var j = 0u; j < BK; j++) {
          let weight = (p_tile[r * PPITCH + j / 4u][(j / 2u) & 1u] >> ((j & 1u) * 16u)) & 0xffffu;
          let x = v_tile[j * VPITCH + c / 8u];
          let pair = select(x.xy, x.zw, (c & 4u) != 0u);
          if (weight != 0u) { more += unpack2x16float(weight).x * vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y)); }
        }
        s_tile[at] += more;`,
  true,
)}
    } else {
${times(matrixKeys / k, (j) => {
  const left = `      let p${j} = subgroupMatrixLoad<Left, row_major>(&p_tile, strip * PPITCH + ${(j * k) / 4}u, PPITCH);`;
  const product = times(
    columns,
    (c) =>
      `      acc${c} = subgroupMatrixMultiplyAccumulate(p${j}, subgroupMatrixLoad<Right, row_major>(&v_tile, ${j * k}u * VPITCH + ${(c * n) / 8}u, VPITCH), acc${c});`,
  );
  return `${left}\n${product}`;
})}
    }
  }

${overRow((step) => `  sum += subgroupShuffleXor(sum, ${step}u);`)}
  var vScale = 1.0;
  if (p.atVScale != none) { vScale = bitcast<f32>(aux[p.atVScale + kvHead]); }
  let ended = ending(sum, top, head, is_query, vScale);
  let rows = min(select(p.queryRows, u32(s.queries), p.atCuSeqLensQ != none), p.endQuery);
  workgroupBarrier();
  if (part == 0u) {
    factors[row] = ended.factor;
    if (query < rows) { put_log(s, b, query, head, split, ended.bits); }
  }
  {
${through(
  `        if (p.firstQuery + row0 + r < rows && c < p.valueDim) {
          put4(s, b, p.firstQuery + row0 + r, head, split, c, s_tile[at] * factors[r]);
        }`,
  false,
)}
  }
}
`;
}
