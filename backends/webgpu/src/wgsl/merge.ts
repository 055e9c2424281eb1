/**
 * The verb "merge", a part at a time: sums holds each row's columns, its maximum and its sum (Dv + 2 numbers) and takes
 * one part after the other; the last dispatch writes the result. What an empty part holds is never read.
 */
import type { FloatDType } from "@tessera/core/web";
import { fromBits, loader, logBits, storer, toHalves, words } from "./elements.js";
import { declareParams, type Fields } from "./fields.js";

export const mergeFields = {
  batch: "u32",
  rows: "u32",
  heads: "u32",
  valueDim: "u32",
  partBase: "u32",
  partBatch: "u32",
  partRow: "u32",
  partHead: "u32",
  logBase: "u32",
  logBatch: "u32",
  logRow: "u32",
  logHead: "u32",
  first: "u32",
  firstTask: "u32",
  gridWidth: "u32",
} as const satisfies Fields;

const threads = 64;

const head = /* wgsl */ `
${declareParams(mergeFields)}
const empty = 0xff800000u;
struct Place { b: u32, row: u32, head: u32, ok: bool }
fn place_of(task: u32) -> Place {
  let head = task % p.heads;
  let row = (task / p.heads) % p.rows;
  let b = task / p.heads / p.rows;
  return Place(b, row, head, b < p.batch);
}
`;

export const mergePartShader = (dtype: FloatDType): string => /* wgsl */ `
${head}
@group(0) @binding(1) var<storage, read> part: array<u32>;
@group(0) @binding(2) var<storage, read> logs: array<u32>;
@group(0) @binding(7) var<storage, read_write> sums: array<f32>;
${words("part")}
${fromBits}${loader("part", "part", dtype)}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = p.firstTask + workgroup.x + workgroup.y * p.gridWidth;
  let at = place_of(task);
  let width = p.valueDim + 2u;
  var top = 0.0;
  var sum = 0.0;
  var bits = empty;
  if (at.ok) {
    if (p.first == 0u) {
      top = sums[task * width + p.valueDim];
      sum = sums[task * width + p.valueDim + 1u];
    }
    bits = logs[(p.logBase >> 2u) + at.b * p.logBatch + at.row * p.logRow + at.head * p.logHead];
  }
  // Everyone has read the row's maximum and sum before one writes them.
  storageBarrier();
  if (!at.ok) { return; }
  if (bits == empty) {
    if (p.first == 1u) {
      for (var d = thread; d < width; d += ${threads}u) { sums[task * width + d] = 0.0; }
    }
    return;
  }
  let log = bitcast<f32>(bits);
  let some = bitcast<u32>(sum) != 0u; // also if it is NaN
  let above = select(log, max(top, log), some);
  let shrink = select(0.0, exp2((top - above) * 1.442695041), some);
  let weight = exp2((log - above) * 1.442695041);
  let e = at.b * p.partBatch + at.row * p.partRow + at.head * p.partHead;
  for (var d = 4u * thread; d < p.valueDim; d += ${4 * threads}u) {
    let x = part_load4(p.partBase, e + d, p.valueDim - d);
    for (var i = 0u; i < min(4u, p.valueDim - d); i++) {
      let to = task * width + d + i;
      var before = 0.0;
      if (some) { before = sums[to] * shrink; }
      sums[to] = before + weight * x[i];
    }
  }
  if (thread == 0u) {
    sums[task * width + p.valueDim] = above;
    sums[task * width + p.valueDim + 1u] = sum * shrink + weight;
  }
}
`;

export const mergeEndShader = (dtype: FloatDType): string => /* wgsl */ `
${head}
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<atomic<u32>>;
@group(0) @binding(8) var<storage, read_write> logs: array<u32>;
${dtype === "f32" ? "" : toHalves}
${storer(dtype)}
${logBits}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = p.firstTask + workgroup.x + workgroup.y * p.gridWidth;
  let at = place_of(task);
  if (!at.ok) { return; }
  let width = p.valueDim + 2u;
  let sum = sums[task * width + p.valueDim + 1u];
  let some = bitcast<u32>(sum) != 0u; // also if it is NaN
  let e = at.b * p.partBatch + at.row * p.partRow + at.head * p.partHead;
  for (var d = thread; d < p.valueDim; d += ${threads}u) {
    store(p.partBase, e + d, select(0.0, sums[task * width + d] / sum, some));
  }
  if (p.first == 1u && thread == 0u) {
    let total = sums[task * width + p.valueDim] + log(sum);
    logs[(p.logBase >> 2u) + at.b * p.logBatch + at.row * p.logRow + at.head * p.logHead] = select(empty, log_bits(sum, total), some);
  }
}
`;
