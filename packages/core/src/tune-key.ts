import type { CheckedAttention } from "./check-attention.js";

/** What a kernel's speed depends on: types, sizes and features, not contents. */
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
    batch,
    heads,
    kvHeads,
    dim,
    valueDim,
    maxQueries,
    maxKeys,
    packedQ,
    looseKeys,
    bhsd,
    desc.causal === true,
    desc.window?.join(":") ?? "",
    (desc.softcap ?? 0) > 0,
    features,
  ].join(" ");
}
