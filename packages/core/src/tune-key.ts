import type { CheckedAttention } from "./check-attention.js";

/** Sizes between two powers of two are one class: what is fastest for one of them is for the others, or nearly. */
function sizeClass(count: number): number {
  return count <= 1 ? count : 2 ** Math.ceil(Math.log2(count));
}

/** What a kernel's speed depends on: types, sizes (by class) and features, not contents. */
export function shapeKey({ desc, sizes, bhsd, outDType }: CheckedAttention): string {
  const { batch, heads, kvHeads, dim, valueDim, maxQueries, maxKeys, packedQ, looseKeys } = sizes;
  const features = (
    ["bias", "mask", "alibiSlopes", "sinks", "queryOffset", "seqLensQ", "seqLensK", "pageTable"] as const
  )
    .filter((name) => desc[name] !== undefined)
    .join(",");
  return [
    desc.q.dtype,
    desc.k.dtype,
    desc.v.dtype,
    outDType,
    sizeClass(batch),
    heads,
    kvHeads,
    dim,
    valueDim,
    sizeClass(maxQueries),
    sizeClass(maxKeys),
    packedQ,
    looseKeys,
    bhsd,
    desc.causal === true,
    desc.window?.join(":") ?? "",
    (desc.softcap ?? 0) > 0,
    features,
  ].join(" ");
}
