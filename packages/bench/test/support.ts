import { uniform } from "../src/random.js";
import type { Measurement, ResultFile } from "../src/result.js";
import { median, spread } from "../src/statistics.js";

const next = uniform(7);

/** Thirty samples around `ms`. */
export function samplesAround(ms: number): Pick<Measurement, "samples" | "median" | "spread"> {
  const samples = Array.from({ length: 30 }, () => ms * (0.99 + 0.02 * next()));
  return { samples, median: median(samples), spread: spread(samples) };
}

const common = { device: "cuda:0", clock: "device", callsPerSample: 8, sets: 4, splits: 1, tuned: false } as const;
const check = { ok: true, rows: 5, maxError: 1e-4, bound: 1e-3 };

function prefill(suite: string, s: number, tflops: number, more: Partial<Measurement> = {}): Measurement {
  const shape = { batch: 4, heads: 32, kvHeads: 8, queries: s, keys: s, dim: 128 };
  const flops = 2 * 4 * 32 * s * s * 128;
  const name = `B4 ${s}² ${more.feature ?? more.kernel ?? ""}`;
  const timing = samplesAround(flops / tflops / 1e9);
  const what = { suite, case: name, kind: "prefill", shape, dtype: { q: "f16", kv: "f16" }, causal: true } as const;
  return { ...common, ...what, kernel: "prefill-x", flops, check, ...timing, ...more };
}

function decode(keys: number, kv: string, gbs: number): Measurement {
  const shape = { batch: 1, heads: 32, kvHeads: 8, queries: 1, keys, dim: 128 };
  const bytes = keys * 8 * 128 * 2 * 2;
  const timing = samplesAround(bytes / gbs / 1e6);
  const what = { suite: "decode", case: `B1 1 × ${keys} ${kv}`, kind: "decode", shape, causal: false } as const;
  const flops = 4 * 32 * keys * 128;
  return { ...common, ...what, dtype: { q: "f16", kv }, kernel: "decode-x", flops, bytes, check, ...timing };
}

/** A result of a device that there isn't, with something of everything. */
export function imagined(name: string, backend = "cuda", speed = 1, more: Partial<ResultFile> = {}): ResultFile {
  const key = `${backend}:0`;
  const ceiling = (value: number, unit: "GB/s" | "TFLOP/s") => ({
    value,
    unit,
    method: "imagined",
    spread: 0,
    samples: [1],
  });
  const measurements: Measurement[] = [
    ...[1024, 2048, 4096, 8192, 16384].map((s, i) => prefill("prefill", s, speed * (380 + 50 * i))),
    ...["f16", "q8_0"].flatMap((kv) =>
      [4096, 16384, 131072].map((keys) => decode(keys, kv, speed * 0.02 * keys + 900)),
    ),
    ...[1024, 4096, 16384].flatMap((s) =>
      ["ladder-64x64", "ladder-256x128", "ladder-split", "prefill-mma"].map((kernel, i) =>
        prefill("ladder", s, speed * (100 + 70 * i), { kernel, step: kernel }),
      ),
    ),
    ...["causal", "full", "bias", "window"].map((feature, i) =>
      prefill("features", 4096, speed * (500 - 90 * i), { feature, causal: feature !== "full" }),
    ),
    { ...common, suite: "overhead", case: "an empty call", kind: "overhead", ...samplesAround(0.004) },
    {
      ...common,
      suite: "memory",
      case: "B1 4096²",
      kind: "memory",
      samples: [],
      median: 0,
      spread: 0,
      memory: { workspace: 1 << 20, unfused: 1 << 30 },
    },
  ];
  return {
    format: "tessera-bench",
    version: 1,
    created: "2026-11-30T10:00:00.000Z",
    seconds: 100,
    state: "complete",
    suites: ["prefill", "decode"],
    tool: { version: "0.0.0", commit: "abc", node: "v20" },
    host: { os: "Linux", kernel: "6", arch: "x64", cpu: "a CPU", cores: 8, memoryBytes: 2 ** 36 },
    devices: [
      {
        key,
        backend,
        index: 0,
        name,
        arch: backend === "cuda" ? "sm_90" : "gfx942",
        id: "0000:01:00.0",
        memoryBytes: 2 ** 37,
        computeUnits: 132,
        vendor: { driver_version: "580" },
        rotateBytes: 2 ** 29,
        ceilings: {
          copy: ceiling(4300 * speed, "GB/s"),
          read: ceiling(4400 * speed, "GB/s"),
          matmul16: ceiling(690, "TFLOP/s"),
        },
        state: "complete",
      },
    ],
    measurements: measurements.map((one) => ({ ...one, device: key })),
    skipped: [{ device: key, suite: "head-dims", case: "D 80", reason: "no kernel" }],
    ...more,
  };
}
