/** How attention kernels write a row: its result, or (partial) one part of it for `join`. */
import { logBits } from "./elements.js";

const partial = /* wgsl */ `
fn ending(sum: f32, top: f32, head: u32, is_query: bool, scale: f32) -> Ending {
  let some = bitcast<u32>(sum) != 0u; // also if it is NaN
  return Ending(select(0.0, scale / sum, some), select(0xff800000u, log_bits(sum, top + log2(sum)), some));
}

/** Row (b, head, query) of the dispatch's rows, part by part: \`parts\` results of Dv, and as many logarithms. */
fn part_of(b: u32, row: u32, head: u32, split: u32) -> u32 {
  let index = ((b - p.firstBatch) * p.headCount + head - p.firstHead) * (p.endQuery - p.firstQuery) + row - p.firstQuery;
  return index * p.parts + p.firstPart + split;
}
fn put4(s: Sequence, b: u32, row: u32, head: u32, split: u32, d: u32, x: vec4<f32>) {
  store4(0u, part_of(b, row, head, split) * p.valueDim + d, p.valueDim - d, x);
}
fn put_log(s: Sequence, b: u32, row: u32, head: u32, split: u32, bits: u32) { lse[part_of(b, row, head, split)] = bits; }
`;

const result = /* wgsl */ `
fn ending(sum: f32, top: f32, head: u32, is_query: bool, scale: f32) -> Ending {
  if (bitcast<u32>(sum) == 0u) { // not if it is NaN
    var bits = 0xff800000u;
    if (p.atSinks != none && is_query) { bits = aux[p.atSinks + head]; }
    return Ending(0.0, bits);
  }
  var total = sum;
  var m = top;
  var factor = 1.0;
  if (p.atSinks != none && aux[p.atSinks + head] != 0xff800000u) {
    let sink = bitcast<f32>(aux[p.atSinks + head]) * log2e;
    let with_sink = max(m, sink);
    factor = exp2(m - with_sink);
    total = total * factor + exp2(sink - with_sink);
    m = with_sink;
  }
  return Ending(scale * factor / total, log_bits(total, (m + log2(total)) * 0.69314718));
}

fn put4(s: Sequence, b: u32, row: u32, head: u32, split: u32, d: u32, x: vec4<f32>) {
  let e = b * p.outBatch + (s.queryRow + row) * p.outRow + head * p.outHead - p.outFirst;
  store4(p.outBase, e + d, p.valueDim - d, x);
}
fn put_log(s: Sequence, b: u32, row: u32, head: u32, split: u32, bits: u32) {
  if (p.hasLse == 0u) { return; }
  let at = b * p.lseBatch + (s.queryRow + row) * p.lseRow + head * p.lseHead - p.lseFirst;
  lse[(p.lseBase + 4u * at) >> 2u] = bits;
}
`;

/** `ending`: what a row's sums are multiplied by, and its logarithm's bits; `put4` and `put_log` write them. */
export const rowWriter = (parts: boolean): string => /* wgsl */ `
${logBits}
struct Ending { factor: f32, bits: u32 }
${parts ? partial : result}
`;
