/**
 * New tokens into a cache: rotated, converted, quantised. One workgroup a row of one head; of block formats a thread
 * makes whole blocks. The same shader rotates queries, which go to a tensor of their own.
 *
 * Quantising follows ggml's reference step by step, and 16-bit types are rounded by integers, so that the bytes are the
 * host's: packages/core/src/codec.ts.
 */
import type { CacheDType, FloatDType } from "@tessera/core/web";
import { toHalves, words } from "./elements.js";
import { declareParams, type Fields } from "./fields.js";
import { none } from "./problem.js";

export const appendFields = {
  batch: "u32",
  /** Rows of the source: of an entry, or packed ones in all. */
  rows: "u32",
  heads: "u32",
  dim: "u32",
  fromBase: "u32",
  fromBatch: "u32",
  fromRow: "u32",
  fromHead: "u32",
  toBase: "u32",
  toBatch: "u32",
  toRow: "u32",
  toHead: "u32",
  /** 1: rows go behind a sequence's length; 0: to the place they have in the source. */
  toCache: "u32",
  atLengths: "u32",
  atNewLens: "u32",
  atCuSeqLens: "u32",
  atScale: "u32",
  atPages: "u32",
  pagesStride: "u32",
  pageSize: "u32",
  pageCount: "u32",
  capacity: "u32",
  /** 0: none, 1: interleaved, 2: half. */
  pairing: "u32",
  ropeDims: "u32",
  atPositions: "u32",
  positionsStride: "u32",
  firstTask: "u32",
  gridWidth: "u32",
} as const satisfies Fields;

const reads: { readonly [K in FloatDType]: string } = {
  f32: "bitcast<f32>(source[(p.fromBase + 4u * e) >> 2u])",
  f16: "from_f16(source_word(p.fromBase + 2u * e) & 0xffffu)",
  bf16: "bitcast<f32>(source_word(p.fromBase + 2u * e) << 16u)",
};

/** Exact, subnormal numbers too. */
const fromF16 = /* wgsl */ `
fn from_f16(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let a = bits & 0x7fffu;
  if (a >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((a & 0x3ffu) << 13u)); }
  if (a < 0x400u) { return bitcast<f32>(sign | bitcast<u32>(f32(a) * 5.9604644775390625e-8)); }
  return bitcast<f32>(sign | ((a << 13u) + 0x38000000u));
}
`;

const toF8 = /* wgsl */ `
fn to_f8(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 24u) & 0x80u;
  let a = bits & 0x7fffffffu;
  if (a > 0x7f800000u) { return sign | 0x7fu; }
  if (a >= 0x43e00000u) { return sign | 0x7eu; }
  if (a >= 0x3c800000u) { return sign | ((a - 0x3c000000u + 0x7ffffu + ((a >> 20u) & 1u)) >> 20u); }
  return sign | u32(round(bitcast<f32>(a) * 512.0));
}
`;

const block = (bytes: number, body: string) => /* wgsl */ `
fn store_block(e: u32, d: u32, src: u32, position: f32) {
  let to = p.toBase + (e >> 5u) * ${bytes}u;
  ${body}
}
`;

const storeQ8 = block(
  34,
  /* wgsl */ `
  var largest = 0.0;
  for (var i = 0u; i < 32u; i++) { largest = max(largest, abs(value(src, d + i, position))); }
  let scale = divide(largest, 127.0);
  var inverse = 0.0;
  if (scale > 0.0) { inverse = divide(1.0, scale); }
  put(to, 0xffffu, to_f16(scale));
  for (var i = 0u; i < 32u; i += 2u) {
    var pair = 0u;
    for (var j = 0u; j < 2u; j++) {
      let x = value(src, d + i + j, position) * inverse;
      let whole = trunc(x);
      let rounded = i32(whole) + select(0, select(1, -1, x < 0.0), abs(x - whole) >= 0.5);
      pair |= (bitcast<u32>(rounded) & 255u) << (8u * j);
    }
    put(to + 2u + i, 0xffffu, pair);
  }`,
);

const storeQ4 = block(
  18,
  /* wgsl */ `
  var largest = 0.0;
  var signed = 0.0;
  for (var i = 0u; i < 32u; i++) {
    let x = value(src, d + i, position);
    if (abs(x) > largest) {
      largest = abs(x);
      signed = x;
    }
  }
  let scale = signed * -0.125;
  var inverse = 0.0;
  if (scale != 0.0) { inverse = divide(1.0, scale); }
  put(to, 0xffffu, to_f16(scale));
  for (var i = 0u; i < 16u; i += 2u) {
    var pair = 0u;
    for (var j = 0u; j < 2u; j++) {
      let low = value(src, d + i + j, position) * inverse;
      let high = value(src, d + 16u + i + j, position) * inverse;
      pair |= (min(15u, u32(low + 8.5)) | (min(15u, u32(high + 8.5)) << 4u)) << (8u * j);
    }
    put(to + 2u + i, 0xffffu, pair);
  }`,
);

const stores: { readonly [K in CacheDType]: string } = {
  f32: "fn store(e: u32, x: f32) { atomicStore(&to_words[(p.toBase + 4u * e) >> 2u], bitcast<u32>(x)); }",
  f16: "fn store(e: u32, x: f32) { put(p.toBase + 2u * e, 0xffffu, to_f16(x)); }",
  bf16: "fn store(e: u32, x: f32) { put(p.toBase + 2u * e, 0xffffu, to_bf16(x)); }",
  f8_e4m3: "fn store(e: u32, x: f32) { put(p.toBase + e, 0xffu, to_f8(x)); }",
  q8_0: storeQ8,
  q4_0: storeQ4,
};

const lengthsOfStep = /* wgsl */ `
const none = ${none}u;
fn new_tokens(b: u32) -> u32 {
  if (p.atCuSeqLens != none) {
    let first = min(aux[p.atCuSeqLens + b], p.rows);
    return clamp(aux[p.atCuSeqLens + b + 1u], first, p.rows) - first;
  }
  if (p.atNewLens != none) { return u32(clamp(bitcast<i32>(aux[p.atNewLens + b]), 0, i32(p.rows))); }
  return p.rows;
}
`;

export function appendShader(from: FloatDType, to: CacheDType): string {
  const blocks = to === "q8_0" || to === "q4_0";
  return /* wgsl */ `
${declareParams(appendFields)}
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(3) var<storage, read> frequencies: array<f32>;
@group(0) @binding(4) var<storage, read> aux: array<u32>;
@group(0) @binding(7) var<storage, read_write> to_words: array<atomic<u32>>;

${lengthsOfStep}
${words("source")}${fromF16}${toHalves}${toF8}

/** Bits of a word at an address; its other bits may be another thread's. */
fn put(at: u32, mask: u32, bits: u32) {
  let shift = (at & 3u) * 8u;
  atomicAnd(&to_words[at >> 2u], ~(mask << shift));
  atomicOr(&to_words[at >> 2u], (bits & mask) << shift);
}
fn number_at(e: u32) -> f32 { return ${reads[from]}; }

/** Sine and cosine: WGSL's own are exact to 2^-11 only, and only near 0. */
fn sine_cosine(x: f32) -> vec2<f32> {
  let turns = round(x * 0.63661977);
  var r = x - turns * 1.5703125;
  r -= turns * 4.837512969970703125e-4;
  r -= turns * 7.54978995489188216e-8;
  let r2 = r * r;
  let s = r + r * r2 * (-0.16666667 + r2 * (8.3333333e-3 + r2 * (-1.9841270e-4 + r2 * 2.7557319e-6)));
  let c = 1.0 + r2 * (-0.5 + r2 * (4.1666667e-2 + r2 * (-1.3888889e-3 + r2 * 2.4801587e-5)));
  switch i32(turns) & 3 {
    case 0: { return vec2<f32>(s, c); }
    case 1: { return vec2<f32>(c, -s); }
    case 2: { return vec2<f32>(-s, -c); }
    default: { return vec2<f32>(-c, s); }
  }
}

/**
 * To the last bit, which WGSL doesn't promise. The remainder is exact without a fused multiply-add, which some devices
 * don't have: factors are cut into halves whose products fit.
 */
fn upper(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
fn divide(a: f32, b: f32) -> f32 {
  let quotient = a / b;
  let q1 = upper(quotient);
  let q2 = quotient - q1;
  let b1 = upper(b);
  let b2 = b - b1;
  let rest = (((a - q1 * b1) - q1 * b2) - q2 * b1) - q2 * b2;
  return quotient + rest / b;
}

/** Element d of a row, rotated. */
fn value(src: u32, d: u32, position: f32) -> f32 {
  let x = number_at(src + d);
  if (p.pairing == 0u || d >= p.ropeDims) { return x; }
  let half = p.ropeDims / 2u;
  let pair = select(d / 2u, d % half, p.pairing == 2u);
  let second = select((d & 1u) == 1u, d >= half, p.pairing == 2u);
  let other = select(select(d + 1u, d - 1u, second), select(d + half, d - half, second), p.pairing == 2u);
  let turn = sine_cosine(position * frequencies[pair]);
  return x * turn.y + select(-1.0, 1.0, second) * number_at(src + other) * turn.x;
}
${stores[to]}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = p.firstTask + workgroup.x + workgroup.y * p.gridWidth;
  let head = task % p.heads;
  let t = (task / p.heads) % p.rows;
  let b = task / p.heads / p.rows;
  if (b >= p.batch || t >= new_tokens(b)) { return; }
  var row = t;
  if (p.atCuSeqLens != none) { row = aux[p.atCuSeqLens + b] + t; }
  let src = b * p.fromBatch + row * p.fromRow + head * p.fromHead;
  let slot = aux[p.atLengths + b] + t;
  var position = slot;
  if (p.atPositions != none) { position = aux[p.atPositions + b * p.positionsStride + row]; }
  var dst = b * p.toBatch + row * p.toRow;
  if (p.toCache == 1u) {
    if (slot >= p.capacity) { return; }
    dst = b * p.toBatch + slot * p.toRow;
    if (p.atPages != none) {
      let page = aux[p.atPages + b * p.pagesStride + slot / p.pageSize];
      if (page >= p.pageCount) { return; }
      dst = page * p.toBatch + (slot % p.pageSize) * p.toRow;
    }
  }
  dst += head * p.toHead;
  let at = f32(bitcast<i32>(position));
${
  blocks
    ? `  for (var d = 32u * thread; d < p.dim; d += 2048u) { store_block(dst + d, d, src, at); }`
    : `  var scale = 1.0;
  if (p.atScale != none) { scale = bitcast<f32>(aux[p.atScale + head]); }
  for (var d = thread; d < p.dim; d += 64u) {
    var x = value(src, d, at);
    if (scale != 1.0) { x = divide(x, scale); }
    store(dst + d, x);
  }`
}
}
`;
}

/** Adds the new tokens to the lengths. */
export const advanceShader = /* wgsl */ `
${declareParams(appendFields)}
@group(0) @binding(4) var<storage, read> aux: array<u32>;
@group(0) @binding(7) var<storage, read_write> lengths: array<u32>;
${lengthsOfStep}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < p.batch) { lengths[(p.toBase >> 2u) + id.x] = aux[p.atLengths + id.x] + new_tokens(id.x); }
}
`;
