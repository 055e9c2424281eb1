/**
 * Elements of every storage type out of `array<u32>`, and back. Addresses are bytes, of any alignment that the type
 * allows; block formats are unpacked here. `base` is the byte of element 0 in its binding.
 *
 * WGSL may assume that NaN and infinity don't occur, so both are only ever made and told by their bits.
 */
import type { CacheDType, FloatDType } from "@tessera/core/web";

/** Four bytes from any address of a buffer. */
export const words = (buffer: string): string => /* wgsl */ `
fn ${buffer}_word(at: u32) -> u32 {
  let word = at >> 2u;
  let shift = (at & 3u) * 8u;
  let low = ${buffer}[word];
  if (shift == 0u) { return low; }
  return (low >> shift) | (${buffer}[word + 1u] << (32u - shift));
}
`;

const bodies: { readonly [K in CacheDType]: (buffer: string) => string } = {
  f32: (b) => `
  let at = (base + 4u * e) >> 2u;
  return from_bits(vec4<u32>(${b}[at], ${b}[at + 1u], ${b}[at + 2u], ${b}[at + 3u]));`,
  f16: (b) => `
  let at = base + 2u * e;
  return vec4<f32>(unpack2x16float(${b}_word(at)), unpack2x16float(${b}_word(at + 4u)));`,
  bf16: (b) => `
  let at = base + 2u * e;
  let low = ${b}_word(at);
  let high = ${b}_word(at + 4u);
  return from_bits(vec4<u32>(low << 16u, low & 0xffff0000u, high << 16u, high & 0xffff0000u));`,
  f8_e4m3: (b) => `
  let bytes = (vec4<u32>(${b}_word(base + e)) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
  return vec4<f32>(from_f8(bytes.x), from_f8(bytes.y), from_f8(bytes.z), from_f8(bytes.w));`,
  q8_0: (b) => `
  let at = base + (e >> 5u) * 34u;
  let d = unpack2x16float(${b}_word(at)).x;
  let quants = vec4<u32>(${b}_word(at + 2u + (e & 31u))) << vec4<u32>(24u, 16u, 8u, 0u);
  return d * vec4<f32>(bitcast<vec4<i32>>(quants) >> vec4<u32>(24u));`,
  q4_0: (b) => `
  let at = base + (e >> 5u) * 18u;
  let d = unpack2x16float(${b}_word(at)).x;
  let nibbles = ${b}_word(at + 2u + (e & 15u)) >> ((e & 16u) >> 2u);
  let quants = (vec4<u32>(nibbles) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u);
  return d * (vec4<f32>(quants) - vec4<f32>(8.0));`,
};

/**
 * Numbers below 2^-126 are 0. WGSL lets devices take them for that, some do, and a product with a large number would show it:
 * so all do, which the catalogue says (`flushes`).
 */
export const fromBits = /* wgsl */ `
fn from_bits(bits: vec4<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(select(bits, vec4<u32>(), (bits & vec4<u32>(0x7f800000u)) == vec4<u32>()));
}
`;

/** Rows that begin at multiples of four elements, and are as long: how buffers are declared for them, and read at once. */
const evenBodies: { readonly [K in CacheDType]?: readonly [element: string, body: (buffer: string) => string] } = {
  f32: ["vec4<u32>", (b) => `return from_bits(${b}[(base + 4u * e) >> 4u]);`],
  f16: [
    "vec2<u32>",
    (b) => `
  let x = ${b}[(base + 2u * e) >> 3u];
  return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y));`,
  ],
  bf16: [
    "vec2<u32>",
    (b) => `
  let x = ${b}[(base + 2u * e) >> 3u];
  return from_bits(vec4<u32>(x.x << 16u, x.x & 0xffff0000u, x.y << 16u, x.y & 0xffff0000u));`,
  ],
};

/** What a buffer is an array of. */
export const elementOf = (dtype: CacheDType, even: boolean): string => (even && evenBodies[dtype]?.[0]) || "u32";

/** `load4` of even rows; block formats and f8 have but one way. */
export function evenLoader(name: string, dtype: CacheDType): string {
  const even = evenBodies[dtype];
  if (!even) return words(name) + loader(name, name, dtype);
  return /* wgsl */ `
fn ${name}_load4(base: u32, e: u32, left: u32) -> vec4<f32> {${even[1](name)}
}
`;
}

/** `load4`: elements e to e + 3; block formats: e is a multiple of 4. Those at or past `end` are 0 whatever they hold. */
export function loader(name: string, buffer: string, dtype: CacheDType): string {
  return /* wgsl */ `
fn ${name}_raw(base: u32, e: u32) -> vec4<f32> {${bodies[dtype](buffer)}
}
fn ${name}_load4(base: u32, e: u32, left: u32) -> vec4<f32> {
  if (left == 0u) { return vec4<f32>(); }
  let x = ${name}_raw(base, e);
  return select(vec4<f32>(), x, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(left));
}
`;
}

export const fromF8 = /* wgsl */ `
fn from_f8(bits: u32) -> f32 {
  let magnitude = bits & 127u;
  let sign = (bits & 128u) << 24u;
  if (magnitude == 127u) { return bitcast<f32>(0x7fc00000u | sign); }
  if (magnitude < 8u) { return bitcast<f32>(bitcast<u32>(f32(magnitude) * 0.001953125) | sign); }
  return bitcast<f32>(((magnitude << 20u) + 0x3c000000u) | sign);
}
`;

/**
 * A weight `x`, 2^-126 at least: 0 · infinity would be NaN. By its bits, as \`max\` of floats may take the number that isn't
 * NaN, and a weight that is NaN has to show.
 */
export function someWeight(x: string, type: "f32" | "vec2<f32>" | "vec4<f32>" = "f32"): string {
  const uint = type.replace("f32", "u32");
  return `bitcast<${type}>(max(bitcast<${uint}>(${x}), ${uint}(0x00800000u)))`;
}

/** Bits of a sum's logarithm: those of NaN if a weight was none, which exp2 and log needn't keep. No right sum is infinite. */
export const logBits = /* wgsl */ `
fn log_bits(sum: f32, log: f32) -> u32 {
  return select(bitcast<u32>(log), 0x7fc00000u, (bitcast<u32>(sum) & 0x7f800000u) == 0x7f800000u);
}
`;

/** Rounds to nearest even, by integers: WGSL's own conversions may round either way. */
export const toHalves = /* wgsl */ `
fn to_f16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let a = bits & 0x7fffffffu;
  if (a > 0x7f800000u) { return sign | 0x7e00u; }
  if (a >= 0x477ff000u) { return sign | 0x7c00u; }
  if (a >= 0x38800000u) { return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u); }
  if (a < 0x33000000u) { return sign; }
  let shift = 126u - (a >> 23u);
  let significand = (a & 0x7fffffu) | 0x800000u;
  let half = significand >> shift;
  let rest = significand & ((1u << shift) - 1u);
  let middle = 1u << (shift - 1u);
  return sign | (half + select(0u, 1u, rest > middle || (rest == middle && (half & 1u) == 1u)));
}
fn to_bf16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
`;

/**
 * `store`: writes one element of `out`, an `array<atomic<u32>>`: neighbours in a word may be another thread's, or
 * nobody's and to be left alone.
 */
export function storer(dtype: FloatDType): string {
  if (dtype === "f32") {
    return /* wgsl */ `
fn store(base: u32, e: u32, x: f32) { atomicStore(&out[(base + 4u * e) >> 2u], bitcast<u32>(x)); }
fn store4(base: u32, e: u32, left: u32, x: vec4<f32>) {
  for (var i = 0u; i < min(left, 4u); i++) { store(base, e + i, x[i]); }
}
`;
  }
  return /* wgsl */ `
fn store(base: u32, e: u32, x: f32) {
  let at = base + 2u * e;
  let shift = (at & 2u) * 8u;
  atomicAnd(&out[at >> 2u], ~(0xffffu << shift));
  atomicOr(&out[at >> 2u], to_${dtype}(x) << shift);
}
fn store4(base: u32, e: u32, left: u32, x: vec4<f32>) {
  let at = base + 2u * e;
  if (left >= 4u && (at & 3u) == 0u) {
    atomicStore(&out[at >> 2u], to_${dtype}(x.x) | (to_${dtype}(x.y) << 16u));
    atomicStore(&out[(at >> 2u) + 1u], to_${dtype}(x.z) | (to_${dtype}(x.w) << 16u));
    return;
  }
  for (var i = 0u; i < min(left, 4u); i++) { store(base, e + i, x[i]); }
}
`;
}
