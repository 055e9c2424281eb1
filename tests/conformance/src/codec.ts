/**
 * Element types, encoded and decoded on their own: the table shares no code with what it tests. Encoding rounds once,
 * to nearest even; f8_e4m3 saturates; q8_0 and q4_0 are what ggml's reference quantisers write.
 */
import type { DType } from "@tessera/core";

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

function bitsOf(value: number): number {
  float[0] = value;
  return word[0] as number;
}

export function encodeF16(value: number): number {
  const bits = bitsOf(value);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // 65520 and above
  if (magnitude < 0x38800000) {
    // Subnormal: a multiple of 2^-24. Multiplying by a power of two is exact; ties to even by hand.
    const scaled = Math.abs(float[0] as number) * 16777216;
    const floor = Math.floor(scaled);
    const rest = scaled - floor;
    return sign | (floor + (rest > 0.5 || (rest === 0.5 && (floor & 1) === 1) ? 1 : 0));
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}

export function decodeF16(bits: number): number {
  const exponent = (bits >>> 10) & 31;
  const fraction = bits & 0x3ff;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function encodeBf16(value: number): number {
  const bits = bitsOf(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

export function decodeBf16(bits: number): number {
  word[0] = (bits << 16) >>> 0;
  return float[0] as number;
}

export function decodeF8(bits: number): number {
  const exponent = (bits >>> 3) & 15;
  const fraction = bits & 7;
  const sign = bits & 0x80 ? -1 : 1;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7));
}

export function encodeF8(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x80 : 0;
  const magnitude = Math.abs(Math.fround(value));
  if (Number.isNaN(magnitude)) return 0x7f | sign;
  if (magnitude >= 448) return sign | 0x7e;
  const exponent = Math.max(-6, Math.floor(Math.log2(magnitude || 1e-30)));
  const quantum = 2 ** (exponent - 3);
  const scaled = magnitude / quantum;
  const floor = Math.floor(scaled);
  const rest = scaled - floor;
  const rounded = floor + (rest > 0.5 || (rest === 0.5 && (floor & 1) === 1) ? 1 : 0);
  // `rounded` counts quanta: 8..16 for normals (16 carries into the exponent by plain addition), 0..8 for subnormals.
  const code = (exponent + 6) * 8 + rounded;
  return sign | Math.min(code, 0x7e);
}

/** roundf: halves away from zero. */
function roundAway(x: number): number {
  return x < 0 ? -Math.floor(-x + 0.5) : Math.floor(x + 0.5);
}

function encodeQ8Block(x: Float32Array, at: number, out: Uint8Array, to: number): void {
  let largest = 0;
  for (let i = 0; i < 32; i++) largest = Math.max(largest, Math.abs(x[at + i] as number));
  const d = Math.fround(largest / 127);
  const inverse = d ? Math.fround(1 / d) : 0;
  const scale = encodeF16(d);
  out[to] = scale & 255;
  out[to + 1] = scale >>> 8;
  for (let i = 0; i < 32; i++) out[to + 2 + i] = roundAway(Math.fround((x[at + i] as number) * inverse)) & 255;
}

function encodeQ4Block(x: Float32Array, at: number, out: Uint8Array, to: number): void {
  let largest = 0;
  let signed = 0;
  for (let i = 0; i < 32; i++) {
    const value = x[at + i] as number;
    if (largest < Math.abs(value)) {
      largest = Math.abs(value);
      signed = value;
    }
  }
  const d = Math.fround(signed / -8);
  const inverse = d ? Math.fround(1 / d) : 0;
  const scale = encodeF16(d);
  out[to] = scale & 255;
  out[to + 1] = scale >>> 8;
  const quant = (value: number) => Math.min(15, Math.trunc(Math.fround(Math.fround(value * inverse) + 8.5)));
  for (let i = 0; i < 16; i++) {
    out[to + 2 + i] = quant(x[at + i] as number) | (quant(x[at + i + 16] as number) << 4);
  }
}

/** Bytes of `count` elements; a whole number of blocks. */
export function bytesFor(dtype: DType, count: number): number {
  switch (dtype) {
    case "f32":
    case "i32":
      return count * 4;
    case "f16":
    case "bf16":
      return count * 2;
    case "q8_0":
      return (count / 32) * 34;
    case "q4_0":
      return (count / 32) * 18;
    default:
      return count;
  }
}

export function encode(values: ArrayLike<number>, dtype: DType): Uint8Array {
  const n = values.length;
  if (dtype === "f32") return new Uint8Array(Float32Array.from(values).buffer);
  if (dtype === "i32") return new Uint8Array(Int32Array.from(values).buffer);
  if (dtype === "bool") return Uint8Array.from(values);
  if (dtype === "f16" || dtype === "bf16") {
    const out = new Uint16Array(n);
    const one = dtype === "f16" ? encodeF16 : encodeBf16;
    for (let i = 0; i < n; i++) out[i] = one(values[i] as number);
    return new Uint8Array(out.buffer);
  }
  const out = new Uint8Array(bytesFor(dtype, n));
  if (dtype === "f8_e4m3") {
    for (let i = 0; i < n; i++) out[i] = encodeF8(values[i] as number);
    return out;
  }
  const source = values instanceof Float32Array ? values : Float32Array.from(values);
  for (let block = 0; block < n / 32; block++) {
    if (dtype === "q8_0") encodeQ8Block(source, block * 32, out, block * 34);
    else encodeQ4Block(source, block * 32, out, block * 18);
  }
  return out;
}

export function decode(bytes: Uint8Array, dtype: DType): Float32Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  if (dtype === "f32") return new Float32Array(aligned.buffer, aligned.byteOffset, bytes.length / 4);
  if (dtype === "i32") return Float32Array.from(new Int32Array(aligned.buffer, aligned.byteOffset, bytes.length / 4));
  if (dtype === "bool") return Float32Array.from(bytes);
  if (dtype === "f16" || dtype === "bf16") {
    const source = new Uint16Array(aligned.buffer, aligned.byteOffset, bytes.length / 2);
    return Float32Array.from(source, dtype === "f16" ? decodeF16 : decodeBf16);
  }
  if (dtype === "f8_e4m3") return Float32Array.from(bytes, decodeF8);
  const size = dtype === "q8_0" ? 34 : 18;
  const blocks = bytes.length / size;
  const out = new Float32Array(blocks * 32);
  for (let block = 0; block < blocks; block++) {
    const at = block * size;
    const d = decodeF16((bytes[at] as number) | ((bytes[at + 1] as number) << 8));
    for (let i = 0; i < 32; i++) {
      const raw = bytes[at + 2 + (dtype === "q8_0" ? i : i % 16)] as number;
      const q = dtype === "q8_0" ? (raw << 24) >> 24 : ((i < 16 ? raw : raw >>> 4) & 15) - 8;
      out[block * 32 + i] = d * q;
    }
  }
  return out;
}

/** A value as `dtype` would store it. */
export function rounded(value: number, dtype: DType): number {
  if (dtype === "f16") return decodeF16(encodeF16(value));
  if (dtype === "bf16") return decodeBf16(encodeBf16(value));
  return Math.fround(value);
}

/** A tensor in host memory, contiguous: its bytes and what they mean. */
export interface HostTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
  readonly values: Float32Array;
}

export function hostTensor(dtype: DType, shape: readonly number[], values: ArrayLike<number>): HostTensor {
  const bytes = encode(values, dtype);
  return { dtype, shape, bytes, values: dtype === "f32" ? Float32Array.from(values) : decode(bytes, dtype) };
}
