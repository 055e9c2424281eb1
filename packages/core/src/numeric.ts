/**
 * Sixteen-bit and eight-bit floats: one number to its bits and back. Rounding is to nearest, ties to even, straight
 * from float64, so a value is rounded once whatever it was computed in.
 */

const float = new Float64Array(1);
const words = new Uint32Array(float.buffer);
const highWord = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1 ? 1 : 0;

/** 2^i for i in [-200, 200]. */
const powers = Float64Array.from({ length: 401 }, (_, i) => 2 ** (i - 200));

/** Adding and subtracting 2^52 rounds a double in [0, 2^51] to an integer, ties to even. */
const ROUNDER = 2 ** 52;

/**
 * Bits of a non-negative finite value in a format with `mantissa` stored bits whose smallest normal is 2^minExponent.
 * Subnormals and the carry into the next exponent fall out of the same sum.
 */
function magnitudeBits(value: number, mantissa: number, minExponent: number): number {
  float[0] = value;
  const exponent = Math.max((words[highWord]! >>> 20) - 1023, minExponent);
  const rounded = value * powers[mantissa - exponent + 200]! + ROUNDER - ROUNDER;
  return (exponent - minExponent) * (1 << mantissa) + rounded;
}

const isNegative = (value: number) => value < 0 || Object.is(value, -0);

/** The smallest positive float32. */
export const leastF32 = 2 ** -149;

/** Whether a number is other than 0 and float32 holds it as 0, which back ends take for an option that is absent. */
export const vanishes = (value: number): boolean => value !== 0 && Math.fround(value) === 0;

/** Bits of an IEEE half. Beyond 65,520 it is infinite. */
export function toF16(value: number): number {
  const sign = isNegative(value) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (magnitude < 65520) return sign | magnitudeBits(magnitude, 10, -14);
  return Number.isNaN(value) ? 0x7e00 : sign | 0x7c00;
}

/** Bits of a bfloat16. */
export function toBF16(value: number): number {
  const sign = isNegative(value) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (magnitude < 2 ** 128 - 2 ** 119) return sign | magnitudeBits(magnitude, 7, -126);
  return Number.isNaN(value) ? 0x7fc0 : sign | 0x7f80;
}

/** Bits of an OCP e4m3fn. Saturates: everything beyond 448, infinities too, becomes 448. */
export function toF8(value: number): number {
  const sign = isNegative(value) ? 0x80 : 0;
  const magnitude = Math.abs(value);
  if (magnitude <= 448) return sign | magnitudeBits(magnitude, 3, -6);
  return Number.isNaN(value) ? 0x7f : sign | 0x7e;
}

function fromBits(bits: number, mantissa: number, minExponent: number): number {
  const exponent = bits >>> mantissa;
  const fraction = bits & ((1 << mantissa) - 1);
  const scale = 2 ** (Math.max(exponent - 1, 0) + minExponent - mantissa);
  return (exponent === 0 ? fraction : fraction + (1 << mantissa)) * scale;
}

function table(size: number, magnitude: (bits: number) => number): Float32Array {
  const half = size / 2;
  return Float32Array.from({ length: size }, (_, bits) => (bits < half ? magnitude(bits) : -magnitude(bits - half)));
}

let f16Values: Float32Array | undefined;
let bf16Values: Float32Array | undefined;
let f8Values: Float32Array | undefined;

/** What each of the 65,536 halves stands for. Built when first used. */
export function f16Table(): Float32Array {
  f16Values ??= table(0x10000, (bits) => {
    if (bits < 0x7c00) return fromBits(bits, 10, -14);
    return bits === 0x7c00 ? Number.POSITIVE_INFINITY : Number.NaN;
  });
  return f16Values;
}

/** What each of the 65,536 bfloat16 stands for. */
export function bf16Table(): Float32Array {
  bf16Values ??= new Float32Array(Uint32Array.from({ length: 0x10000 }, (_, bits) => bits << 16).buffer);
  return bf16Values;
}

/** What each of the 256 e4m3fn stands for. */
export function f8Table(): Float32Array {
  f8Values ??= table(0x100, (bits) => (bits < 0x7f ? fromBits(bits, 3, -6) : Number.NaN));
  return f8Values;
}

/** The float32 value of a half's bits. */
export const fromF16 = (bits: number): number => f16Table()[bits]!;
/** The float32 value of a bfloat16's bits. */
export const fromBF16 = (bits: number): number => bf16Table()[bits]!;
