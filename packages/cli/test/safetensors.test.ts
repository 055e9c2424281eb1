import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { TesseraError } from "@tessera/core";
import { describe, expect, it } from "vitest";
import { SafetensorsFile } from "../src/safetensors/read.js";
import { writeSafetensors } from "../src/safetensors/write.js";
import { fileBytes, kjv, put, random, scratch } from "./helpers.js";

const folder = scratch();

async function errorOf(path: string): Promise<TesseraError> {
  try {
    await (await SafetensorsFile.open(path)).close();
  } catch (error) {
    expect(error).toBeInstanceOf(TesseraError);
    return error as TesseraError;
  }
  throw new Error(`${path} was accepted`);
}

const good = { dtype: "F32", shape: [2], data_offsets: [0, 8] };
const eight = new Uint8Array(8);
const entry = (change: object) => fileBytes({ q: { ...good, ...change } }, eight);

describe("hostile files", () => {
  const cases: [string, Buffer, RegExp][] = [
    ["empty", Buffer.alloc(0), /0 bytes, and the header's length alone takes 8/],
    ["seven bytes", Buffer.alloc(7), /7 bytes/],
    [
      "length past the limit",
      Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
      /18446744073709551615 is past/,
    ],
    ["length past the file", Buffer.from([100, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x7d]), /truncated: the header is 100 bytes/],
    [
      "length past the file by its own eight bytes",
      Buffer.from([4, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x7d]),
      /truncated: the header is 4 bytes, and the file ends 2 bytes into it/,
    ],
    ["length zero", Buffer.alloc(16), /header length 0/],
    ["byte order mark", fileBytes('\ufeff{"a":1}'), /byte order mark/],
    ["leading space", fileBytes(" {}"), /begins with byte 0x20/],
    ["an array", fileBytes("[]"), /begins with byte 0x5b/],
    ["not UTF-8", Buffer.concat([fileBytes("{}  ").subarray(0, 9), Buffer.from([0xc3, 0x28, 0x7d])]), /not UTF-8/],
    ["cut JSON", fileBytes('{"q":{"dtype":"F32"'), /not JSON as the format wants it: .*end/],
    ["two values", fileBytes("{}{}"), /after the end of the value/],
    ["trailing NUL", fileBytes("{}\u0000"), /after the end of the value/],
    ["trailing comma", fileBytes('{"q":1,}'), /expected a key/],
    [
      "twice the same key",
      fileBytes('{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"q":{}}', eight),
      /"q" appears twice/,
    ],
    [
      "the same key in escapes",
      fileBytes('{"q":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"\\u0071":{}}', eight),
      /appears twice/,
    ],
    ["twice the same member", fileBytes('{"q":{"dtype":"F32","dtype":"F32"}}'), /"dtype" appears twice/],
    ["deep nesting", fileBytes(`{"q":${"[".repeat(100_000)}`), /nested more than 8 deep/],
    ["half a surrogate", fileBytes('{"\\ud800":1}'), /surrogate/],
    ["two high surrogates", fileBytes('{"\\ud800\\ud800":1}'), /surrogate/],
    ["a number of a million digits", fileBytes(`{"q":{"shape":[${"9".repeat(1e6)}]}}`), /more than 39 characters/],
    ["a shape of a million", fileBytes(`{"q":{"shape":[${"1,".repeat(1e6)}1]}}`), /more than 64 elements/],
    ["__proto__", fileBytes('{"__proto__":{"dtype":"F32"}}'), /tensor "__proto__": shape is missing/],
    ["metadata not an object", fileBytes({ __metadata__: "x" }), /__metadata__ is "x"/],
    ["metadata not strings", fileBytes({ __metadata__: { a: 1 } }), /__metadata__ key "a" is 1/],
    ["tensor not an object", fileBytes({ q: 7 }), /tensor "q": is 7/],
    ["dtype missing", entry({ dtype: undefined }), /dtype is missing/],
    ["dtype unknown", entry({ dtype: "F33" }), /dtype "F33" is unknown; allowed: BOOL/],
    ["dtype of Object.prototype", entry({ dtype: "toString" }), /dtype "toString" is unknown/],
    ["shape missing", entry({ shape: undefined }), /shape is missing/],
    ["negative extent", entry({ shape: [-2] }), /shape holds -2/],
    ["fractional extent", entry({ shape: [2.5] }), /shape holds 2.5/],
    ["extent as text", entry({ shape: ["2"] }), /shape holds "2"/],
    [
      "10^18",
      fileBytes('{"q":{"dtype":"F32","shape":[1000000000000000000],"data_offsets":[0,8]}}', eight),
      /larger than any file/,
    ],
    ["product past 2^64", entry({ shape: [2 ** 33, 2 ** 33, 4] }), /larger than any file/],
    [
      "product that wraps to 8 bytes",
      fileBytes('{"q":{"dtype":"U8","shape":[4294967297,4294967288],"data_offsets":[0,8]}}', eight),
      /larger than any file|takes/,
    ],
    ["offsets missing", entry({ data_offsets: undefined }), /data_offsets must be \[begin, end\]/],
    ["three offsets", entry({ data_offsets: [0, 4, 8] }), /data_offsets must be/],
    ["offsets reversed", entry({ data_offsets: [8, 0] }), /0 <= begin <= end/],
    ["negative offset", entry({ data_offsets: [-8, 0] }), /0 <= begin <= end/],
    ["offsets past the file", entry({ data_offsets: [0, 16] }), /end past the file's 8 bytes/],
    [
      "offsets past 2^64",
      fileBytes('{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551624]}}', eight),
      /end past/,
    ],
    ["offsets not of the shape", entry({ shape: [1] }), /F32 \[1\] takes 4 bytes, and data_offsets \[0, 8\] give 8/],
    ["half a byte", entry({ dtype: "F4", shape: [3], data_offsets: [0, 1] }), /ends within a byte/],
    [
      "overlap",
      fileBytes(
        { a: { dtype: "U8", shape: [5], data_offsets: [0, 5] }, b: { dtype: "U8", shape: [4], data_offsets: [4, 8] } },
        eight,
      ),
      /"b" begins at 4, within "a", which ends at 5/,
    ],
    [
      "the same bytes twice",
      fileBytes(
        { a: { dtype: "U8", shape: [8], data_offsets: [0, 8] }, b: { dtype: "U8", shape: [8], data_offsets: [0, 8] } },
        eight,
      ),
      /within/,
    ],
    [
      "a hole",
      fileBytes(
        { a: { dtype: "U8", shape: [2], data_offsets: [0, 2] }, b: { dtype: "U8", shape: [4], data_offsets: [4, 8] } },
        eight,
      ),
      /bytes 2 to 4 of the data belong to no tensor/,
    ],
    ["a hole at the start", entry({ shape: [1], data_offsets: [4, 8] }), /bytes 0 to 4/],
    ["bytes after the end", fileBytes({ q: good }, new Uint8Array(12)), /4 bytes after the last tensor/],
  ];
  it.each(cases)("%s", async (name, bytes, message) => {
    const path = put(folder, `${name.replaceAll(/\W/g, "-")}.safetensors`, bytes);
    const error = await errorOf(path);
    expect(error.code).toBe("invalid-file");
    expect(error.message).toMatch(message);
    expect(error.message.startsWith(`${path}: `)).toBe(true);
    expect(error.message.length).toBeLessThan(path.length + 400);
  });

  it("says of a name of a megabyte only its beginning", async () => {
    const error = await errorOf(put(folder, "long-name", fileBytes({ ["n".repeat(1e6)]: 1 })));
    expect(error.message.length).toBeLessThan(500);
  });

  it("names a missing file and a directory", async () => {
    expect((await errorOf(join(folder, "none"))).message).toMatch(/none: no such file/);
    mkdirSync(join(folder, "dir"));
    expect((await errorOf(join(folder, "dir"))).message).toMatch(/dir: is a directory/);
  });

  it("keeps to the format's limit on the header without reading it", async () => {
    const path = join(folder, "big-header");
    const file = openSync(path, "w");
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(100_000_001n);
    writeSync(file, length);
    ftruncateSync(file, 200_000_000); // sparse
    closeSync(file);
    expect((await errorOf(path)).message).toMatch(/100000001 is past the format's limit of 100000000/);
  });
});

describe("random damage to a real file", () => {
  const original = readFileSync(kjv);
  const headerEnd = 8 + Number(original.readBigUInt64LE(0));
  // The data is one tensor's worth, so that a thousand copies are cheap; the header is the real one's length and shape.
  const small = fileBytes(
    { __metadata__: { text: "abc" }, q: { ...good }, k: { ...good, data_offsets: [8, 16] } },
    new Uint8Array(16),
  );

  it.each([
    ["the real header", original.subarray(0, headerEnd + 64), 300],
    ["a whole small file", small, 1000],
  ] as const)("%s: a TesseraError or a sound parse", async (_, bytes, times) => {
    const next = random(7);
    const draw = (below: number) => Math.floor(((next() + 1) / 2) * below);
    const path = join(folder, "fuzz");
    for (let n = 0; n < times; n++) {
      let damaged = Buffer.from(bytes);
      for (let flips = 1 + draw(3); flips > 0; flips--) damaged[draw(damaged.length)]! ^= 1 << draw(8);
      if (n % 5 === 0) damaged = damaged.subarray(0, draw(damaged.length));
      put(folder, "fuzz", damaged);
      try {
        const file = await SafetensorsFile.open(path);
        for (const { name, begin, end, shape } of file.header.tensors.values()) {
          expect(end).toBeLessThanOrEqual(damaged.length);
          expect(shape.every(Number.isSafeInteger)).toBe(true);
          expect((await file.read(name)).length).toBe(end - begin);
        }
        await file.close();
      } catch (error) {
        expect(error).toBeInstanceOf(TesseraError);
        expect((error as TesseraError).code).toBe("invalid-file");
      }
    }
  });
});

describe("good files", () => {
  it("reads the real one", async () => {
    const file = await SafetensorsFile.open(kjv);
    expect(file.header.metadata.get("text")).toMatch(/^ered God/);
    expect(file.get("layer5.k")).toMatchObject({ dtype: "F16", shape: [512, 2, 64] });
    expect((await file.read("layer0.lse")).length).toBe(4 * 512 * 4);
    await file.close();
  });

  it("reads tensors without elements, scalars and any name", async () => {
    const header = {
      "a\u0000\n": { dtype: "F64", shape: [], data_offsets: [0, 8] },
      empty: { dtype: "F32", shape: [0, 7], data_offsets: [8, 8] },
      F4: { dtype: "F4", shape: [2], data_offsets: [8, 9] },
      __proto__x: { dtype: "U8", shape: [1, 1], data_offsets: [9, 10] },
    };
    const file = await SafetensorsFile.open(
      put(folder, "odd", fileBytes(`${JSON.stringify(header)}   `, new Uint8Array(10))),
    );
    expect([...file.header.tensors.keys()]).toEqual(Object.keys(header));
    expect((await file.read("empty")).length).toBe(0);
    await file.close();
  });

  it("reads one tensor of a file that's larger than memory would like", async () => {
    const size = 2 ** 40;
    const header = Buffer.from(
      JSON.stringify({
        big: { dtype: "U8", shape: [size - 16], data_offsets: [0, size - 16] },
        last: { dtype: "U8", shape: [16], data_offsets: [size - 16, size] },
      }),
    );
    const path = join(folder, "sparse");
    const handle = openSync(path, "w");
    const bytes = fileBytes(header.toString());
    writeSync(handle, bytes);
    ftruncateSync(handle, bytes.length + size);
    writeSync(handle, Buffer.from([42]), 0, 1, bytes.length + size - 1);
    closeSync(handle);
    const file = await SafetensorsFile.open(path);
    expect((await file.read("last"))[15]).toBe(42);
    await file.close();
  });

  it("what we write, we and the format's rules accept; wide types come first and aligned", async () => {
    const path = join(folder, "written");
    const tensors = [
      { name: "10", dtype: "U8", shape: [3], data: Uint8Array.of(1, 2, 3) },
      { name: "2", dtype: "F32", shape: [1, 2], data: new Uint8Array(Float32Array.of(1, 2).buffer) },
      { name: 'é"\\', dtype: "F16", shape: [2], data: Uint8Array.of(4, 5, 6, 7) },
    ] as const;
    await writeSafetensors(path, tensors, { made: "here" });
    const file = await SafetensorsFile.open(path);
    expect([...file.header.tensors.keys()]).toEqual(["2", 'é"\\', "10"]);
    for (const { name, data } of tensors) expect(await file.read(name)).toEqual(data);
    expect(file.header.metadata.get("made")).toBe("here");
    expect(Number(readFileSync(path).readBigUInt64LE(0)) % 8).toBe(0);
    await file.close();
  });
});
