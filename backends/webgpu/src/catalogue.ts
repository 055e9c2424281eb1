/** The kernels of this back end, and which of them takes a problem. One selector answers supports, explain and attention. */
import type { AttentionDesc, CacheDType, FloatDType, KernelInfo, Support } from "@tessera/core/web";
import type { Capabilities } from "./capabilities.js";
import { type Tile, tileK, tileQ, workgroupBytes } from "./wgsl/attention.js";

export interface Variant {
  readonly name: string;
  readonly family: "prefill" | "decode";
  readonly tile: Tile;
  readonly packed: boolean;
  readonly subgroups: boolean;
  readonly summary: string;
}

const prefill: Tile = { ty: 8, tx: 8, depth: 8 };
const decode: Tile = { ty: 4, tx: 16, depth: 4 };

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

/** Why this device can't run a variant; empty if it can. */
function whyNot(variant: Variant, can: Capabilities): string {
  const bytes = workgroupBytes(variant.tile);
  if (bytes > can.workgroupBytes)
    return `it needs ${bytes} bytes of workgroup memory, the device has ${can.workgroupBytes}`;
  const threads = variant.tile.tx * variant.tile.ty;
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
      alignment: 1,
      qDTypes: floats,
      kvDTypes: caches,
      maxHeadDim,
      headDimStep: 1,
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
export function choose(
  desc: AttentionDesc,
  shape: { queries: number; keys: number; group: number },
  can: Capabilities,
): Chosen {
  const dims = [desc.q.shape.at(-1)!, desc.v.shape.at(-1)!];
  const dim = Math.max(...dims);
  if (dim > maxHeadDim) return no(`a head dim is ${dim}; allowed for webgpu: 1 to ${maxHeadDim}`);
  const splits = desc.numSplits ?? 0;
  if (splits > maxSplits) return no(`numSplits is ${splits}; allowed for webgpu: 0 to ${maxSplits}`);

  const few = shape.queries * shape.group <= tileQ(decode) && shape.keys >= 4 * shape.queries;
  const better = few || splits > 1 ? "decode" : "prefill";
  const passedOver: { kernel: string; reason: string }[] = [];
  const ranked = [...variants].sort((a, b) => Number(b.family === better) - Number(a.family === better));
  if (desc.kernel !== undefined && !ranked.some(({ name }) => name === desc.kernel)) {
    const names = variants.map(({ name }) => JSON.stringify(name)).join(", ");
    return no(`kernel is ${JSON.stringify(desc.kernel)}; allowed for webgpu: ${names}`, "invalid-argument");
  }
  let chosen: Variant | undefined;
  for (const variant of ranked) {
    const reason = whyNot(variant, can) || unfit(variant, splits);
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

/** How many parts the keys of a problem are divided into. */
export function splitsFor(variant: Variant, asked: number, keys: number, tasks: number, can: Capabilities): number {
  const most = Math.max(1, Math.ceil(keys / tileK(variant.tile)));
  if (asked > 0) return Math.min(asked, most);
  if (variant.family === "prefill") return 1;
  return Math.max(1, Math.min(maxSplits, Math.ceil(can.wantedWorkgroups / Math.max(1, tasks)), Math.ceil(most / 2)));
}
