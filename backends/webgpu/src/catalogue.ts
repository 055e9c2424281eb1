/** The kernels of this back end, and which of them takes a problem. One selector answers supports, explain and attention. */
import {
  type AttentionDesc,
  type CacheDType,
  dtypes,
  type FloatDType,
  type KernelInfo,
  type Support,
} from "@tessera/core/web";
import type { Capabilities } from "./capabilities.js";
import type { Operand } from "./operand.js";
import type { Problem } from "./plan.js";
import { type Tile, tileK, tileQ, workgroupBytes } from "./wgsl/attention.js";
import { type StreamShader, streamAlignment, streamBytes } from "./wgsl/stream.js";

export interface Variant {
  readonly name: string;
  readonly family: "prefill" | "decode";
  /** None: keys stream past (wgsl/stream.ts). */
  readonly tile: Tile | undefined;
  readonly packed: boolean;
  readonly subgroups: boolean;
  readonly summary: string;
}

const prefill: Tile = { ty: 8, tx: 8, depth: 8 };
const decode: Tile = { ty: 4, tx: 16, depth: 4 };

/** Rows that a stream may have in all. */
const streamRows = 16;

const variants: readonly Variant[] = [
  {
    name: "prefill-subgroups",
    family: "prefill",
    tile: prefill,
    packed: false,
    subgroups: true,
    summary: "tiles of 32 queries by 32 keys, row maxima by shuffles; subgroups of any size from 4 to 128",
  },
  {
    name: "prefill-portable",
    family: "prefill",
    tile: prefill,
    packed: false,
    subgroups: false,
    summary: "tiles of 32 queries by 32 keys, nothing but core WGSL",
  },
  {
    name: "decode-stream",
    family: "decode",
    tile: undefined,
    packed: true,
    subgroups: true,
    summary: "up to 16 rows of a KV head, keys from memory into registers, 16 bytes a load; scores by shuffles",
  },
  {
    name: "decode-stream-portable",
    family: "decode",
    tile: undefined,
    packed: true,
    subgroups: false,
    summary: "the same, scores through workgroup memory: nothing but core WGSL",
  },
  {
    name: "decode-subgroups",
    family: "decode",
    tile: decode,
    packed: true,
    subgroups: true,
    summary: "16 rows of a KV head's query heads by 64 keys, keys divided among workgroups, row maxima by shuffles",
  },
  {
    name: "decode-portable",
    family: "decode",
    tile: decode,
    packed: true,
    subgroups: false,
    summary: "16 rows of a KV head's query heads by 64 keys, keys divided among workgroups, nothing but core WGSL",
  },
];

export const maxHeadDim = 256;
export const maxSplits = 128;

const floats: readonly FloatDType[] = ["f32", "f16", "bf16"];
const caches: readonly CacheDType[] = ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"];

/** How a workgroup divides a problem. */
export interface Geometry {
  /** Rows and keys at a time. */
  readonly q: number;
  readonly k: number;
  readonly threads: number;
  readonly bytes: number;
}

export type Stream = Pick<StreamShader, "rows" | "lanes" | "whole" | "keys" | "threads">;

const powerOfTwo = (n: number) => 2 ** Math.ceil(Math.log2(n));

export function streamOf(p: Pick<Problem, "queries" | "group" | "dim" | "valueDim">, can: Capabilities): Stream {
  const rows = Math.min(8, powerOfTwo(Math.max(1, p.queries * p.group)));
  const lanes = powerOfTwo(Math.ceil(Math.max(p.dim, p.valueDim) / 8));
  const whole = p.dim === 8 * lanes && p.valueDim === p.dim;
  return { rows, lanes, whole, keys: rows > 4 ? can.streamKeys / 2 : can.streamKeys, threads: can.streamThreads };
}

/** The largest of each extent, for a device's limits. */
const worst = { queries: 1, group: 8, dim: 256, valueDim: 256 };

export function geometryOf({ tile }: Variant, p: Parameters<typeof streamOf>[0], can: Capabilities): Geometry {
  if (tile) return { q: tileQ(tile), k: tileK(tile), threads: tile.tx * tile.ty, bytes: workgroupBytes(tile) };
  const stream = streamOf(p, can);
  const { rows, lanes, keys, threads } = stream;
  return { q: rows, k: (keys * threads) / lanes, threads, bytes: streamBytes(stream) };
}

/** Why this device can't run a variant; empty if it can. */
function whyNot(variant: Variant, can: Capabilities): string {
  const { bytes, threads } = geometryOf(variant, worst, can);
  if (bytes > can.workgroupBytes)
    return `it needs ${bytes} bytes of workgroup memory, the device has ${can.workgroupBytes}`;
  if (threads > can.workgroupThreads)
    return `it needs workgroups of ${threads}, the device has ${can.workgroupThreads}`;
  return variant.subgroups ? can.noSubgroups : "";
}

export function kernelsOf(can: Capabilities): readonly KernelInfo[] {
  return variants.map((variant) => {
    const reason = whyNot(variant, can);
    return {
      name: variant.name,
      family: variant.family,
      usable: reason === "",
      reason,
      alignment: variant.tile ? 1 : 16,
      qDTypes: floats,
      kvDTypes: caches,
      maxHeadDim,
      headDimStep: variant.tile ? 1 : 8,
      byNameOnly: false,
      roundsQ: false,
      flushes: true,
      arch: variant.subgroups ? "WebGPU with subgroups" : "any WebGPU",
      summary: variant.summary,
    };
  });
}

export interface Choice {
  readonly variant: Variant;
  readonly passedOver: readonly { readonly kernel: string; readonly reason: string }[];
}

export type Chosen = Choice | (Support & { readonly supported: false });

const no = (reason: string, code: "unsupported" | "invalid-argument" = "unsupported"): Chosen => ({
  supported: false,
  code,
  reason,
});

/** Shapes alone decide, never contents. */
export function choose(desc: AttentionDesc, shape: Problem, can: Capabilities): Chosen {
  const dims = [desc.q.shape.at(-1)!, desc.v.shape.at(-1)!];
  const dim = Math.max(...dims);
  if (dim > maxHeadDim) return no(`a head dim is ${dim}; allowed for webgpu: 1 to ${maxHeadDim}`);
  const splits = desc.numSplits ?? 0;
  if (splits > maxSplits) return no(`numSplits is ${splits}; allowed for webgpu: 0 to ${maxSplits}`);

  const few = shape.queries * shape.group <= streamRows && shape.keys >= 4 * shape.queries;
  const better = few || splits > 1 ? "decode" : "prefill";
  const passedOver: { kernel: string; reason: string }[] = [];
  const ranked = [...variants].sort((a, b) => Number(b.family === better) - Number(a.family === better));
  if (desc.kernel !== undefined && !ranked.some(({ name }) => name === desc.kernel)) {
    const names = variants.map(({ name }) => JSON.stringify(name)).join(", ");
    return no(`kernel is ${JSON.stringify(desc.kernel)}; allowed for webgpu: ${names}`, "invalid-argument");
  }
  let chosen: Variant | undefined;
  for (const variant of ranked) {
    const reason = whyNot(variant, can) || unfit(variant, splits) || unfitStream(variant, desc, shape);
    if (desc.kernel !== undefined) {
      if (variant.name !== desc.kernel)
        passedOver.push({ kernel: variant.name, reason: `${desc.kernel} is asked for` });
      else if (reason !== "") return no(`${variant.name}: ${reason}`);
      else chosen = variant;
    } else if (reason !== "") passedOver.push({ kernel: variant.name, reason });
    else if (chosen) {
      const why =
        variant.family === chosen.family
          ? "slower where there are subgroups"
          : `slower than ${chosen.name} for this shape`;
      passedOver.push({ kernel: variant.name, reason: why });
    } else chosen = variant;
  }
  if (!chosen) return no(passedOver.map(({ kernel, reason }) => `${kernel}: ${reason}`).join("; "));
  return { variant: chosen, passedOver };
}

const unfit = (variant: Variant, splits: number) =>
  variant.family === "prefill" && splits > 1
    ? `numSplits is ${splits}; allowed for it: 0 or 1, it doesn't divide keys`
    : "";

/** Why keys can't stream past; empty if they can. */
function unfitStream({ tile }: Variant, desc: AttentionDesc, p: Problem): string {
  if (tile) return "";
  const rows = p.queries * p.group;
  if (rows > streamRows)
    return `${rows} rows (queries x query heads of a KV head); allowed for it: up to ${streamRows}`;
  for (const name of ["softcap", "bias", "mask", "alibiSlopes"] as const) if (desc[name]) return `it has no ${name}`;
  if (p.dim % 8 !== 0 || p.valueDim % 8 !== 0)
    return `head dims are ${p.dim} and ${p.valueDim}; allowed for it: multiples of 8`;
  for (const name of ["k", "v"] as const) {
    const step = streamAlignment[p[name].dtype as CacheDType];
    const odd = unaligned(p[name], step);
    if (odd !== "") return `${name}'s ${odd}; allowed for it: multiples of ${step} bytes`;
  }
  return "";
}

function unaligned({ dtype, byteOffset, batch, row, head, shape }: Operand, step: number): string {
  const { bytes, block } = dtypes[dtype];
  if (byteOffset % step !== 0) return `first byte is ${byteOffset}`;
  if (block > 1) return "";
  const [rows, heads] = shape.slice(-3);
  const strides = {
    batch: shape.length > 3 && shape[0]! > 1 ? batch : 0,
    row: rows! > 1 ? row : 0,
    head: heads! > 1 ? head : 0,
  };
  for (const [name, stride] of Object.entries(strides))
    if ((stride * bytes) % step !== 0) return `${name} stride is ${stride * bytes} bytes`;
  return "";
}

/** Keys of one split, at most, where keys stream past: sums of more would lose digits. */
const longestStream = 2048;

/** How many parts the keys of a problem are divided into. */
export function splitsFor(variant: Variant, asked: number, p: Problem, tasks: number, can: Capabilities): number {
  const most = Math.max(1, Math.ceil(p.keys / geometryOf(variant, p, can).k));
  if (asked > 0) return Math.min(asked, most);
  if (variant.family === "prefill") return 1;
  const wanted = variant.tile ? can.wantedWorkgroups : can.streamWorkgroups;
  const few = variant.tile ? 1 : Math.ceil(p.keys / longestStream);
  return Math.max(1, Math.min(maxSplits, Math.max(few, Math.ceil(wanted / Math.max(1, tasks))), Math.ceil(most / 2)));
}
