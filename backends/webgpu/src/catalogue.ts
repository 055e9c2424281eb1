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
import { matrixBytes, matrixKeys } from "./wgsl/matrix.js";
import { type StreamShader, streamAlignment, streamBytes } from "./wgsl/stream.js";

export interface Variant {
  readonly name: string;
  readonly family: "prefill" | "decode";
  /** How it works: wgsl/attention.ts, stream.ts, matrix.ts. */
  readonly way: "tiles" | "stream" | "matrix";
  /** Of tiles: what every device has room for. */
  readonly tile: Tile;
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
    name: "prefill-matrix",
    family: "prefill",
    way: "matrix",
    tile: prefill,
    packed: false,
    subgroups: true,
    summary: "f16 on subgroup matrices, sums in f32; experimental in Dawn",
  },
  {
    name: "prefill-subgroups",
    family: "prefill",
    way: "tiles",
    tile: prefill,
    packed: false,
    subgroups: true,
    summary: "tiles of 32 queries by 32 keys, row maxima by shuffles; subgroups of any size from 4 to 128",
  },
  {
    name: "prefill-portable",
    family: "prefill",
    way: "tiles",
    tile: prefill,
    packed: false,
    subgroups: false,
    summary: "tiles of 32 queries by 32 keys, nothing but core WGSL",
  },
  {
    name: "decode-stream-portable",
    family: "decode",
    way: "stream",
    tile: decode,
    packed: true,
    subgroups: false,
    summary:
      "up to 16 rows of a KV head, keys from memory into registers, 16 bytes a load; scores through workgroup memory: nothing but core WGSL",
  },
  {
    name: "decode-stream",
    family: "decode",
    way: "stream",
    tile: decode,
    packed: true,
    subgroups: true,
    summary: "the same, scores by shuffles",
  },
  {
    name: "decode-subgroups",
    family: "decode",
    way: "tiles",
    tile: decode,
    packed: true,
    subgroups: true,
    summary: "16 rows of a KV head's query heads by 64 keys, keys divided among workgroups, row maxima by shuffles",
  },
  {
    name: "decode-portable",
    family: "decode",
    way: "tiles",
    tile: decode,
    packed: true,
    subgroups: false,
    summary: "16 rows of a KV head's query heads by 64 keys, keys divided among workgroups, nothing but core WGSL",
  },
];

export const maxHeadDim = 256;
/** Matrices of Q and of the result are in registers. */
const maxMatrixDim = 128;
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

/** Smaller teams would need more workgroup memory than every device has. */
const leastLanes = 8;

export function streamOf(p: Pick<Problem, "queries" | "group" | "dim" | "valueDim">, can: Capabilities): Stream {
  const rows = Math.min(8, powerOfTwo(Math.max(1, p.queries * p.group)));
  const lanes = Math.max(leastLanes, powerOfTwo(Math.ceil(Math.max(p.dim, p.valueDim) / 8)));
  const whole = p.dim === 8 * lanes && p.valueDim === p.dim;
  return { rows, lanes, whole, keys: rows > 4 ? can.streamKeys / 2 : can.streamKeys, threads: can.streamThreads };
}

/** A larger tile where there is room: K and V are unpacked once for more queries. */
export const tileOf = ({ family, tile }: Variant, { prefillTile }: Capabilities): Tile =>
  family === "prefill" && prefillTile ? prefillTile : tile;

export function geometryOf(variant: Variant, p: Parameters<typeof streamOf>[0], can: Capabilities): Geometry {
  const { way } = variant;
  const tile = tileOf(variant, can);
  if (way === "tiles")
    return { q: tileQ(tile), k: tileK(tile), threads: tile.tx * tile.ty, bytes: workgroupBytes(tile) };
  if (way === "matrix") {
    const { matrix = { m: 0, n: 0, k: 0, size: 0 } } = can;
    const [q, threads] = [can.matrixSubgroups * matrix.m, can.matrixSubgroups * matrix.size];
    return {
      q,
      k: matrixKeys,
      threads,
      bytes: matrix.m > 0 ? matrixBytes(matrix, can.matrixSubgroups, p.dim, p.valueDim) : 0,
    };
  }
  const stream = streamOf(p, can);
  const { rows, lanes, keys, threads } = stream;
  return { q: rows, k: (keys * threads) / lanes, threads, bytes: streamBytes(stream) };
}

/** Why this device can't run a variant; empty if it can. */
function whyNot(variant: Variant, can: Capabilities): string {
  if (variant.way === "matrix" && !can.matrix) return can.noMatrix;
  // What takes most workgroup memory: wide matrices, narrow streams.
  const dim = variant.way === "matrix" ? maxMatrixDim : 8 * leastLanes;
  const { bytes, threads } = geometryOf(variant, { queries: 1, group: 8, dim, valueDim: dim }, can);
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
      alignment: variant.way === "tiles" ? 1 : 16,
      qDTypes: variant.way === "matrix" ? ["f16"] : floats,
      kvDTypes: variant.way === "matrix" ? ["f16"] : caches,
      maxHeadDim: variant.way === "matrix" ? maxMatrixDim : maxHeadDim,
      headDimStep: variant.way === "tiles" ? 1 : 8,
      byNameOnly: false,
      roundsQ: false,
      flushes: true,
      arch:
        variant.way === "matrix"
          ? "WebGPU with subgroup matrices"
          : variant.subgroups
            ? "WebGPU with subgroups"
            : "any WebGPU",
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
    const reason = whyNot(variant, can) || unfit(variant, splits) || unfitWay(variant, desc, shape);
    if (desc.kernel !== undefined) {
      if (variant.name !== desc.kernel)
        passedOver.push({ kernel: variant.name, reason: `${desc.kernel} is asked for` });
      else if (reason !== "") return no(`${variant.name}: ${reason}`);
      else chosen = variant;
    } else if (reason !== "") passedOver.push({ kernel: variant.name, reason });
    else if (chosen) {
      passedOver.push({ kernel: variant.name, reason: `slower than ${chosen.name} for this shape` });
    } else chosen = variant;
  }
  if (!chosen) return no(passedOver.map(({ kernel, reason }) => `${kernel}: ${reason}`).join("; "));
  return { variant: chosen, passedOver };
}

const unfit = (variant: Variant, splits: number) =>
  variant.family === "prefill" && splits > 1
    ? `numSplits is ${splits}; allowed for it: 0 or 1, it doesn't divide keys`
    : "";

/** Why a problem isn't for this way of working; empty if it is. */
function unfitWay({ way }: Variant, desc: AttentionDesc, p: Problem): string {
  if (way === "tiles") return "";
  if (way === "stream") {
    const rows = p.queries * p.group;
    if (rows > streamRows)
      return `${rows} rows (queries x query heads of a KV head); allowed for it: up to ${streamRows}`;
    for (const name of ["softcap", "bias", "mask", "alibiSlopes"] as const) if (desc[name]) return `it has no ${name}`;
  } else {
    for (const name of ["q", "k", "v"] as const)
      if (p[name].dtype !== "f16") return `${name} is ${p[name].dtype}; allowed for it: f16`;
    if (Math.max(p.dim, p.valueDim) > maxMatrixDim)
      return `head dims are ${p.dim} and ${p.valueDim}; allowed for it: up to ${maxMatrixDim}`;
  }
  if (p.dim % 8 !== 0 || p.valueDim % 8 !== 0)
    return `head dims are ${p.dim} and ${p.valueDim}; allowed for it: multiples of 8`;
  for (const name of way === "stream" ? (["k", "v"] as const) : (["q", "k", "v"] as const)) {
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

/** Rows of q, k and v begin at multiples of four elements, and are as long. */
export const isEven = (p: Problem): boolean =>
  p.dim % 4 === 0 &&
  p.valueDim % 4 === 0 &&
  [p.q, p.k, p.v].every((one) => unaligned(one, 4 * dtypes[one.dtype].bytes) === "");

/** Keys of one split, at most, where keys stream past: sums of more would lose digits. */
const longestStream = 2048;

/** How many parts the keys of a problem are divided into. */
export function splitsFor(variant: Variant, asked: number, p: Problem, tasks: number, can: Capabilities): number {
  const most = Math.max(1, Math.ceil(p.keys / geometryOf(variant, p, can).k));
  if (asked > 0) return Math.min(asked, most);
  if (variant.family === "prefill") return 1;
  const wanted = variant.way === "tiles" ? can.wantedWorkgroups : can.streamWorkgroups;
  const few = variant.way === "tiles" ? 1 : Math.ceil(p.keys / longestStream);
  return Math.max(1, Math.min(maxSplits, Math.max(few, Math.ceil(wanted / Math.max(1, tasks))), Math.ceil(most / 2)));
}
