/** The verb `kvCache`. */
import { checkCacheOptions, type KvCacheOptions } from "./cache-options.js";
import { CacheState } from "./cache-state.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { invalid } from "./invalid.js";
import { KvCache } from "./kv-cache.js";
import { perHead } from "./operands.js";
import { createTensor, type Tensor } from "./tensor.js";
import { isTensor } from "./tensor-brand.js";

/** `engine.kvCache`. */
export function createCache(core: EngineCore, options: KvCacheOptions): KvCache {
  core.alive();
  // What is written into its memory would be written by the launches, and not before.
  if (core.recorded) throw invalid("kvCache is called inside a capture; allowed: before or after it");
  const shape = checkCacheOptions(options);
  const most = Math.max(...core.kernels().map(({ usable, maxHeadDim }) => (usable ? maxHeadDim : 0)));
  for (const name of ["headDim", "valueDim"] as const) {
    if (shape[name] <= most) continue;
    throw new TesseraError(
      "unsupported",
      `${name} is ${shape[name]}; allowed on ${core.backend}: 1 to ${most}, the largest of its kernels`,
    );
  }
  const scale = (name: "k" | "v") => {
    const value = options.scales?.[name];
    if (value === undefined) return undefined;
    if (isTensor(value)) throw invalid(`scales.${name} is a tensor; allowed: number[] or Float32Array`);
    const checked = (perHead(value, `scales.${name}`, shape.kvHeads, core).data as Float32Array).slice();
    for (const [h, one] of checked.entries()) {
      if (!(one > 0) || !Number.isFinite(one))
        throw invalid(`scales.${name}[${h}] is ${one}; allowed: finite numbers > 0`);
    }
    return checked;
  };
  const [k, v] = [scale("k"), scale("v")];
  const state = new CacheState(core, shape);
  const placed = (scale: Float32Array | undefined) =>
    scale && state.resident ? createTensor(core, scale, { shape: [scale.length] }) : scale;
  let first: ReturnType<typeof placed>;
  try {
    first = placed(k);
    return new KvCache(core, state, [first, placed(v)]);
  } catch (error) {
    state.release();
    if (isTensor(first)) (first as Tensor).dispose();
    throw error;
  }
}
