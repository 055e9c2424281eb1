/**
 * The ladder that our `ladder` suite climbs, as its article measured it on a B200: B 4, 32 heads, D 128, causal, fp16,
 * TFLOP/s counted as here.
 */
export const articleSizes = [1024, 2048, 4096, 8192, 16384] as const;

export const articleSteps: readonly { readonly step: string; readonly tflops: readonly number[] }[] = [
  { step: "64×64 tiles", tflops: [330, 441, 511, 546, 566] },
  { step: "256×128 tiles", tflops: [187, 268, 347, 415, 463] },
  { step: "+ fast exp2, division", tflops: [322, 436, 524, 585, 620] },
  { step: "+ split key loop", tflops: [373, 552, 684, 770, 813] },
  { step: "+ reversed order", tflops: [377, 560, 696, 781, 835] },
];

/** Steps by name: that of their kernel, but for the first and the last. Others are called by their name. */
const titles: { readonly [step: string]: string } = {
  "ladder-unfused": "unfused",
  "ladder-64x64": "64×64 tiles",
  "ladder-128x128": "128×128 tiles",
  "ladder-256x128": "256×128 tiles",
  "ladder-fast-math": "+ fast exp2, division",
  "ladder-split": "+ split key loop",
  "ladder-reversed": "+ reversed order",
  "ladder-tuned": "autotuned",
};

export function stepTitle(step: string): string {
  return titles[step] ?? step;
}

/** The steps of the ladder in its order, then what else was measured. */
export function inOrder(steps: Iterable<string>): string[] {
  const known = Object.values(titles);
  const rank = (step: string) => (known.includes(step) ? known.indexOf(step) : known.length);
  return [...new Set(steps)].sort((a, b) => rank(a) - rank(b));
}
