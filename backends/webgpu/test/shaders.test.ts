/** What WGSL and Dawn want of every shader, told from its text. */
import type { CacheDType, FloatDType } from "@tessera/core/web";
import { describe, expect, it } from "vitest";
import { advanceShader, appendFields, appendShader } from "../src/wgsl/append.js";
import { type AttentionShader, attentionShader, workgroupBytes } from "../src/wgsl/attention.js";
import { packParams } from "../src/wgsl/fields.js";
import { joinShader } from "../src/wgsl/join.js";
import { type MatrixShader, matrixBytes, matrixShader } from "../src/wgsl/matrix.js";
import { mergeEndShader, mergePartShader } from "../src/wgsl/merge.js";
import { moveShader } from "../src/wgsl/move.js";
import { type StreamShader, streamBytes, streamShader } from "../src/wgsl/stream.js";

const floats: FloatDType[] = ["f32", "f16", "bf16"];
const caches: CacheDType[] = [...floats, "f8_e4m3", "q8_0", "q4_0"];
const tile = { ty: 8, tx: 8, depth: 8 };
const common: AttentionShader = {
  q: "f32",
  k: "f32",
  v: "f32",
  out: "f32",
  tile,
  columns: 2,
  packed: false,
  partial: false,
  subgroups: false,
  plain: true,
  even: false,
  rolled: false,
};

const stream: StreamShader = {
  q: "f16",
  k: "f16",
  v: "f16",
  out: "f16",
  rows: 4,
  lanes: 16,
  whole: true,
  keys: 4,
  threads: 128,
  paged: false,
  alike: true,
  partial: false,
  subgroups: false,
};

const matrix: MatrixShader = {
  shape: { m: 16, n: 16, k: 16, size: 32 },
  subgroups: 4,
  out: "f16",
  dim: 128,
  valueDim: 128,
  partial: false,
  plain: true,
  paged: false,
};

const shaders = new Map<string, string>([
  ...caches.map((k) => [`attention ${k}`, attentionShader({ ...common, k, v: k, q: "f16", out: "f16" })] as const),
  ...caches.map((k) => [`attention even ${k}`, attentionShader({ ...common, k, v: k, even: true })] as const),
  ["attention rich", attentionShader({ ...common, plain: false })],
  ["attention partial", attentionShader({ ...common, partial: true, packed: true, rolled: true })],
  ["attention subgroups", attentionShader({ ...common, subgroups: true })],
  ...caches.map((k) => [`stream ${k}`, streamShader({ ...stream, k, v: k })] as const),
  ...[1, 2, 4, 8].map((rows) => [`stream ${rows} rows`, streamShader({ ...stream, rows, alike: false })] as const),
  ["stream paged", streamShader({ ...stream, paged: true, whole: false, partial: true, subgroups: true })],
  ["matrix", matrixShader(matrix)],
  ["matrix rich", matrixShader({ ...matrix, plain: false, paged: true, partial: true })],
  ...floats.flatMap((type) => [
    [`join ${type}`, joinShader(type)] as const,
    [`merge part ${type}`, mergePartShader(type)] as const,
    [`merge end ${type}`, mergeEndShader(type)] as const,
    ...caches.map((cache) => [`append ${type} ${cache}`, appendShader(type, cache)] as const),
  ]),
  ["advance", advanceShader],
  ["move", moveShader],
]);

describe.each([...shaders])("%s", (_, code) => {
  it("initialises every variable: Dawn doesn't clear those of loops", () => {
    expect(code.split("\n").filter((line) => /^\s+var \w+(: [^=]+)?;/.test(line))).toEqual([]);
  });

  it("takes the larger of weights by their bits: max of floats may drop NaN, as no adapter of CI's does", () => {
    expect(code).not.toMatch(/(max|min|clamp)\(\s*exp2/);
  });

  it("has no more storage bindings than every device", () => {
    expect([...code.matchAll(/var<storage/g)].length).toBeLessThanOrEqual(8);
  });

  it("makes and tells NaN and infinity by their bits", () => {
    expect(code).not.toMatch(/0x1p\+?128|1\.0 \/ 0\.0|isNan|isInf/);
    expect(code).not.toMatch(/\b(\w+(?:\[\w+\])?) != \1(?![\w[])/); // x != x is folded to false
  });
});

it("streams and matrices fit into the workgroup memory that they are chosen for", () => {
  for (const rows of [1, 2, 4, 8])
    for (const lanes of [8, 16, 32])
      expect(streamBytes({ rows, lanes, keys: rows > 4 ? 2 : 4, threads: 128 })).toBeLessThanOrEqual(16384);
  expect(matrixBytes(matrix.shape, 4, 128, 128)).toBeLessThanOrEqual(32768);
});

it("tiles fit into the workgroup memory of every device", () => {
  expect(workgroupBytes(tile)).toBeLessThanOrEqual(16384);
  expect(workgroupBytes({ ty: 4, tx: 16, depth: 4 })).toBeLessThanOrEqual(16384);
});

it("parameters are packed in the order of the struct, whole numbers modulo 2^32", () => {
  const values = Object.fromEntries(Object.keys(appendFields).map((name, i) => [name, i])) as never;
  const words = new Uint32Array(
    packParams(appendFields, { ...(values as object), batch: -4, rows: 2 ** 32 + 7 } as never),
  );
  expect([...words.subarray(0, 4)]).toEqual([2 ** 32 - 4, 7, 2, 3]);
  const f = new Float32Array(packParams({ x: "f32", y: "u32" }, { x: 0.5, y: 1 }));
  expect(f[0]).toBe(0.5);
});
