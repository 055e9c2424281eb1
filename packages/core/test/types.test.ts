import { describe, expect, expectTypeOf, it } from "vitest";
import type { AttentionOptions, BackendChoice, CacheDType, Engine, HostKv, HostTensor, KvCache } from "../src/index.js";
import { attention, openEngine, type Tensor } from "../src/index.js";

/** Compiled, never run: `tsc` is the test. */
export async function compiles(
  engine: Engine,
  cache: KvCache,
  f32: Tensor<"f32">,
  f16: Tensor<"f16">,
  i32: Tensor<"i32">,
  bool: Tensor<"bool">,
) {
  const host = { data: new Float32Array(1), shape: [1, 1, 1, 1] };
  const half = { data: new Uint16Array(1), dtype: "bf16" as const, shape: [1, 1, 1, 1] };
  const bytes = { data: new Uint8Array(34), dtype: "q8_0" as const, shape: [1, 1, 1, 32] };
  const t = { q: f16, k: f16, v: f16 };

  // Results follow q, and lse is there when it was asked for.
  expectTypeOf((await engine.attention(t)).out).toEqualTypeOf<Tensor<"f16">>();
  expectTypeOf((await engine.attention({ ...t, returnLse: true })).lse).toEqualTypeOf<Tensor<"f32">>();
  expectTypeOf((await engine.attention(t)).lse).toEqualTypeOf<Tensor<"f32"> | undefined>();
  expectTypeOf(await (await engine.attention(t)).out.read()).toEqualTypeOf<Uint16Array>();
  const result = await engine.attention({ q: host, k: half, v: bytes, returnLse: true });
  expectTypeOf(result.out.data).toExtend<Float32Array>();
  expectTypeOf(result.out.dtype).toEqualTypeOf<"f32">();
  expectTypeOf(result.lse.data).toEqualTypeOf<Float32Array>();
  expectTypeOf((await engine.attention({ q: half, k: half, v: half })).out.dtype).toEqualTypeOf<"bf16">();
  expectTypeOf((await engine.attention({ ...t, out: f32 })).out).toEqualTypeOf<Tensor<"f32">>();
  expectTypeOf((await attention({ q: host, k: host, v: host })).out.data).toExtend<Float32Array>();

  // Forms of sequences.
  engine.attention({ ...t, seqLensQ: [1], seqLensK: Int32Array.of(1) });
  engine.attention({ ...t, cuSeqLensQ: [0, 1], cuSeqLensK: i32 });
  engine.attention({ ...t, cuSeqLensQ: [0, 1], seqLensK: [1] });
  engine.attention({ ...t, pageTable: [[0]], seqLensK: [1] });
  engine.attention({ ...t, pageTable: i32, seqLensK: [1], cuSeqLensQ: [0, 1] });
  engine.attention({ ...t, mask: bool, bias: f32, window: [1, -1], queryOffset: [0] });
  // @ts-expect-error pages don't say where a sequence ends
  engine.attention({ ...t, pageTable: [[0]] });
  // @ts-expect-error packed and padded
  engine.attention({ ...t, cuSeqLensQ: [0, 1], seqLensQ: [1] });
  // @ts-expect-error packed and padded keys
  engine.attention({ ...t, cuSeqLensK: [0, 1], seqLensK: [1] });
  // @ts-expect-error paged and packed keys
  engine.attention({ ...t, pageTable: [[0]], seqLensK: [1], cuSeqLensK: [0, 1] });

  // @ts-expect-error one of them
  engine.attention({ ...t, queryOffset: [0], align: "top-left" });
  engine.attention({ ...t, queryOffset: [0], align: undefined });
  // @ts-expect-error no such word
  engine.attention({ ...t, align: "left" });
  // @ts-expect-error two sides
  engine.attention({ ...t, window: [1] });
  // @ts-expect-error unknown option
  engine.attention({ ...t, softCap: 1 });
  // @ts-expect-error v is missing
  engine.attention({ q: f16, k: f16 });
  // @ts-expect-error integers are no queries
  engine.attention({ ...t, q: i32 });
  // @ts-expect-error booleans are no bias
  engine.attention({ ...t, bias: bool });
  // @ts-expect-error floats are no mask
  engine.attention({ ...t, mask: f32 });
  // @ts-expect-error floats are no lengths
  engine.attention({ ...t, seqLensK: f32 });
  // @ts-expect-error no shape
  engine.attention({ ...t, q: new Float32Array(1) });
  // @ts-expect-error a Uint16Array may hold either
  engine.attention({ q: { data: new Uint16Array(1), shape: [1] }, k: half, v: half });
  // @ts-expect-error cache types are for k and v
  engine.attention({ q: bytes, k: bytes, v: bytes });
  // @ts-expect-error an out in a cache's type
  engine.attention({ ...t, out: bytes });

  // Scales go with f8_e4m3, where the types tell.
  const f8 = { ...bytes, dtype: "f8_e4m3" as const };
  const f8Tensor = engine.tensor(new Uint8Array(1), { shape: [1], dtype: "f8_e4m3" });
  const stored = f8 as HostKv;
  engine.attention({ q: f16, k: f8Tensor, v: f8, kScale: [1], vScale: Float32Array.of(1), returnLse: true });
  engine.attention({ q: host, k: stored, v: bytes, kScale: [1], vScale: undefined });
  engine.explain({ q: f16, k: f8Tensor as Tensor<CacheDType>, v: f16, kScale: f32 });
  attention({ q: host, k: f8, v: host, kScale: [1] });
  engine.supports({ q: host, k: f8, v: f8, vScale: [1] } as AttentionOptions);
  // @ts-expect-error k is f16
  engine.attention({ ...t, kScale: [1] });
  // @ts-expect-error v is q8_0
  engine.attention({ q: host, k: f8, v: bytes, kScale: [1], vScale: [1] });
  // @ts-expect-error k is f32
  engine.supports({ q: host, k: host, v: f8, kScale: [1] });
  // @ts-expect-error v is f16
  engine.explain({ ...t, vScale: [1] });
  // @ts-expect-error v is f16
  engine.tune({ ...t, vScale: [1] });
  // @ts-expect-error k is bf16
  attention({ q: host, k: half, v: half, kScale: [1] });
  // @ts-expect-error one-shot takes host arrays
  attention(t);

  // Tensors.
  expectTypeOf(engine.tensor(new Float32Array(1), { shape: [1] })).toEqualTypeOf<Tensor<"f32">>();
  expectTypeOf(engine.tensor(new Uint16Array(1), { shape: [1], dtype: "bf16" })).toEqualTypeOf<Tensor<"bf16">>();
  expectTypeOf(engine.tensor(new Uint8Array(1), { shape: [1], dtype: "bool" }).slice(0, 0)).toEqualTypeOf<
    Tensor<"bool">
  >();
  // @ts-expect-error which half?
  engine.tensor(new Uint16Array(1), { shape: [1] });
  // @ts-expect-error not what the array holds
  engine.tensor(new Float32Array(1), { shape: [1], dtype: "f16" });

  // Caches.
  engine.kvCache({ batch: 1, kvHeads: 1, headDim: 32, capacity: 1, dtype: { k: "q8_0", v: "q4_0" }, pageSize: 16 });
  const sizes = { batch: 1, kvHeads: 1, headDim: 32, capacity: 1 };
  const mayBe = undefined as number | undefined;
  engine.kvCache({ ...sizes, dtype: "f16" as CacheDType, pageSize: mayBe });
  engine.kvCache({ ...sizes, dtype: "f16", pageSize: 16, pages: mayBe });
  // @ts-expect-error pages of what size?
  engine.kvCache({ ...sizes, dtype: "f16", pages: 4 });
  engine.kvCache({ ...sizes, dtype: "f8_e4m3", scales: { k: [1], v: Float32Array.of(1) }, pageSize: 16, pages: 4 });
  engine.kvCache({ ...sizes, dtype: { k: "f8_e4m3", v: "f8_e4m3" }, scales: { k: [1], v: [1] } });
  engine.kvCache({ ...sizes, dtype: { k: "f8_e4m3", v: "f16" }, scales: { k: [1] } });
  engine.kvCache({ ...sizes, dtype: { k: "q8_0", v: "f8_e4m3" }, scales: { v: [1] } });
  // @ts-expect-error scales go with f8_e4m3
  engine.kvCache({ ...sizes, dtype: "f16", scales: { k: [1] } });
  // @ts-expect-error v is f16
  engine.kvCache({ ...sizes, dtype: { k: "f8_e4m3", v: "f16" }, scales: { v: [1] } });
  // @ts-expect-error k is q8_0
  engine.kvCache({ ...sizes, dtype: { k: "q8_0", v: "f8_e4m3" }, scales: { k: [1], v: [1] } });
  // @ts-expect-error a cache keeps its scales on the host
  engine.kvCache({ ...sizes, dtype: "f8_e4m3", scales: { k: f32 } });
  // @ts-expect-error no such storage
  engine.kvCache({ batch: 1, kvHeads: 1, headDim: 32, capacity: 1, dtype: "f64" });
  expectTypeOf((await cache.append({ k: f16, v: f16, q: f16, rope: { pairing: "half" } })).q).toEqualTypeOf<
    Tensor<"f16">
  >();
  expectTypeOf((await cache.append({ k: f16, v: f16 })).q).toEqualTypeOf<undefined>();
  expectTypeOf(cache.lengths).toEqualTypeOf<Int32Array>();
  cache.append({ k: f16, v: f16, newLens: [1], cuSeqLens: undefined, layout: "bhsd" });
  cache.append({ k: f16, v: f16, cuSeqLens: [0, 1] as number[] | undefined });
  expectTypeOf(
    (await cache.append({ k: f16, v: f16, q: host, rope: { pairing: "half" }, cuSeqLens: [0, 1] })).q.dtype,
  ).toEqualTypeOf<"f32">();
  // @ts-expect-error one of them
  cache.append({ k: f16, v: f16, newLens: [1], cuSeqLens: [0, 1] });
  // @ts-expect-error q is there to be rotated
  cache.append({ k: f16, v: f16, q: f16 });
  engine.decode({ q: f16, cache, k: f16, v: f16, cuSeqLensQ: [0, 1] });
  engine.decode({ q: f16, cache, k: f16, v: f16, newLens: [1] });
  // @ts-expect-error packed rows are all real
  engine.decode({ q: f16, cache, k: f16, v: f16, newLens: [1], cuSeqLensQ: [0, 1] });
  // @ts-expect-error a pairing is required
  cache.append({ k: f16, v: f16, rope: { theta: 10000 } });
  engine.decode({ q: f16, cache, k: f16, v: f16, rope: { pairing: "interleaved", theta: 5e5 }, causal: true });
  expectTypeOf((await engine.decode({ q: f16, cache, returnLse: true })).lse).toEqualTypeOf<Tensor<"f32">>();
  // @ts-expect-error nothing to rotate
  engine.decode({ q: f16, cache, rope: { pairing: "half" } });
  // @ts-expect-error k without v
  engine.decode({ q: f16, cache, k: f16 });
  // @ts-expect-error the cache knows its lengths
  engine.decode({ q: f16, cache, seqLensK: [1] });
  // @ts-expect-error no cache
  engine.decode({ q: f16 });

  // Openings.
  openEngine({ backend: "cuda", device: 1, threads: 2 });
  openEngine({ library: "/lib/mine.so", device: 0, threads: 2 });
  openEngine({ library: "" as string | undefined, backend: undefined });
  openEngine({ backend: "cpu" as BackendChoice | undefined, library: undefined });
  // @ts-expect-error one of them
  openEngine({ backend: "cpu", library: "/lib/mine.so" });
  // @ts-expect-error unknown name
  openEngine({ backend: "metal" });
  const merged = await engine.merge([{ out: f16, lse: f32 }]);
  expectTypeOf(merged.out).toEqualTypeOf<Tensor<"f16">>();
  const support = engine.supports(t);
  if (!support.supported) expectTypeOf(support.code).toEqualTypeOf<"unsupported" | "invalid-argument">();
  const dynamic = host as HostTensor;
  await engine.attention({ q: dynamic, k: dynamic, v: dynamic });
}

describe("types", () => {
  it("are checked by tsc (the typecheck lane)", () => {
    expect(compiles).toBeTypeOf("function");
  });
});
