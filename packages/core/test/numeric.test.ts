import { describe, expect, it } from "vitest";
import { decode, encode } from "../src/codec.js";
import { TesseraError } from "../src/error.js";
import { bf16Table, f8Table, f16Table, toBF16, toF8, toF16 } from "../src/numeric.js";

/** Every neighbouring pair of finite values: itself, the tie (to even), and both sides of it. */
function exhaust(table: Float32Array, last: number, to: (x: number) => number, sign: number) {
  let wrong = 0;
  for (let bits = 0; bits < last; bits++) {
    const low = table[bits]!;
    const high = table[bits + 1]!;
    const tie = (low + high) / 2;
    const even = bits % 2 === 0 ? bits : bits + 1;
    const near = (high - low) / 1024;
    for (const [value, expected] of [
      [low, bits],
      [high, bits + 1],
      [tie, even],
      [tie - near, bits],
      [tie + near, bits + 1],
    ] as const) {
      if (to(value) !== expected || to(-value) !== (expected | sign)) wrong++;
    }
  }
  return wrong;
}

describe("16-bit and 8-bit floats", () => {
  it("round to nearest even between every two neighbours", () => {
    expect(exhaust(f16Table(), 0x7bff, toF16, 0x8000)).toBe(0);
    expect(exhaust(bf16Table(), 0x7f7f, toBF16, 0x8000)).toBe(0);
    expect(exhaust(f8Table(), 0x7e, toF8, 0x80)).toBe(0);
  });

  it("come back from every bit pattern", () => {
    for (const [table, to] of [
      [f16Table(), toF16],
      [bf16Table(), toBF16],
      [f8Table(), toF8],
    ] as const) {
      for (let bits = 0; bits < table.length; bits++) {
        const value = table[bits]!;
        if (Number.isNaN(value)) expect(table[to(value)]).toBeNaN();
        else if (to(value) !== bits) expect.fail(`${bits} -> ${value} -> ${to(value)}`);
      }
    }
  });

  it("end where their formats end", () => {
    expect(f16Table()[0x7bff]).toBe(65504);
    expect(f16Table()[1]).toBe(2 ** -24);
    expect([65519.99, 65520, Number.POSITIVE_INFINITY, -1e30].map(toF16)).toEqual([0x7bff, 0x7c00, 0x7c00, 0xfc00]);
    expect([2 ** -25, 2 ** -25 * 1.001, 2 ** -26].map(toF16)).toEqual([0, 1, 0]);
    expect([3.3895313892515355e38, 2 ** 128 - 2 ** 119, Number.NEGATIVE_INFINITY].map(toBF16)).toEqual([
      0x7f7f, 0x7f80, 0xff80,
    ]);
    expect([2 ** -134, 2 ** -133, 2 ** -134 * 1.001].map(toBF16)).toEqual([0, 1, 1]);
    expect(f8Table()[0x7e]).toBe(448);
    expect([449, 1e9, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].map(toF8)).toEqual([0x7e, 0x7e, 0x7e, 0xfe]);
    expect(toF8(Number.NaN)).toBe(0x7f);
    expect(Object.is(f16Table()[0x8000], -0)).toBe(true);
  });
});

describe("block formats", () => {
  it("q8_0 holds the largest value at 127 and rounds halves away from zero", () => {
    const values = new Float32Array(32);
    values[0] = -127;
    values[1] = 2.5;
    values[2] = -2.5;
    const bytes = encode(values, "q8_0");
    expect([...bytes.subarray(0, 5)]).toEqual([0x00, 0x3c, 0x81, 3, 0xfd]);
    expect(bytes.length).toBe(34);
    expect([...decode(bytes, "q8_0").subarray(0, 4)]).toEqual([-127, 3, -3, 0]);
  });

  it("q4_0 puts the largest magnitude at nibble 0 and keeps its sign", () => {
    const values = new Float32Array(32);
    values[0] = 8; // d = -1
    values[16] = -7;
    values[1] = 2;
    const bytes = encode(values, "q4_0");
    expect(bytes.length).toBe(18);
    expect([bytes[0], bytes[1]]).toEqual([0x00, 0xbc]);
    expect(bytes[2]).toBe(0 | (15 << 4));
    const back = decode(bytes, "q4_0");
    expect([back[0], back[16], back[1]! + 0, back[2]! + 0]).toEqual([8, -7, 2, 0]);
  });

  it("all zeros stay zeros", () => {
    for (const dtype of ["q8_0", "q4_0"] as const) {
      expect([...decode(encode(new Float32Array(64), dtype), dtype)].every((x) => x === 0)).toBe(true);
    }
  });

  it("refuses half a block", () => {
    expect(() => encode([1, 2, 3], "q8_0")).toThrow(/blocks of 32 values; got 3/);
    expect(() => decode(new Uint8Array(17), "q4_0")).toThrow(/blocks of 18 bytes; got 17/);
  });
});

describe("what can't be converted", () => {
  it.each([
    ["a type that there isn't", () => encode([1, 2], "f64" as never), /dtype is "f64"; allowed: "f32", "f16"/],
    ["an inherited name", () => encode([1, 2], "constructor" as never), /dtype is "constructor"/],
    ["null", () => encode(null as never, "f16"), /values is null; allowed: an array of numbers/],
    ["a number", () => encode(3 as never, "f16"), /values is 3/],
    ["strings", () => encode([1, "a"] as never, "f16"), /values\[1\] is "a"; allowed: numbers/],
    ["big integers", () => encode(BigInt64Array.of(1n) as never, "f32"), /values\[0\] is 1; allowed: numbers/],
    ["decode: a type that there isn't", () => decode(new Float32Array(1) as never, "f64" as never), /dtype is "f64"/],
    ["decode: null", () => decode(null as never, "f16"), /data is null/],
    [
      "decode: another array",
      () => decode(new Float32Array(1) as never, "f16"),
      /data is Float32Array; allowed for f16: Uint16Array/,
    ],
  ])("%s", (_, call, message) => {
    expect(call).toThrow(TesseraError);
    expect(call).toThrow(message);
  });
});
