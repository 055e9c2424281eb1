import { afterAll, describe, expect, it } from "vitest";
import { TesseraError } from "../src/error.js";
import { oracle } from "../src/oracle.js";
import { random, reference, stored, tensor } from "./support.js";

const next = random(7);
const q = tensor([2, 4, 6, 8], next);
const k = tensor([2, 9, 2, 8], next);
const v = tensor([2, 9, 2, 5], next);
const packed = {
  q: tensor([10, 6, 8], next),
  k: tensor([12, 2, 8], next),
  v: tensor([12, 2, 5], next),
  cuSeqLensQ: [0, 4, 10],
  cuSeqLensK: [0, 12, 12],
};
const paged = {
  q,
  k: tensor([5, 4, 2, 8], next),
  v: tensor([5, 4, 2, 5], next),
  pageTable: [
    [0, 1, 2],
    [3, 4],
  ],
  seqLensK: [12, 7],
};
const f32 = (shape: number[]) => ({ data: new Float32Array(shape.reduce((n, x) => n * x, 1)), shape });

const engine = await reference();
afterAll(() => engine.dispose());
const foreign = await reference();
const gone = engine.tensor(new Float32Array(4), { shape: [1, 1, 1, 4] });
gone.dispose();

const shared = new Float32Array(1200);
const fused = engine.tensor(new Float32Array(2 * 4 * 24 * 8), { shape: [2, 4, 24, 8] });

// Options that are wrong, and what the message has to say about it.
const wrong: [string, unknown, RegExp][] = [
  ["no object", 3, /attention takes an object of options; got 3/],
  ["null", null, /takes an object of options; got null/],
  ["unknown option", { q, k, v, sofcap: 2 }, /no option "sofcap"\. Did you mean softcap\?/],
  [
    "PyTorch's name",
    { q, k, v, is_causal: true },
    /no option "is_causal"\. Did you mean causal: true with align: "top-left"\?/,
  ],
  ["snake case", { q, k, v, seq_lens_k: [1, 2] }, /Did you mean seqLensK\?/],
  ["inherited name", { q, k, v, constructor: 1 }, /no option "constructor"/],
  ["q missing", { k, v }, /q is missing; required/],
  ["dtype null", { q: { ...q, dtype: null }, k, v }, /q\.dtype is null; allowed for a Float32Array: "f32"/],
  [
    "mask's dtype null",
    { q, k, v, mask: { data: new Uint8Array(36), shape: [4, 9], dtype: null } },
    /mask\.dtype is null/,
  ],
  ["softcap that float32 holds as 0", { q, k, v, softcap: 1e-46 }, /softcap is 1e-46; .*1\.401298464324817e-45/],
  [
    "out with rows that overlap",
    { q, k, v, out: { data: new Float32Array(1000), shape: [2, 4, 6, 5], strides: [120, 5, 1, 1] } },
    /out has strides \[120, 5, 1, 1\]: its elements overlap/,
  ],
  [
    "out in the memory of q",
    {
      q: { data: shared.subarray(100, 484), shape: q.shape },
      k,
      v,
      out: { data: shared.subarray(0, 240), shape: [2, 4, 6, 5] },
    },
    /out and q share memory; allowed: an out apart from every input/,
  ],
  [
    "out in the memory of a bias",
    {
      q,
      k,
      v,
      bias: { data: shared.subarray(0, 36), shape: [4, 9] },
      out: { data: shared.subarray(35, 275), shape: [2, 4, 6, 5] },
    },
    /out and bias share memory/,
  ],
  ["bare array", { q: new Float32Array(8), k, v }, /q is Float32Array with no shape; pass \{ data, shape \}/],
  [
    "half without dtype",
    { q: { data: new Uint16Array(384), shape: q.shape }, k, v },
    /q\.dtype is missing: a Uint16Array may hold "f16", "bf16"/,
  ],
  [
    "bytes without dtype",
    { q, k: { data: new Uint8Array(288), shape: k.shape }, v },
    /k\.dtype is missing: a Uint8Array may hold/,
  ],
  ["contradicting dtype", { q: { ...q, dtype: "f16" }, k, v }, /q\.dtype is "f16"; allowed for a Float32Array: "f32"/],
  [
    "wrong dtype",
    { q: { data: new Int32Array(384), shape: q.shape }, k, v },
    /q has dtype "i32"; allowed: "f32", "f16", "bf16"/,
  ],
  [
    "cache type for q",
    { q: { data: new Uint8Array(384), dtype: "f8_e4m3", shape: q.shape }, k, v },
    /q has dtype "f8_e4m3"/,
  ],
  ["float64", { q: { data: new Float64Array(384), shape: q.shape }, k, v }, /q\.data is Float64Array; allowed/],
  [
    "unknown member",
    { q: { ...q, stride: [1] }, k, v },
    /q has a member "stride"; allowed: data, shape, dtype, strides/,
  ],
  [
    "rank",
    { q: tensor([4, 6, 8], next), k, v },
    /q has shape \[4, 6, 8\]; allowed here: \[B, Sq, Hq, D\]; one sequence alone is a batch of 1, or packed/,
  ],
  ["rank packed", { ...packed, q }, /q has shape \[2, 4, 6, 8\]; allowed here: \[T, Hq, D\]/],
  [
    "negative extent",
    { q: { data: q.data, shape: [2, -4, 6, 8] }, k, v },
    /q\.shape is \[2, -4, 6, 8\]; allowed: whole numbers/,
  ],
  ["fractional extent", { q: { data: q.data, shape: [2, 4.5, 6, 8] }, k, v }, /q\.shape is \[2, 4\.5, 6, 8\]/],
  [
    "10^18 shape",
    { q: { data: q.data, shape: [1e6, 1e6, 1e6, 8] }, k, v },
    /q\.shape is .*: more than 2\^53 - 1 elements/,
  ],
  [
    "zero hides overflow",
    { q: { data: q.data, shape: [0, 2 ** 40, 2 ** 40, 8] }, k, v },
    /more than 2\^53 - 1 elements/,
  ],
  [
    "data too short",
    { q: { data: new Float32Array(383), shape: q.shape }, k, v },
    /q is too short: .* needs 1536 bytes of f32, it has 1532/,
  ],
  [
    "stride reaches too far",
    { q: { ...q, strides: [192, 48, 8.5, 1] }, k, v },
    /q\.strides is \[192, 48, 8\.5, 1\]; allowed: whole numbers >= 0/,
  ],
  [
    "last stride",
    { q: { data: new Float32Array(800), shape: q.shape, strides: [384, 96, 16, 2] }, k, v },
    /last dimension must be contiguous \(stride 1\), it has 2/,
  ],
  ["negative stride", { q: { ...q, strides: [-192, 48, 8, 1] }, k, v }, /allowed: whole numbers >= 0/],
  ["stride beyond data", { q: { ...q, strides: [200, 48, 8, 1] }, k, v }, /q is too short/],
  ["stride count", { q: { ...q, strides: [48, 8, 1] }, k, v }, /4 strides, in elements/],
  ["huge stride", { q: { ...q, strides: [2 ** 52, 2 ** 52, 8, 1] }, k, v }, /reaches beyond 2\^53 - 1|too short/],
  [
    "block stride",
    {
      q: tensor([1, 1, 1, 32], next),
      k: { ...stored([1, 2, 1, 32], next, "q8_0"), strides: [64, 40, 32, 1] },
      v: stored([1, 2, 1, 32], next, "q8_0"),
    },
    /k\.strides is .*multiples of 32/,
  ],
  [
    "half a block",
    {
      q: tensor([1, 1, 1, 16], next),
      k: { data: new Uint8Array(34), dtype: "q8_0", shape: [1, 1, 1, 16] },
      v: f32([1, 1, 1, 4]),
    },
    /a last dimension that is a multiple of 32/,
  ],
  [
    "head dims differ",
    { q, k: tensor([2, 9, 2, 16], next), v },
    /k has shape .* dimension 3 is 16; allowed: 8, the head dim of q/,
  ],
  ["head ratio", { q: tensor([2, 4, 5, 8], next), k, v }, /q has 5 heads and k 2; allowed: a multiple/],
  ["no kv heads", { q, k: f32([2, 9, 0, 8]), v: f32([2, 9, 0, 5]) }, /0 heads; allowed: >= 1/],
  ["v rows", { q, k, v: tensor([2, 8, 2, 5], next) }, /v has shape .* dimension 1 is 8; allowed: 9, the rows of k/],
  ["v heads", { q, k, v: tensor([2, 9, 1, 5], next) }, /dimension 2 is 1; allowed: 2, the heads of k/],
  [
    "batch",
    { q, k: tensor([1, 9, 2, 8], next), v: tensor([1, 9, 2, 5], next) },
    /dimension 0 is 1; allowed: 2, the batch of q/,
  ],
  ["head dim 0", { q: f32([2, 4, 6, 0]), k: f32([2, 9, 2, 0]), v }, /the head dim is 0; allowed: >= 1/],
  ["scale NaN", { q, k, v, scale: Number.NaN }, /scale is NaN; allowed: any finite float32/],
  ["scale beyond float32", { q, k, v, scale: 1e300 }, /scale is 1e\+300/],
  ["scale text", { q, k, v, scale: "1" }, /scale is "1"/],
  ["softcap negative", { q, k, v, softcap: -1 }, /softcap is -1; allowed: 0 \(off\) or a finite number > 0/],
  ["softcap NaN", { q, k, v, softcap: Number.NaN }, /softcap is NaN/],
  ["softcap infinite", { q, k, v, softcap: Number.POSITIVE_INFINITY }, /softcap is Infinity/],
  ["causal", { q, k, v, causal: 1 }, /causal is 1; allowed: true or false/],
  ["align", { q, k, v, align: "left" }, /align is "left"; allowed: "bottom-right", "top-left"/],
  ["layout", { q, k, v, layout: "bsh" }, /layout is "bsh"; allowed: "bshd", "bhsd"/],
  ["returnLse", { q, k, v, returnLse: "yes" }, /returnLse is "yes"/],
  ["signal", { q, k, v, signal: {} }, /signal is Object; allowed: an AbortSignal/],
  ["window number", { q, k, v, window: 4 }, /window is 4; allowed: \[left, right\]/],
  ["window one side", { q, k, v, window: [4] }, /window is \[4\]/],
  ["window -2", { q, k, v, window: [-2, 0] }, /window is \[-2, 0\]; allowed/],
  ["numSplits", { q, k, v, numSplits: -1 }, /numSplits is -1; allowed: whole numbers from 0/],
  ["kernel", { q, k, v, kernel: 5 }, /kernel is 5; allowed: a name that engine\.kernels\(\) lists/],
  [
    "offset and align",
    { q, k, v, queryOffset: [0, 0], align: "top-left" },
    /align is "top-left" and queryOffset is given/,
  ],
  ["offset count", { q, k, v, queryOffset: [0] }, /queryOffset has 1 values; allowed: 2/],
  ["offset fraction", { q, k, v, queryOffset: [0, 0.5] }, /queryOffset\[1\] is 0\.5; allowed: 32-bit whole numbers/],
  ["length beyond capacity", { q, k, v, seqLensK: [9, 10] }, /seqLensK\[1\] is 10; allowed: 0 to 9, the rows of k/],
  ["length negative", { q, k, v, seqLensQ: [-1, 0] }, /seqLensQ\[0\] is -1; allowed: 0 to 4/],
  ["length 2^40", { q, k, v, seqLensQ: [2 ** 40, 0] }, /seqLensQ\[0\] is 1099511627776; allowed: 32-bit/],
  ["lengths of both kinds", { ...packed, seqLensQ: [1, 2] }, /seqLensQ and cuSeqLensQ are both given/],
  ["key lengths of both kinds", { ...packed, seqLensK: [1, 2] }, /seqLensK and cuSeqLensK are both given/],
  ["starts from 1", { ...packed, cuSeqLensQ: [1, 4, 10] }, /cuSeqLensQ\[0\] is 1; allowed: 0/],
  ["starts fall", { ...packed, cuSeqLensK: [0, 13, 12] }, /cuSeqLensK\[2\] is 12, less than 13 before it/],
  ["starts end early", { ...packed, cuSeqLensQ: [0, 4, 9] }, /cuSeqLensQ ends with 9; allowed: 10/],
  ["starts count", { ...packed, cuSeqLensK: [0, 12] }, /cuSeqLensK has 2 values; allowed: 3/],
  ["no starts", { ...packed, cuSeqLensQ: [] }, /cuSeqLensQ has 0 values; allowed: B \+ 1/],
  ["pages without lengths", { ...paged, seqLensK: undefined }, /pageTable is given without seqLensK/],
  ["pages and starts", { ...paged, cuSeqLensK: [0, 1, 2] }, /seqLensK and cuSeqLensK|pageTable and cuSeqLensK/],
  [
    "page beyond",
    {
      ...paged,
      pageTable: [
        [0, 1, 5],
        [3, 4],
      ],
    },
    /pageTable\[0\]\[2\] is 5; allowed: 0 to 4/,
  ],
  [
    "pages too few",
    { ...paged, seqLensK: [13, 7] },
    /seqLensK\[0\] is 13; allowed: 0 to 12, the capacity of pageTable/,
  ],
  ["page rows", { ...paged, pageTable: [[0]] }, /pageTable has shape \[1, 1\]; allowed: \[2, pages per sequence\]/],
  [
    "bias shape",
    { q, k, v, bias: f32([2, 3, 4, 9]) },
    /bias has shape \[2, 3, 4, 9\]; allowed: \[2 or 1, 6 or 1, 4, 9\]/,
  ],
  ["bias dtype", { q, k, v, bias: { data: new Int32Array(36), shape: [4, 9] } }, /bias has dtype "i32"/],
  ["mask shape", { q, k, v, mask: { data: new Uint8Array(9), shape: [1, 9] } }, /mask has shape \[1, 9\]/],
  ["mask length", { q, k, v, mask: [true] }, /mask has 1 values; allowed without a shape: \[4, 9\] or \[2, 6, 4, 9\]/],
  ["mask values", { q, k, v, mask: Array.from({ length: 36 }, () => 1) }, /mask\[0\] is 1; allowed: true or false/],
  ["slopes", { q, k, v, alibiSlopes: [1, 2] }, /alibiSlopes has 2 values; allowed: 6, one per head/],
  ["sinks", { q, k, v, sinks: new Float32Array(5) }, /sinks has 5 values; allowed: 6/],
  ["sinks text", { q, k, v, sinks: ["a", 1, 1, 1, 1, 1] }, /sinks\[0\] is "a"/],
  ["scale of no f8", { q, k, v, kScale: [1, 1] }, /kScale is given, but k is f32; allowed: with f8_e4m3 only/],
  ["out shape", { q, k, v, out: f32([2, 4, 6, 8]) }, /out has shape \[2, 4, 6, 8\]; allowed: \[2, 4, 6, 5\]/],
  [
    "out expanded",
    { q, k, v, out: { data: new Float32Array(240), shape: [2, 4, 6, 5], strides: [0, 30, 5, 1] } },
    /out has strides .*: its elements overlap/,
  ],
  [
    "out dtype",
    { q, k, v, out: { data: new Uint8Array(240), dtype: "f8_e4m3", shape: [2, 4, 6, 5] } },
    /out has dtype "f8_e4m3"/,
  ],
];

const onlyEngine: [string, unknown, RegExp][] = [
  [
    "unknown kernel",
    { q, k, v, kernel: "referense" },
    /kernel is "referense"; allowed on reference: reference\. Did you mean reference\?/,
  ],
  ["disposed tensor", { q: gone, k, v }, /q is a tensor that was disposed/],
  [
    "another engine's tensor",
    { q: foreign.tensor(new Float32Array(384), { shape: q.shape }), k, v },
    /q is a tensor of another engine/,
  ],
  [
    "out is k",
    { q: fused.slice(2, 0, 6), k: fused.slice(2, 6, 8), v: fused.slice(2, 8, 10), out: fused.slice(2, 7, 13) },
    /out and k share memory/,
  ],
  [
    "transposed last dimension",
    { q: engine.tensor(new Float32Array(384), { shape: [2, 4, 8, 6] }).transpose(2, 3), k, v },
    /q has strides .* it must be contiguous/,
  ],
];

describe("every mistake is an invalid-argument with its own message", () => {
  it.each([...wrong, ...onlyEngine])("%s", async (_, options, message) => {
    const error = await engine.attention(options as never).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(TesseraError);
    expect(error).toMatchObject({ code: "invalid-argument", message: expect.stringMatching(message) });
    // The other verbs say the same.
    expect(engine.supports(options as never)).toMatchObject({
      supported: false,
      code: "invalid-argument",
      reason: (error as Error).message,
    });
    expect(() => engine.explain(options as never)).toThrow((error as Error).message);
  });

  it.each(wrong)("the oracle too: %s", (_, options, message) => {
    const said = () => oracle(options as never);
    expect(said).toThrow(TesseraError);
    expect(said).toThrow(new RegExp(message.source.replace("attention takes", "oracle takes")));
  });

  it("the engine goes on", async () => {
    const { out } = await engine.attention({ q, k, v });
    expect(out.shape).toEqual([2, 4, 6, 5]);
  });

  it("the oracle takes host arrays only", () => {
    const t = engine.tensor(new Float32Array(384), { shape: q.shape });
    expect(() => oracle({ q: t, k, v } as never)).toThrow(/q is a tensor of an engine; this call takes host arrays/);
  });
});

describe("what is allowed is allowed", () => {
  const good: [string, unknown][] = [
    ["undefined options", { q, k, v, window: undefined, softcap: undefined, unknown: undefined }],
    ["Int32Array lengths", { q, k, v, seqLensK: Int32Array.of(0, 9) }],
    ["bias without leading dimensions", { q, k, v, bias: f32([4, 9]) }],
    ["bias with heads", { q, k, v, bias: f32([6, 4, 9]) }],
    ["mask as bytes", { q, k, v, mask: new Uint8Array(36) }],
    ["mask of all", { q, k, v, mask: new Uint8Array(2 * 6 * 4 * 9) }],
    [
      "mask with shape and booleans",
      { q, k, v, mask: { data: Array.from({ length: 36 }, () => true), shape: [4, 9] } },
    ],
    ["expanded keys", { q, k: { data: new Float32Array(8), shape: k.shape, strides: [0, 0, 0, 1] }, v }],
    [
      "strides of extents of 1",
      {
        q: { data: new Float32Array(8), shape: [1, 1, 1, 8], strides: [0, 0, 0, 1] },
        k: f32([1, 2, 1, 8]),
        v: f32([1, 2, 1, 1]),
      },
    ],
    ["tensor lengths", { q, k, v, seqLensK: engine.tensor(Int32Array.of(3, 9), { shape: [2] }) }],
    ["negative window of -1", { q, k, v, window: [-1, -1] }],
    ["huge window", { q, k, v, window: [2 ** 50, 2 ** 50] }],
    [
      "out beside q, in one array",
      {
        q: { data: shared.subarray(240, 624), shape: q.shape },
        k,
        v,
        out: { data: shared.subarray(0, 240), shape: [2, 4, 6, 5] },
      },
    ],
    [
      "out between q, k and v",
      { q: fused.slice(2, 0, 6), k: fused.slice(2, 6, 8), v: fused.slice(2, 8, 10), out: fused.slice(2, 10, 16) },
    ],
    [
      "out with heads first",
      { q, k, v, out: { data: new Float32Array(240), shape: [2, 4, 6, 5], strides: [120, 5, 20, 1] } },
    ],
    ["no rows, and an out", { q: f32([2, 0, 6, 8]), k, v, out: f32([2, 0, 6, 5]) }],
    ["packed", packed],
    ["paged", paged],
  ];
  it.each(good)("%s", async (_, options) => {
    expect(engine.supports(options as never)).toEqual({ supported: true });
    await engine.attention(options as never);
  });
});

describe("contents of tensors are the back end's to check", () => {
  it.each([
    ["seqLensK", { q, k, v }, Int32Array.of(9, 10), /seqLensK\[1\] is 10/],
    ["seqLensQ", { q, k, v }, Int32Array.of(-1, 4), /seqLensQ\[0\] is -1/],
    ["cuSeqLensQ", packed, Int32Array.of(0, 4, 11), /cuSeqLensQ ends with 11/],
    ["seqLensK", paged, Int32Array.of(12, 13), /seqLensK\[1\] is 13/],
  ])("%s", async (name, options, values, message) => {
    using lengths = engine.tensor(values, { shape: [values.length] });
    const call = { ...options, [name]: lengths } as never;
    await expect(engine.attention(call)).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringMatching(message),
    });
    expect(engine.supports(call)).toMatchObject({ supported: false, code: "invalid-argument" });
  });
});

describe("what reference can't do", () => {
  it("is asked before memory is missed", async () => {
    const huge = { data: new Float32Array(513), shape: [1, 2 ** 40, 1, 513], strides: [0, 0, 0, 1] };
    const call = { q: huge, k: f32([1, 1, 1, 513]), v: f32([1, 1, 1, 513]), returnLse: true } as never;
    const support = engine.supports(call);
    expect(support).toMatchObject({ supported: false, code: "unsupported" });
    await expect(engine.attention(call)).rejects.toMatchObject({
      code: "unsupported",
      message: (support as { reason: string }).reason,
    });
    const fits = { data: new Float32Array(8), shape: [1, 2 ** 40, 1, 8], strides: [0, 0, 0, 1] };
    await expect(engine.attention({ q: fits, k: f32([1, 1, 1, 8]), v: f32([1, 1, 1, 8]) })).rejects.toMatchObject({
      code: "out-of-memory",
    });
  });

  it.each([
    [
      "head dim 513",
      { q: f32([1, 1, 1, 513]), k: f32([1, 1, 1, 513]), v: f32([1, 1, 1, 1]) },
      /a head dim is 513; allowed for reference: 1 to 512/,
    ],
    ["splits", { q, k, v, numSplits: 2 }, /numSplits is 2; allowed for reference: 0 or 1/],
  ])("%s is unsupported, with the reason", async (_, options, message) => {
    await expect(engine.attention(options as never)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringMatching(message),
    });
    expect(engine.supports(options as never)).toMatchObject({
      supported: false,
      code: "unsupported",
      reason: expect.stringMatching(message),
    });
  });
});
