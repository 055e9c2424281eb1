/**
 * ggml's block formats, 32 values each. Quantising follows ggml's reference quantisers step by step in float32, so the
 * bytes are the ones that llama.cpp would write.
 */
import { f16Table, toF16 } from "./numeric.js";

/** Values of a block. */
export const BLOCK = 32;

const fround = Math.fround;

/** C's roundf: halves go away from zero. */
const roundAway = (value: number) => (value < 0 ? -Math.floor(-value + 0.5) : Math.floor(value + 0.5));

/** Writes 34 bytes: fp16 scale d, 32 int8 q; value = d * q. */
export function encodeQ8Block(values: ArrayLike<number>, offset: number, out: Uint8Array, at: number): void {
  let largest = 0;
  for (let i = 0; i < BLOCK; i++) largest = Math.max(largest, Math.abs(fround(values[offset + i]!)));
  const d = fround(largest / 127);
  const inverse = d === 0 ? 0 : fround(1 / d);
  const half = toF16(d);
  out[at] = half & 0xff;
  out[at + 1] = half >>> 8;
  for (let i = 0; i < BLOCK; i++) out[at + 2 + i] = roundAway(fround(fround(values[offset + i]!) * inverse));
}

/** Writes 18 bytes: fp16 scale d, 16 bytes of nibbles (low ones are values 0..15); value = d * (nibble - 8). */
export function encodeQ4Block(values: ArrayLike<number>, offset: number, out: Uint8Array, at: number): void {
  let largest = 0;
  let signed = 0;
  for (let i = 0; i < BLOCK; i++) {
    const value = fround(values[offset + i]!);
    if (Math.abs(value) > largest) {
      largest = Math.abs(value);
      signed = value;
    }
  }
  const d = fround(signed / -8);
  const inverse = d === 0 ? 0 : fround(1 / d);
  const half = toF16(d);
  out[at] = half & 0xff;
  out[at + 1] = half >>> 8;
  const nibble = (value: number) => Math.min(15, Math.trunc(fround(fround(fround(value) * inverse) + 8.5)));
  for (let i = 0; i < 16; i++) {
    out[at + 2 + i] = nibble(values[offset + i]!) | (nibble(values[offset + 16 + i]!) << 4);
  }
}

/** Reads a q8_0 block. */
export function decodeQ8Block(bytes: Uint8Array, at: number, out: Float64Array | Float32Array, offset: number): void {
  const d = f16Table()[bytes[at]! | (bytes[at + 1]! << 8)]!;
  for (let i = 0; i < BLOCK; i++) out[offset + i] = d * ((bytes[at + 2 + i]! << 24) >> 24);
}

/** Reads a q4_0 block. */
export function decodeQ4Block(bytes: Uint8Array, at: number, out: Float64Array | Float32Array, offset: number): void {
  const d = f16Table()[bytes[at]! | (bytes[at + 1]! << 8)]!;
  for (let i = 0; i < 16; i++) {
    const pair = bytes[at + 2 + i]!;
    out[offset + i] = d * ((pair & 15) - 8);
    out[offset + 16 + i] = d * ((pair >>> 4) - 8);
  }
}
