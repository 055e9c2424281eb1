import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decode, type OracleOptions, oracle } from "@tessera/core";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { SafetensorsFile } from "../src/safetensors/read.js";
import { f32, i32, kjv, type Plain, put, random, safetensors, scratch, tessera } from "./helpers.js";

const folder = scratch();
const next = random(3);
const out = join(folder, "out.safetensors");

async function readBack(path: string, name: string): Promise<{ shape: readonly number[]; values: Float32Array }> {
  const file = await SafetensorsFile.open(path);
  const { dtype, shape } = file.get(name)!;
  const bytes = await file.read(name);
  await file.close();
  const values =
    dtype === "F32"
      ? new Float32Array(bytes.buffer)
      : decode(new Uint16Array(bytes.buffer), dtype === "F16" ? "f16" : "bf16");
  return { shape, values };
}

function furthest(a: ArrayLike<number>, b: ArrayLike<number>): number {
  expect(a.length).toBe(b.length);
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    if (a[i] === b[i]) continue;
    const error = Math.abs(a[i]! - b[i]!);
    worst = Math.max(worst, Number.isNaN(error) ? Number.POSITIVE_INFINITY : error);
  }
  return worst;
}

/** The one JSON object of a run that must end with `code`. */
async function json(code: number, ...args: string[]) {
  const result = await tessera("attend", ...args, "--json");
  expect({ code: result.code, err: result.err }).toEqual({ code, err: code === 0 || code === 1 ? "" : result.err });
  expect(result.out.endsWith("}\n")).toBe(true);
  return JSON.parse(result.out);
}

let native = false;
beforeAll(async () => {
  const { backends } = JSON.parse((await tessera("devices", "--json")).out);
  native = backends.some((b: { backend: string; state: string }) => b.backend === "cpu" && b.state === "usable");
});

describe("where auto falls back to the reference", () => {
  afterEach(() => vi.unstubAllEnvs());

  it("says in one line why cpu was passed over", async (ctx) => {
    if (process.platform !== "linux") ctx.skip("breaks an ELF file, so only on Linux");
    expect(native).toBe(true);
    const broken = scratch();
    put(broken, "libtessera-cpu.so", Buffer.from("\x7fELF"));
    vi.stubEnv("TESSERA_BACKEND_PATH", broken);
    const path = put(
      folder,
      "small.safetensors",
      safetensors(Object.fromEntries(["q", "k", "v"].map((name) => [name, f32([2, 1, 4], next)]))),
    );
    const { code, out: text } = await tessera("attend", path);
    expect(code).toBe(0);
    expect(text).toMatch(
      /^backend {2}reference, .*\nnot cpu {2}load-failed: .*libtessera-cpu\.so.*; see tessera doctor\n/m,
    );
    const report = await json(0, path);
    expect(report.backend).toBe("reference");
    expect(report.passedOver).toEqual([
      {
        backend: "cpu",
        state: "load-failed",
        reason: expect.stringContaining("libtessera-cpu.so"),
        fix: expect.any(String),
      },
    ]);
    // What is asked for is no fallback.
    expect((await json(0, path, "--backend", "reference")).passedOver).toBeUndefined();
  });
});

describe("the real input", () => {
  it.each([0, 1, 2, 3, 4, 5])("layer %i agrees with the stored out and lse", async (layer) => {
    const report = await json(0, kjv, "--prefix", `layer${layer}.`, "--causal", "--check", "-o", out);
    expect(report).toMatchObject({
      ok: true,
      prefix: `layer${layer}.`,
      shapes: { q: [512, 4, 64], k: [512, 2, 64], v: [512, 2, 64], out: [512, 4, 64], lse: [4, 512] },
      dtypes: { q: "f16", out: "f16" },
    });
    for (const { maxError, bound } of Object.values(report.errors) as { maxError: number; bound: number }[]) {
      expect(maxError).toBeLessThanOrEqual(bound);
      expect(bound).toBeLessThan(0.02);
    }
    expect(Object.keys(report.errors)).toEqual(["out", "lse", "storedOut", "storedLse"]);
    // Not through the command's own comparison.
    const [mine, truth] = [await readBack(out, "out"), await readBack(kjv, `layer${layer}.out`)];
    expect(mine.shape).toEqual(truth.shape);
    expect(furthest(mine.values, truth.values)).toBeLessThan(4e-3);
    const [lse, lseTruth] = [await readBack(out, "lse"), await readBack(kjv, `layer${layer}.lse`)];
    expect(lse.shape).toEqual([4, 512]);
    expect(furthest(lse.values, lseTruth.values)).toBeLessThan(5e-5);
  });

  it("takes all six in one command, each under its own name", async () => {
    const prefixes = [0, 1, 2, 3, 4, 5].flatMap((n) => ["--prefix", `layer${n}.`]);
    const report = await json(0, kjv, ...prefixes, "--causal", "--check", "-o", out);
    expect(report.ok).toBe(true);
    expect(report.results.map((r: { prefix: string }) => r.prefix)).toEqual(prefixes.filter((p) => p !== "--prefix"));
    const file = await SafetensorsFile.open(out);
    expect([...file.header.tensors.keys()].sort()).toEqual(
      [0, 1, 2, 3, 4, 5].flatMap((n) => [`layer${n}.lse`, `layer${n}.out`]),
    );
    await file.close();
  });

  it("says no, with exit 1, where the stored result is another one", async () => {
    const report = await json(1, kjv, "--prefix", "layer2.", "--check");
    expect(report.ok).toBe(false);
    expect(report.errors.out.maxError).toBeLessThanOrEqual(report.errors.out.bound); // not causal: right, but not the file's
    expect(report.errors.storedOut.maxError).toBeGreaterThan(report.errors.storedOut.bound);
    const human = await tessera("attend", kjv, "--prefix", "layer2.", "--check");
    expect(human.code).toBe(1);
    expect(human.out).toMatch(/ok {4}out vs float64 oracle: error \S+, bound \S+/);
    expect(human.out).toMatch(/FAIL {2}out vs the file's own/);
  });

  it("lists the prefixes there are", async () => {
    const { code, err } = await tessera("attend", kjv);
    expect(code).toBe(2);
    expect(err).toMatch(/has no tensor "q", "k", "v"; --prefix .*: layer0\., layer1\., .*layer5\./);
  });

  it("reads well", async () => {
    const { code, out: text, err } = await tessera("attend", kjv, "--prefix", "layer0.", "--causal", "--check");
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(text).toMatch(/^file {5}.*kjv-qkv\.safetensors\nbackend {2}\w+, device 0: .*\nkernel {3}/);
    expect(text).toMatch(/input {4}q f16 \[512, 4, 64\] {2}k f16 \[512, 2, 64\]/);
    expect(text).toMatch(/time {5}[\d.]+ (ms|s)/);
  });
});

const shape = { q: [2, 5, 4, 32], k: [2, 9, 2, 32], v: [2, 9, 2, 24] } as const;
const base = { q: f32(shape.q, next), k: f32(shape.k, next), v: f32(shape.v, next) };
const host = ({ data, shape: dims }: Plain) => ({ data: data as Float32Array, shape: dims });
const inputs = { q: host(base.q), k: host(base.k), v: host(base.v) };
const floats = (...values: number[]): Plain => ({ shape: [values.length], data: Float32Array.from(values) });
const bias = f32([1, 4, 5, 9], next);
const mask: Plain = {
  dtype: "BOOL",
  shape: [2, 1, 5, 9],
  data: Uint8Array.from({ length: 90 }, (_, n) => (n * n) % 7 && 1),
};

describe("each flag and each tensor does what it says", () => {
  const cases: [string, string[], { [name: string]: Plain }, Partial<OracleOptions>][] = [
    ["nothing", [], {}, {}],
    ["--causal", ["--causal"], {}, { causal: true }],
    ["--align top-left", ["--causal", "--align", "top-left"], {}, { causal: true, align: "top-left" }],
    ["--align bottom-right", ["--causal", "--align", "bottom-right"], {}, { causal: true }],
    ["--window", ["--window", "2,1"], {}, { window: [2, 1] }],
    ["--window, one side", ["--window", "-1,1"], {}, { window: [-1, 1] }],
    ["--window with top-left", ["--window", "1,1", "--align", "top-left"], {}, { window: [1, 1], align: "top-left" }],
    ["--scale", ["--scale", "-0.5"], {}, { scale: -0.5 }],
    ["--scale 0", ["--scale", "0"], {}, { scale: 0 }],
    ["--softcap", ["--softcap", "0.3"], {}, { softcap: 0.3 }],
    ["--num-splits", ["--num-splits", "2"], {}, {}],
    ["--threads", ["--threads", "1"], {}, {}],
    ["bias", [], { bias }, { bias: host(bias) }],
    ["mask", [], { mask }, { mask: { data: mask.data as Uint8Array, shape: mask.shape } }],
    [
      "mask U8, [Sq, Sk]",
      [],
      { mask: { ...mask, dtype: "U8", shape: [5, 9], data: mask.data.subarray(0, 45) as Uint8Array } },
      { mask: (mask.data as Uint8Array).slice(0, 45) },
    ],
    ["sinks", [], { sinks: floats(1, -1, 3, 0) }, { sinks: [1, -1, 3, 0] }],
    [
      "alibi_slopes",
      ["--causal"],
      { alibi_slopes: floats(0.5, 0.25, 1, 2) },
      { causal: true, alibiSlopes: [0.5, 0.25, 1, 2] },
    ],
    [
      "lengths",
      ["--causal"],
      { seq_lens_q: i32(5, 2), seq_lens_k: i32(4, 9) },
      { causal: true, seqLensQ: [5, 2], seqLensK: [4, 9] },
    ],
  ];
  const results = new Map<string, Float32Array>();

  it.each(cases)("%s", async (name, flags, tensors, options) => {
    const path = put(folder, "flag.safetensors", safetensors({ ...base, ...tensors }));
    const truth = oracle({ ...inputs, ...options } as OracleOptions);
    // The reference never splits.
    const backends = ["cpu", "reference"].filter((one) => (one === "cpu" ? native : name !== "--num-splits"));
    for (const backend of backends) {
      const report = await json(0, path, ...flags, "--backend", backend, "--check", "-o", out);
      expect(report.backend).toBe(backend);
      expect(report.shapes).toMatchObject({ out: [2, 5, 4, 24], lse: [2, 4, 5] });
      const { values } = await readBack(out, "out");
      expect(furthest(values, truth.out)).toBeLessThan(5e-6);
      expect(furthest((await readBack(out, "lse")).values, truth.lse)).toBeLessThan(2e-5);
      results.set(name, values);
    }
    const alike = ["--align bottom-right", "--num-splits", "--threads"];
    for (const [other, values] of results) {
      if (other === name || alike.includes(name)) continue;
      if (alike.includes(other)) continue;
      expect({ other, same: furthest(values, results.get(name)!) < 1e-4 }).toEqual({ other, same: false });
    }
  });

  it("packed sequences", async () => {
    const packed = { q: f32([7, 4, 32], next), k: f32([11, 2, 32], next), v: f32([11, 2, 24], next) };
    const cu = { q: [0, 3, 3, 7], k: [0, 5, 6, 11] };
    const path = put(
      folder,
      "packed.safetensors",
      safetensors({ ...packed, cu_seqlens_q: i32(...cu.q), cu_seqlens_k: i32(...cu.k) }),
    );
    const report = await json(0, path, "--causal", "--check", "-o", out);
    expect(report.shapes).toMatchObject({ q: [7, 4, 32], out: [7, 4, 24], lse: [4, 7] });
    const truth = oracle({
      q: host(packed.q),
      k: host(packed.k),
      v: host(packed.v),
      causal: true,
      cuSeqLensQ: cu.q,
      cuSeqLensK: cu.k,
    });
    expect(furthest((await readBack(out, "out")).values, truth.out)).toBeLessThan(5e-6);
  });

  it("bf16 in, bf16 out; nothing seen; nothing there", async () => {
    const half = (dims: number[]): Plain => ({
      dtype: "BF16",
      shape: dims,
      data: Uint16Array.from({ length: dims.reduce((a, b) => a * b, 1) }, () => 0x3f80 + Math.floor(next() * 64)),
    });
    const path = put(folder, "bf16", safetensors({ q: half([6, 2, 16]), k: half([3, 2, 16]), v: half([3, 2, 8]) }));
    const report = await json(0, path, "--causal", "--check", "-o", out);
    expect(report.dtypes.out).toBe("bf16");
    expect([...(await readBack(out, "lse")).values.slice(0, 3)]).toEqual(Array(3).fill(Number.NEGATIVE_INFINITY));
    expect([...(await readBack(out, "out")).values.slice(0, 16)]).toEqual(Array(16).fill(0));

    const empty = put(
      folder,
      "empty",
      safetensors({ q: f32([0, 2, 16], next), k: f32([3, 2, 16], next), v: f32([3, 2, 8], next) }),
    );
    expect((await json(0, empty, "--check", "-o", out)).shapes).toMatchObject({ out: [0, 2, 8], lse: [2, 0] });
    const keyless = put(
      folder,
      "keyless",
      safetensors({ q: f32([3, 2, 16], next), k: f32([0, 2, 16], next), v: f32([0, 2, 8], next) }),
    );
    await json(0, keyless, "--check", "-o", out);
    expect([...(await readBack(out, "out")).values]).toEqual(Array(48).fill(0));
  });
});

describe("--kv-dtype", () => {
  const path = put(folder, "cache.safetensors", safetensors({ q: base.q, k: base.k, v: f32(shape.k, next) }));

  it.each(["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"])(
    "%s: within the bound on the cache's values",
    async (type) => {
      await tessera("attend", path, "--causal", "-o", join(folder, "plain"));
      for (const backend of native ? ["cpu", "reference"] : ["reference"]) {
        const report = await json(0, path, "--causal", "--kv-dtype", type, "--backend", backend, "--check", "-o", out);
        expect(report.kvCache.dtype).toBe(type);
        const error = furthest(
          (await readBack(out, "out")).values,
          (await readBack(join(folder, "plain"), "out")).values,
        );
        const least = { f32: 0, f16: 1e-6, bf16: 1e-5, f8_e4m3: 1e-3, q8_0: 1e-4, q4_0: 1e-2 }[type]!;
        expect(error).toBeGreaterThanOrEqual(least);
        expect(error).toBeLessThan(least === 0 ? 1e-5 : 300 * least);
      }
    },
  );

  it("with one sequence, packed sequences and lengths", async () => {
    const report = await json(0, kjv, "--prefix", "layer1.", "--causal", "--kv-dtype", "q8_0", "--check");
    expect(report).toMatchObject({ ok: true, kvCache: { dtype: "q8_0" }, shapes: { lse: [4, 512] } });
    expect(Object.keys(report.errors)).toEqual(["out", "lse"]); // the stored ones are of unrounded values

    const packed = put(
      folder,
      "packed-cache",
      safetensors({
        q: f32([7, 4, 32], next),
        k: f32([11, 2, 32], next),
        v: f32([11, 2, 32], next),
        cu_seqlens_q: i32(0, 3, 3, 7),
        cu_seqlens_k: i32(0, 5, 6, 11),
      }),
    );
    await json(0, packed, "--causal", "--kv-dtype", "f16", "--check");
    const lengths = put(
      folder,
      "lens-cache",
      safetensors({ ...base, v: f32(shape.k, next), seq_lens_q: i32(5, 2), seq_lens_k: i32(4, 9) }),
    );
    await json(0, lengths, "--causal", "--kv-dtype", "bf16", "--check");
  });

  it("says which head sizes block formats take", async () => {
    const odd = put(
      folder,
      "odd-cache",
      safetensors({ q: f32([3, 1, 24], next), k: f32([3, 1, 24], next), v: f32([3, 1, 24], next) }),
    );
    const { code, err } = await tessera("attend", odd, "--kv-dtype", "q4_0");
    expect(code).toBe(2);
    expect(err).toMatch(/24.*32/s);
  });
});

describe("what is refused", () => {
  const with_ = (change: { [name: string]: Plain | undefined }) => {
    const tensors = Object.fromEntries(Object.entries({ ...base, ...change }).filter(([, tensor]) => tensor)) as {
      [name: string]: Plain;
    };
    return put(folder, "bad.safetensors", safetensors(tensors));
  };
  it.each<[string, { [name: string]: Plain | undefined }, RegExp, string[]?]>([
    ["no k", { k: undefined }, /has no tensor "k"/],
    ["q of F64", { q: { dtype: "F64", shape: [1], data: new Uint8Array(8) } }, /"q" is F64; allowed: F32, F16, BF16/],
    ["q of one dimension", { q: f32([8], next) }, /"q" has shape \[8\]; allowed: 3 or 4 dimensions/],
    ["q batched, k not", { k: f32([9, 2, 32], next) }, /"k" has shape \[9, 2, 32\]; allowed: \[B, S, H, D\]/],
    ["heads that don't divide", { q: f32([2, 5, 5, 32], next) }, /5.*2/],
    ["head sizes that differ", { k: f32([2, 9, 2, 16], next) }, /16.*32|32.*16/],
    ["lengths past the capacity", { seq_lens_k: i32(4, 10) }, /10/],
    ["lengths of another batch", { seq_lens_k: i32(4) }, /\[?1\]?.*2|2.*1/],
    ["lengths in F32", { seq_lens_k: floats(4, 4) }, /"seq_lens_k" is F32; allowed: I32/],
    ["mask in F32", { mask: f32([1, 1, 5, 9], next) }, /"mask" is F32; allowed: BOOL, U8/],
    ["bias of another shape", { bias: f32([1, 4, 5, 8], next) }, /bias/],
    [
      "packed without its shape",
      { cu_seqlens_q: i32(0, 5) },
      /"q" has shape .* allowed with cu_seqlens_q: \[T, H, D\]/,
    ],
    ["an unknown kernel", {}, /kernel.*no-such/s, ["--kernel", "no-such"]],
    ["an unknown back end", {}, /backend.*vulcan.*cpu/s, ["--backend", "vulcan"]],
    ["a head that isn't there", {}, /--head is 4; allowed: 0 to 3/, ["--map", join(folder, "m.svg"), "--head", "4"]],
    ["an output folder that isn't there", {}, /can't write/, ["-o", join(folder, "no", "where")]],
    ["a library that isn't there", {}, /no such file/, ["--library", join(folder, "none.so")]],
    ["a library that is none", {}, /bad\.safetensors/, ["--library", join(folder, "bad.safetensors")]],
    [
      "a stored out of another shape",
      { out: f32([2, 5, 4, 32], next) },
      /"out" has shape .* give \[2, 5, 4, 24\]/,
      ["--check"],
    ],
  ])("%s", async (_, change, message, flags = []) => {
    const { code, out: text, err } = await tessera("attend", with_(change), ...flags);
    expect({ code, text, err }).toEqual({ code: 2, text: "", err: expect.stringMatching(message) });
    expect(err.startsWith("tessera: ")).toBe(true);
  });

  it("a device that isn't there is exit 3", async () => {
    const { code, err } = await tessera("attend", with_({}), "--backend", "reference", "--device", "7");
    expect({ code, err }).toEqual({ code: 3, err: expect.stringMatching(/7/) });
  });

  it("leaves an earlier output as it was", async () => {
    writeFileSync(out, "earlier");
    expect((await tessera("attend", with_({ v: undefined }), "-o", out)).code).toBe(2);
    expect(readFileSync(out, "utf8")).toBe("earlier");
    expect(readdirSync(folder).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  });
});
