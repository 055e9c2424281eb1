import { expect, it } from "vitest";
import { decode, decodeF8, decodeF16, encode, encodeBf16, encodeF8, encodeF16, rounded } from "../src/codec.js";

it("every fp16 value survives", () => {
  for (let bits = 0; bits < 65536; bits++) {
    const value = decodeF16(bits);
    if (Number.isNaN(value)) expect(encodeF16(value) & 0x7fff).toBeGreaterThan(0x7c00);
    else if (encodeF16(value) !== bits) throw new Error(`${bits.toString(16)} became ${encodeF16(value).toString(16)}`);
  }
});

it("fp16 rounds to nearest even", () => {
  expect(encodeF16(1 + 2 ** -11)).toBe(0x3c00);
  expect(encodeF16(1 + 3 * 2 ** -11)).toBe(0x3c02);
  expect(encodeF16(65519.99)).toBe(0x7bff);
  expect(encodeF16(65520)).toBe(0x7c00);
  expect(encodeF16(2 ** -25)).toBe(0);
  expect(encodeF16(1.5 * 2 ** -24)).toBe(2);
  expect(encodeF16(-(2 ** -24))).toBe(0x8001);
});

it("bf16 rounds to nearest even", () => {
  expect(encodeBf16(1 + 2 ** -8)).toBe(0x3f80);
  expect(encodeBf16(1 + 3 * 2 ** -8)).toBe(0x3f82);
  expect(encodeBf16(3.4e38)).toBe(0x7f80);
  expect(rounded(-0.1, "bf16")).toBe(-0.10009765625);
});

it("every e4m3 value survives, and stores saturate", () => {
  for (let bits = 0; bits < 256; bits++) if ((bits & 127) !== 127) expect(encodeF8(decodeF8(bits))).toBe(bits);
  expect(decodeF8(0x7e)).toBe(448);
  expect(encodeF8(449)).toBe(0x7e);
  expect(encodeF8(-1e9)).toBe(0xfe);
  expect(encodeF8(Number.POSITIVE_INFINITY)).toBe(0x7e);
  expect(decodeF8(1)).toBe(2 ** -9);
  expect(encodeF8(1 + 1 / 16)).toBe(encodeF8(1));
});

it("q8_0 and q4_0 are ggml's blocks", () => {
  const values = Float32Array.from({ length: 32 }, (_, i) => i - 16);
  const q8 = encode(values, "q8_0");
  expect(q8.length).toBe(34);
  expect(decodeF16((q8[0] as number) | ((q8[1] as number) << 8))).toBeCloseTo(16 / 127, 4);
  expect(q8[2]).toBe(256 - 127);
  const q4 = encode(values, "q4_0");
  expect(q4.length).toBe(18);
  expect(decode(q4, "q4_0")[0]).toBe(-16); // d is 2: -8 is exact
  expect((q4[2] as number) & 15).toBe(0); // low nibbles are values 0 ... 15
  expect((q4[2] as number) >> 4).toBe(8); // high nibbles are values 16 ... 31
});
