/**
 * Joins the parts of each row (splits of its keys, and chunks where K or V is larger than a binding) into a result. One
 * workgroup a row: each thread makes the weight of a part, and then sums every fourth part of up to four columns.
 */
import type { FloatDType } from "@tessera/core/web";
import { logBits, someWeight, storer, toHalves } from "./elements.js";
import { declareParams } from "./fields.js";
import { attentionFields, sequences } from "./problem.js";

/** Columns and parts that are summed at once. */
const [columns, lanes] = [64, 4];
const threads = columns * lanes;

export const joinShader = (out: FloatDType): string => /* wgsl */ `
${declareParams(attentionFields)}
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read> logs: array<u32>;
@group(0) @binding(4) var<storage, read> aux: array<u32>;
@group(0) @binding(7) var<storage, read_write> out: array<atomic<u32>>;
@group(0) @binding(8) var<storage, read_write> lse: array<u32>;

const empty = 0xff800000u;
const log2e = 1.4426950408889634;
${sequences}
${out === "f32" ? "" : toHalves}
${storer(out)}
${logBits}
var<workgroup> weights: array<f32, ${threads}>;
var<workgroup> partial_sums: array<vec4<f32>, ${threads}>;

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = task_of(workgroup);
  if (task >= p.tasks) { return; }
  let queries = p.endQuery - p.firstQuery;
  let row = p.firstQuery + task % queries;
  let head = p.firstHead + (task / queries) % p.headCount;
  let b = p.firstBatch + task / queries / p.headCount;
  let s = sequence_of(b);
  let packed = p.atCuSeqLensQ != none;
  if (row >= select(p.queryRows, u32(s.queries), packed)) { return; }

  let first = task * p.parts;
  var top = -3.0e38;
  var some = false;
  for (var i = 0u; i < p.parts; i++) {
    if (logs[first + i] != empty) {
      some = true;
      top = max(top, bitcast<f32>(logs[first + i]));
    }
  }
  var sum = 0.0;
  let has_sink = p.atSinks != none && i32(row) < s.queries && aux[p.atSinks + head] != empty;
  if (has_sink) {
    let sink = bitcast<f32>(aux[p.atSinks + head]) * log2e;
    top = max(top, sink);
    sum = exp2(sink - top);
  }
  // A column is held four times 64 apart.
  let column = thread % ${columns}u;
  var x = vec4<f32>();
  for (var from_part = 0u; from_part < p.parts; from_part += ${threads}u) {
    let count = min(p.parts - from_part, ${threads}u);
    if (from_part > 0u) { workgroupBarrier(); }
    if (thread < count) {
      let bits = logs[first + from_part + thread];
      var weight = 0.0;
      if (bits != empty) { weight = ${someWeight("exp2(bitcast<f32>(bits) - top)")}; }
      weights[thread] = weight;
    }
    workgroupBarrier();
    for (var i = 0u; i < count; i++) { sum += weights[i]; }
    for (var i = thread / ${columns}u; i < count; i += ${lanes}u) {
      let part = first + from_part + i;
      // What an empty part holds counts for nothing, whatever it is.
      if (logs[part] == empty) { continue; }
      for (var c = 0u; c < 4u; c++) {
        let d = column + ${columns}u * c;
        if (d < p.valueDim) { x[c] += weights[i] * parts[part * p.valueDim + d]; }
      }
    }
  }
  partial_sums[thread] = x;
  workgroupBarrier();
  if (thread < ${columns}u) {
    x = partial_sums[thread] + partial_sums[thread + ${columns}u] + partial_sums[thread + ${2 * columns}u] + partial_sums[thread + ${3 * columns}u];
    let e = b * p.outBatch + (s.queryRow + row) * p.outRow + head * p.outHead - p.outFirst;
    for (var c = 0u; c < 4u; c++) {
      let d = column + ${columns}u * c;
      if (d < p.valueDim) { store(p.outBase, e + d, select(0.0, x[c] / sum, some)); }
    }
  }
  if (p.hasLse == 1u && thread == 0u) {
    var bits = empty;
    if (some || has_sink) { bits = log_bits(sum, (top + log2(sum)) * 0.69314718); }
    let at = b * p.lseBatch + (s.queryRow + row) * p.lseRow + head * p.lseHead - p.lseFirst;
    lse[(p.lseBase + 4u * at) >> 2u] = bits;
  }
}
`;
