/** What each suite measures. A GPU gets the shapes of servers and of the articles, a CPU what it can do in a minute. */
import type { CacheDType, Engine, FloatDType } from "@tessera/core";
import type { AttentionCase, Case } from "./case.js";
import { features } from "./features.js";
import { overhead } from "./overhead.js";
import type { Shape } from "./result.js";

export const suiteNames = [
  "quick",
  "tutorial",
  "ladder",
  "prefill",
  "decode",
  "gqa",
  "head-dims",
  "features",
  "memory",
  "overhead",
] as const;

export type SuiteName = (typeof suiteNames)[number];

/** In a line, for `--help` and the report. */
export const suiteTexts: { readonly [K in SuiteName]: string } = {
  quick: "a little of everything, within a minute",
  tutorial: "B 4, H 32, D 128, causal f16, S 1k to 16k: the tiled-attention article's shape",
  ladder: "the article's steps, kernel by kernel, at that shape",
  prefill: "causal and full, 16 and 32 bits, S 512 to 32k",
  decode: "one new token over caches of every type, short to long, one sequence to many",
  gqa: "32 query heads over 32, 8, 4 and 1 key/value heads",
  "head-dims": "head dims 32 to 256",
  features: "the cost of each option beside plain causal attention",
  memory: "what a call takes beside inputs and outputs, and what unfused attention would",
  overhead: "host time of a call: JavaScript, C, launch",
};

const gpu = (engine: Engine) => engine.device.caps.async;

/** "4 × 8192², 32:8 heads, D 128" */
export function shapeText({ batch, heads, kvHeads, queries, keys, dim }: Shape): string {
  const size = queries === keys ? `${queries}²` : `${queries} × ${keys}`;
  return `B${batch} ${size} H${heads === kvHeads ? heads : `${heads}:${kvHeads}`} D${dim}`;
}

type Given = Partial<Shape> & {
  readonly q?: FloatDType;
  readonly kv?: CacheDType;
  readonly causal?: boolean;
  readonly suite: SuiteName;
};

function prefill(s: number, given: Given, more: Partial<AttentionCase> = {}): AttentionCase {
  const { suite, q = "f16", kv = q, causal = true, batch = 1, heads = 32, kvHeads = heads, dim = 128 } = given;
  const shape = { batch, heads, kvHeads, queries: s, keys: s, dim };
  const types = kv === q ? q : `${q}/${kv}`;
  const name = `${shapeText(shape)} ${causal ? "causal" : "full"} ${types}`;
  return { kind: "prefill", suite, name, shape, q, kv, causal, ...more };
}

function decode(batch: number, keys: number, given: Given): AttentionCase {
  const { suite, q = "f16", kv = q, heads = 32, kvHeads = 8, dim = 128 } = given;
  const shape = { batch, heads, kvHeads, queries: 1, keys, dim };
  return { kind: "decode", suite, name: `${shapeText(shape)} ${kv}`, shape, q, kv, causal: false };
}

const tutorialSizes = [1024, 2048, 4096, 8192, 16384];
const tuned = "ladder-tuned-";
const tutorialShape = { batch: 4, heads: 32, kvHeads: 32, dim: 128 };

const lists: { readonly [K in SuiteName]: (engine: Engine) => Case[] } = {
  quick: (engine) => {
    const suite = "quick";
    if (gpu(engine)) {
      return [
        ...[1024, 4096, 16384].map((s) => prefill(s, { suite, ...tutorialShape })),
        prefill(4096, { suite, ...tutorialShape, kvHeads: 8 }),
        prefill(4096, { suite, ...tutorialShape, dim: 64 }),
        ...[4096, 131072].map((keys) => decode(1, keys, { suite })),
        decode(16, 16384, { suite }),
        decode(1, 131072, { suite, kv: "q8_0" }),
        ...overhead(suite),
      ];
    }
    return [
      prefill(512, { suite, kvHeads: 8, q: "f32" }),
      prefill(1024, { suite, kvHeads: 8, q: "f32" }),
      prefill(1024, { suite, kvHeads: 8, q: "bf16" }),
      prefill(77, { suite, heads: 8, dim: 64, q: "f32", causal: false }),
      ...[4096, 16384].map((keys) => decode(1, keys, { suite })),
      decode(1, 16384, { suite, kv: "q8_0" }),
      ...overhead(suite),
    ];
  },
  tutorial: () => tutorialSizes.map((s) => prefill(s, { suite: "tutorial", ...tutorialShape })),
  // Whatever the catalogue has, in its order: rows that are steps are called ladder-…, the tiles of the last one
  // ladder-tuned-….
  ladder: (engine) => {
    const rows = engine.kernels().filter(({ family, usable }) => family === "prefill" && usable);
    const steps = rows.map(({ name }) => name).filter((name) => name.startsWith("ladder-"));
    const others = rows.map(({ name }) => name).filter((name) => !steps.includes(name));
    const tiles = steps.filter((name) => name.startsWith(tuned));
    return tutorialSizes.flatMap((s) => {
      const one = prefill(s, { suite: "ladder", ...tutorialShape });
      const { suite, shape } = one;
      const of = (kernel: string) => ({ ...one, name: `${one.name} ${kernel}`, kernel, step: kernel });
      const step = "ladder-tuned";
      // The step before is the one with the large tile.
      const candidates = [...tiles, ...steps.filter((name) => name === "ladder-reversed")];
      return [
        { kind: "unfused" as const, suite, name: `${one.name} unfused`, shape },
        ...steps.filter((name) => !tiles.includes(name)).map(of),
        ...(tiles.length > 0 ? [{ ...one, name: `${one.name} ${step}`, candidates, step }] : []),
        ...others.map(of),
      ];
    });
  },
  prefill: (engine) => {
    const suite = "prefill";
    if (gpu(engine)) {
      const given = { suite, batch: 4, kvHeads: 8 } as const;
      return [
        ...[512, 1024, 2048, 4096, 8192, 16384].map((s) => prefill(s, given)),
        ...[2048, 8192].map((s) => prefill(s, { ...given, causal: false })),
        ...[2048, 8192].map((s) => prefill(s, { ...given, q: "bf16" })),
        prefill(32768, { suite, kvHeads: 8, q: "bf16" }),
      ];
    }
    const given = { suite, kvHeads: 8 } as const;
    return [
      ...[512, 1024, 2048, 4096].map((s) => prefill(s, { ...given, q: "f32" })),
      ...[512, 1024, 2048, 4096].map((s) => prefill(s, { ...given, q: "bf16" })),
      ...[512, 1024].map((s) => prefill(s, { ...given, q: "f32", causal: false })),
    ];
  },
  decode: (engine) => {
    const suite = "decode";
    const types = ["f16", "f8_e4m3", "q8_0", "q4_0"] as const;
    const lengths = gpu(engine) ? [1024, 4096, 16384, 32768, 131072] : [1024, 4096, 16384, 32768];
    const batches = gpu(engine) ? [4096, 16384] : [2048];
    return types.flatMap((kv) => [
      ...lengths.map((keys) => decode(1, keys, { suite, kv })),
      ...batches.map((keys) => decode(gpu(engine) ? 16 : 4, keys, { suite, kv })),
    ]);
  },
  gqa: (engine) => {
    const suite = "gqa";
    const [batch, s, q] = gpu(engine) ? ([4, 4096, "f16"] as const) : ([1, 1024, "f32"] as const);
    const keys = gpu(engine) ? 32768 : 8192;
    return [32, 8, 4, 1].flatMap((kvHeads) => [
      prefill(s, { suite, batch, kvHeads, q }),
      decode(1, keys, { suite, kvHeads }),
    ]);
  },
  "head-dims": (engine) => {
    const suite = "head-dims";
    const [batch, s, q] = gpu(engine) ? ([4, 4096, "f16"] as const) : ([1, 1024, "f32"] as const);
    return [32, 64, 80, 96, 128, 160, 192, 256].map((dim) =>
      prefill(s, { suite, batch, heads: dim > 128 ? 16 : 32, dim, q }),
    );
  },
  features: (engine) => {
    const [batch, s, q] = gpu(engine) ? ([4, 4096, "f16"] as const) : ([1, 1024, "f32"] as const);
    return features.map(({ name, causal = true, window, extra }) => {
      const one = prefill(s, { suite: "features", batch, kvHeads: 8, q, causal });
      return { ...one, name: `${shapeText(one.shape)} ${name}`, feature: name, extra, window: window?.(one.shape) };
    });
  },
  memory: (engine) => {
    const sizes = gpu(engine) ? [1024, 4096, 16384, 32768] : [512, 1024, 2048];
    const q = gpu(engine) ? "f16" : "f32";
    const long = gpu(engine) ? 131072 : 16384;
    const of = (one: AttentionCase) => ({ ...one, kind: "memory" as const });
    return [
      ...sizes.map((s) => of(prefill(s, { suite: "memory", kvHeads: 8, q }))),
      of(decode(1, long, { suite: "memory", q })),
    ];
  },
  overhead: () => overhead("overhead"),
};

/** Whether a device is of the kind that a suite is about: the ladder is one of GPU kernels. */
export function suits(suite: SuiteName, engine: Engine): boolean {
  return suite !== "ladder" || engine.backend === "cuda" || engine.backend === "hip";
}

export function casesOf(suite: SuiteName, engine: Engine): Case[] {
  return lists[suite](engine);
}
