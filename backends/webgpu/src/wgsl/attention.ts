/**
 * Attention of one tile of rows over a range of keys, with a running maximum; softmax in base 2.
 *
 * A workgroup is TY x TX threads and owns BQ = 4·TY rows of one KV head: queries of one head, or (packed) all query heads
 * of a group for each query, so that few queries fill a tile and K is read once for the group. It walks the keys in tiles of
 * BK = 4·TX. A thread computes 4 x 4 scores (rows ty + TY·i, keys tx + TX·j) from Q and K in workgroup memory, a chunk of D
 * at a time, and holds 4 rows x NC vec4 of the result (columns 4·(tx + TX·c)). P goes through workgroup memory, transposed,
 * V comes through it VK keys and two columns of a thread at a time.
 *
 * Small loops are written out here rather than in WGSL: software adapters take seconds to compile loops four deep. Variables
 * in loops are always initialised: WGSL says that they are 0 then, and Dawn doesn't keep to it (docs/kernels/webgpu.md).
 *
 * Workgroup memory: `tile` holds Q and K of a chunk of D, then V; `pt` P; `reduced` what threads tell each other of maxima.
 * What is hidden is told by flags, not by -inf; a row that has seen nothing has sum 0. P is kept as bits, 0 for what is hidden
 * and for nothing else: where V holds NaN or infinity (`odd`), the product leaves out hidden keys one by one, as 0 · NaN is
 * NaN. Where keys are split, `out` and `lse` are parts: normalised results, and base-2 logarithms of sums.
 */
import type { CacheDType, FloatDType } from "@tessera/core/web";
import { elementOf, evenLoader, fromBits, fromF8, loader, someWeight, storer, toHalves, words } from "./elements.js";
import { declareParams } from "./fields.js";
import { attentionFields, keysOfTile, sequences } from "./problem.js";
import { rowWriter } from "./rows.js";
import { keyPlaces, pairScore } from "./scores.js";

/** What a pipeline is made for. */
export interface AttentionShader {
  readonly q: FloatDType;
  readonly k: CacheDType;
  readonly v: CacheDType;
  /** Of `out`; parts are f32. */
  readonly out: FloatDType;
  readonly tile: Tile;
  /** vec4 columns of the result that a thread holds. */
  readonly columns: number;
  /** All query heads of a group in one tile. */
  readonly packed: boolean;
  /** Writes parts, to be joined. */
  readonly partial: boolean;
  /** Maxima of rows go through subgroups. */
  readonly subgroups: boolean;
  /** No soft cap, bias, ALiBi or mask. */
  readonly plain: boolean;
  /** Rows of q, k and v begin at multiples of four elements, and are as long. */
  readonly even: boolean;
  /** Bounds of inner loops aren't constants: software adapters spend seconds on loops that they unroll. */
  readonly rolled: boolean;
}

export interface Tile {
  readonly ty: number;
  readonly tx: number;
  /** vec4 of D that are in workgroup memory at a time. */
  readonly depth: number;
}

export const tileQ = (tile: Tile) => 4 * tile.ty;
export const tileK = (tile: Tile) => 4 * tile.tx;

/** vec4 of `tile`: Q and K with rows apart by an odd number of vec4; V takes the place of both. */
const tileSize = ({ ty, tx, depth }: Tile) => 4 * (ty + tx) * (depth + 1);

/** Keys of V that `tile` holds, of two columns of each thread: a power of two. */
const valueKeys = (tile: Tile, columns: number) =>
  Math.min(tileK(tile), 2 ** Math.floor(Math.log2(tileSize(tile) / (tile.tx * Math.min(2, columns)))));

const times = (count: number, text: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => text(i)).join("\n");

/** Bytes of workgroup memory. */
export function workgroupBytes(tile: Tile): number {
  const { ty, tx } = tile;
  return 16 * (tileSize(tile) + 4 * tx * ty + tx * ty) + 4 * 4 * tx + 16; // and two flags
}

/** Maxima over the TX threads of a row, four rows at once. */
const portableMax = /* wgsl */ `
fn row_max(mine: vec4<f32>, ty: u32, tx: u32, reach: u32) -> vec4<f32> {
  reduced[ty * TX + tx] = mine;
  workgroupBarrier();
  var all = mine;
  for (var i = 1u; i < TX * p.one; i++) { all = max(all, reduced[ty * TX + ((tx + i) & (TX - 1u))]); }
  return all;
}
`;

/**
 * The same with shuffles where a subgroup's threads are neighbours, whatever its size: what it doesn't reach goes through
 * workgroup memory. Where they aren't, which WGSL allows, all does.
 */
const subgroupMax = /* wgsl */ `
fn row_max(mine: vec4<f32>, ty: u32, tx: u32, reach: u32) -> vec4<f32> {
  var all = mine;
  if (reach > 1u) { all = max(all, subgroupShuffleXor(all, 1u)); }
  if (reach > 2u) { all = max(all, subgroupShuffleXor(all, 2u)); }
  if (reach > 4u) { all = max(all, subgroupShuffleXor(all, 4u)); }
  if (reach > 8u) { all = max(all, subgroupShuffleXor(all, 8u)); }
  if (reach > 16u) { all = max(all, subgroupShuffleXor(all, 16u)); }
  if (reach < TX) {
    reduced[ty * TX + tx] = all;
    workgroupBarrier();
    for (var i = reach; i < TX; i += reach) { all = max(all, reduced[ty * TX + ((tx + i) & (TX - 1u))]); }
  }
  return all;
}
`;

/** Is a subgroup a run of neighbouring threads, a power of two of them? If one isn't, none is taken for one. */
const reachOfSubgroup = /* wgsl */ `
  if (thread == 0u) { atomicStore(&apart, 0u); }
  workgroupBarrier();
  if ((thread & (subgroup_size - 1u)) != lane || (subgroup_size & (subgroup_size - 1u)) != 0u) { atomicStore(&apart, 1u); }
  let reach = select(min(subgroup_size, TX), 1u, workgroupUniformLoad(&apart) != 0u);
`;

export function attentionShader(shader: AttentionShader): string {
  const { q, k, v, tile, columns, packed, partial, subgroups, plain, even } = shader;
  const bound = (constant: string) => (shader.rolled ? `${constant} * p.one` : constant);
  const { ty, tx, depth } = tile;
  const load = (name: string, type: CacheDType) =>
    even ? evenLoader(name, type) : words(name) + loader(name, name, type);
  const keysOfV = valueKeys(tile, columns);
  const out = partial ? "f32" : shader.out;
  const types: readonly string[] = [k, v];
  /**
   * P V of the tile of keys, two columns of a thread at a time: what the tile comes to is summed from zero and then added, since
   * equal terms are rounded the same way at each step and a chain's error grows with its length.
   */
  const product = times(Math.ceil(columns / 2), (pair) => {
    const group = [2 * pair, 2 * pair + 1].filter((c) => c < columns);
    const each = (text: (i: number, c: number) => string) => group.map((c) => times(4, (i) => text(i, c))).join("\n");
    const wide = `${group.length}u * TX`;
    const values = group.map((c, n) => `          let x${c} = tile[r * ${wide} + ${n}u * TX + tx];`).join("\n");
    return `${each((i, c) => `    var part${i}_${c} = vec4<f32>();`)}
    for (var v0 = 0u; v0 < ${bound("BK")}; v0 += VK) {
      workgroupBarrier();
      for (var at = thread; at < ${bound(`VK * ${wide}`)}; at += TX * TY) {
        let r = v0 + at / (${wide});
        let d = 4u * (${2 * pair}u * TX + at % (${wide}));
        var x = vec4<f32>();
        if (key_ok[r] == 1u && d < p.valueDim) {
          let e = key_element(s, b, u32(key0) + r, p.vBatch, p.vRow) + kvHead * p.vHead + d;
          x = v_load4(p.vBase, e - p.vFirst, p.valueDim - d);
          if (is_odd(x)) { atomicStore(&odd, 1u); }
        }
        tile[at] = x;
      }
      workgroupBarrier();
      if (atomicLoad(&odd) == 0u) {
        for (var r = 0u; r < ${bound("VK")}; r++) {
          let weight = bitcast<vec4<f32>>(pt[(v0 + r) * TY + ty]);
${values}
${each((i, c) => `          part${i}_${c} += weight[${i}] * x${c};`)}
        }
      } else {
        for (var r = 0u; r < VK * p.one; r++) {
          let bits = pt[(v0 + r) * TY + ty];
          let weight = bitcast<vec4<f32>>(bits);
${values}
${each((i, c) => `          part${i}_${c} += weight[${i}] * seen_by(bits[${i}], x${c});`)}
        }
      }
    }
${each((i, c) => `    acc${i}_${c} += part${i}_${c};`)}`;
  });
  return /* wgsl */ `
${subgroups ? "enable subgroups;" : ""}
${declareParams(attentionFields)}
@group(0) @binding(1) var<storage, read> q: array<${elementOf(q, even)}>;
@group(0) @binding(2) var<storage, read> k: array<${elementOf(k, even)}>;
@group(0) @binding(3) var<storage, read> v: array<${elementOf(v, even)}>;
@group(0) @binding(4) var<storage, read> aux: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<u32>;
@group(0) @binding(6) var<storage, read> mask: array<u32>;
@group(0) @binding(7) var<storage, read_write> out: array<atomic<u32>>;
@group(0) @binding(8) var<storage, read_write> lse: array<u32>;

const TY = ${ty}u;
const TX = ${tx}u;
const BQ = ${4 * ty}u;
const BK = ${4 * tx}u;
const DEPTH = ${depth}u;
const PITCH = ${depth + 1}u;
const VK = ${keysOfV}u;
const NC = ${columns}u;
/** Below every score: biases end at -2^126. */
const lowest = -3.0e38;
const log2e = 1.4426950408889634;

var<workgroup> tile: array<vec4<f32>, ${tileSize(tile)}>;
var<workgroup> pt: array<vec4<u32>, ${4 * tx * ty}>;
var<workgroup> reduced: array<vec4<f32>, ${tx * ty}>;
/** Element of each key's row in K's binding, head 0; none where no query of the tile may see it. */
var<workgroup> key_ok: array<u32, ${4 * tx}>;
/** Not 0: V of this tile of keys holds NaN or infinity. */
var<workgroup> odd: atomic<u32>;
${subgroups ? "var<workgroup> apart: atomic<u32>;" : ""}

${sequences}
${words("bias")}${words("mask")}
${types.includes("f8_e4m3") ? fromF8 : ""}
${fromBits}${load("q", q)}${load("k", k)}${load("v", v)}
${out === "f32" ? "" : toHalves}
${storer(out)}
${rowWriter(partial)}
${subgroups ? subgroupMax : portableMax}
${keyPlaces}
${plain ? "" : pairScore}

fn is_odd(x: vec4<f32>) -> bool {
  return any((bitcast<vec4<u32>>(x) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u));
}

/** A row's values of V for one query: 0 if that doesn't see it. */
fn seen_by(weight: u32, x: vec4<f32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(select(bitcast<vec4<u32>>(x), vec4<u32>(), weight == 0u));
}

@compute @workgroup_size(${tx * ty})
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  ${subgroups ? "@builtin(subgroup_size) subgroup_size: u32,\n  @builtin(subgroup_invocation_id) lane: u32," : ""}
) {
  let task = task_of(workgroup);
  if (task >= p.tasks) { return; }
${subgroups ? reachOfSubgroup : "  let reach = 1u;"}
  let pack = ${packed ? "p.group" : "1u"};
  let tilesOfHead = ((p.endQuery - p.firstQuery) * pack + BQ - 1u) / BQ;
  let headTiles = p.headCount / pack;
  // Splits of a tile come one after the other, then tiles, heads, entries.
  let split = task % p.splits;
  let rowTile = (task / p.splits) % tilesOfHead;
  let headTile = (task / p.splits / tilesOfHead) % headTiles;
  let b = p.firstBatch + task / p.splits / tilesOfHead / headTiles;
  let head0 = p.firstHead + headTile * pack;
  let kvHead = head0 / p.group;
  let s = sequence_of(b);

  let tx = thread % TX;
  let ty = thread / TX;
  let row0 = rowTile * BQ;

  // Rows of this thread: their query, head, and which keys they see.
  var query = vec4<i32>();
  var head = vec4<u32>();
  var begin = vec4<i32>();
  var end = vec4<i32>();
  for (var i = 0u; i < ${bound("4u")}; i++) {
    let row = row0 + ty + i * TY;
    query[i] = i32(p.firstQuery + row / pack);
    head[i] = head0 + row % pack;
    if (query[i] < s.queries && u32(query[i]) < p.endQuery) {
      let seen = visible_keys(s, query[i]);
      begin[i] = seen.x;
      end[i] = seen.y;
    }
  }

  let firstQuery = i32(p.firstQuery + row0 / pack);
  let lastQuery = min(i32(p.firstQuery + (row0 + BQ - 1u) / pack), min(s.queries, i32(p.endQuery)) - 1);
${keysOfTile}
  var scale = p.scale;
  if (p.atKScale != none) { scale *= bitcast<f32>(aux[p.atKScale + kvHead]); }
  let chunks = (p.dim + 4u * DEPTH - 1u) / (4u * DEPTH);

  var top = vec4<f32>(lowest);
  var sum = vec4<f32>();
${times(4 * columns, (n) => `  var acc${Math.floor(n / columns)}_${n % columns} = vec4<f32>();`)}

  for (var key0 = keyBegin; key0 < keyEnd; key0 += i32(BK)) {
    if (thread == 0u) { atomicStore(&odd, 0u); }
    // A key's flag: may any row of the tile see it, and is it in this dispatch's memory?
    for (var j = thread; j < ${bound("BK")}; j += TX * TY) {
      let key = key0 + i32(j);
      var ok = 0u;
      if (key < keyEnd) { ok = select(0u, 1u, key_here(b, u32(key))); }
      key_ok[j] = ok;
    }

    // Scores.
${times(4, (i) => `    var score${i} = vec4<f32>();`)}
    for (var c = 0u; c < chunks; c++) {
      workgroupBarrier();
      let d0 = c * 4u * DEPTH;
      for (var at = thread; at < ${bound("BQ * DEPTH")}; at += TX * TY) {
        let r = at / DEPTH;
        let d = d0 + 4u * (at % DEPTH);
        let row = row0 + r;
        let i = p.firstQuery + row / pack;
        var x = vec4<f32>();
        if (i32(i) < s.queries && i < p.endQuery && d < p.dim) {
          let e = b * p.qBatch + (s.queryRow + i) * p.qRow + (head0 + row % pack) * p.qHead + d;
          x = q_load4(p.qBase, e - p.qFirst, p.dim - d);
        }
        tile[r * PITCH + at % DEPTH] = x;
      }
      for (var at = thread; at < ${bound("BK * DEPTH")}; at += TX * TY) {
        let r = at / DEPTH;
        let d = d0 + 4u * (at % DEPTH);
        var x = vec4<f32>();
        if (key_ok[r] == 1u && d < p.dim) {
          let e = key_element(s, b, u32(key0) + r, p.kBatch, p.kRow) + kvHead * p.kHead + d;
          x = k_load4(p.kBase, e - p.kFirst, p.dim - d);
        }
        tile[(BQ + r) * PITCH + at % DEPTH] = x;
      }
      workgroupBarrier();
      for (var d = 0u; d < ${bound("DEPTH")}; d++) {
        let k0 = tile[(BQ + tx) * PITCH + d];
        let k1 = tile[(BQ + tx + TX) * PITCH + d];
        let k2 = tile[(BQ + tx + 2u * TX) * PITCH + d];
        let k3 = tile[(BQ + tx + 3u * TX) * PITCH + d];
${times(
  4,
  (i) => `        let q${i} = tile[(ty + ${i}u * TY) * PITCH + d];
        score${i} += vec4<f32>(dot(q${i}, k0), dot(q${i}, k1), dot(q${i}, k2), dot(q${i}, k3));`,
)}
      }
    }

${plain ? plainScores : richScores}
    // The new maximum rescales what is there.
    let above = max(top, row_max(best, ty, tx, reach));
    let shrink = ${someWeight("exp2(top - above)", "vec4<f32>")};
    top = above;
    sum *= shrink;
${times(4 * columns, (n) => `    acc${Math.floor(n / columns)}_${n % columns} *= shrink[${Math.floor(n / columns)}];`)}
    // P, transposed: a thread's four rows are a vec4 of each of its keys.
${times(
  4,
  (j) => `    let weight${j} = exp2(row${j} - above);
    sum += select(vec4<f32>(), weight${j}, seen${j});
    pt[(tx + ${j}u * TX) * TY + ty] = select(vec4<u32>(), max(bitcast<vec4<u32>>(weight${j}), vec4<u32>(0x00800000u)), seen${j});`,
)}

    // P V, a few keys and two columns of a thread at a time.
${product}
    workgroupBarrier();
  }

  // Sums of a row's threads.
  reduced[thread] = sum;
  workgroupBarrier();
  sum = vec4<f32>();
  for (var i = 0u; i < ${bound("TX")}; i++) { sum += reduced[ty * TX + i]; }

  var vScale = 1.0;
  if (p.atVScale != none) { vScale = bitcast<f32>(aux[p.atVScale + kvHead]); }
  var acc = array<vec4<f32>, ${4 * columns}>(${Array.from({ length: 4 * columns }, (_, n) => `acc${Math.floor(n / columns)}_${n % columns}`).join(", ")});
  for (var i = 0u; i < ${bound("4u")}; i++) {
    let row = u32(query[i]);
    // Rows past a sequence's queries are padding, and cleared; of packed ones they are another sequence's.
    let rows = select(p.queryRows, u32(s.queries), p.atCuSeqLensQ != none);
    if (row >= min(rows, p.endQuery)) { continue; }
    let end = ending(sum[i], top[i], head[i], i32(row) < s.queries, vScale);
    for (var c = 0u; c < NC; c++) {
      let d = 4u * (tx + TX * c);
      if (d < p.valueDim) { put4(s, b, row, head[i], split, d, acc[i * NC + c] * end.factor); }
    }
    if (tx == 0u) { put_log(s, b, row, head[i], split, end.bits); }
  }
}
`;
}

/** Scores in base 2, key by key for four rows at once; which of them are visible, and the best of each row. */
const plainScores = /* wgsl */ `
    var best = vec4<f32>(lowest);
${times(
  4,
  (j) => `    let position${j} = vec4<i32>(key0 + i32(tx + ${j}u * TX));
    let row${j} = vec4<f32>(score0[${j}], score1[${j}], score2[${j}], score3[${j}]) * (scale * log2e);
    let seen${j} = (position${j} >= begin) & (position${j} < end) & vec4<bool>(key_ok[tx + ${j}u * TX] == 1u);
    best = select(best, max(best, row${j}), seen${j});`,
)}
`;

/**
 * The same with soft cap, bias, ALiBi and mask: one loop over a thread's 16 pairs, by way of its own part of pt, so that
 * what one pair takes is there once.
 */
const richScores = /* wgsl */ `
    // Until P is written, the last to read it did so before the barriers of Q and K.
${times(4, (j) => `    pt[(tx + ${j}u * TX) * TY + ty] = bitcast<vec4<u32>>(vec4<f32>(score0[${j}], score1[${j}], score2[${j}], score3[${j}]));`)}
    var seen = 0u;
    for (var pair = 0u; pair < 16u * p.one; pair++) {
      let i = pair & 3u;
      let at = (tx + (pair >> 2u) * TX) * TY + ty;
      let key = key0 + i32(tx + (pair >> 2u) * TX);
      if (key < begin[i] || key >= end[i] || key_ok[tx + (pair >> 2u) * TX] == 0u) { continue; }
      let one = pair_score(s, b, head[i], u32(query[i]), key, bitcast<f32>(pt[at][i]) * scale);
      if (!one.seen) { continue; }
      seen |= 1u << pair;
      pt[at][i] = bitcast<u32>(one.score);
    }
    var best = vec4<f32>(lowest);
${times(
  4,
  (j) => `    let row${j} = bitcast<vec4<f32>>(pt[(tx + ${j}u * TX) * TY + ty]);
    let seen${j} = (vec4<u32>(seen >> ${4 * j}u) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>();
    best = select(best, max(best, row${j}), seen${j});`,
)}
`;
