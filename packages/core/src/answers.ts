/** `supports` and `explain`: the path of `attention`, up to the point where it would start. */
import { applyTuning, checkKernelName } from "./attention-call.js";
import type { AttentionDesc, Explanation, Support, TensorDesc } from "./backend.js";
import { type CheckedAttention, checkAttention, swapHeads } from "./check-attention.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { shapeOnly } from "./staging.js";

/** A call's descriptor without results, and without host arrays that the device can't read. */
export function askable(core: EngineCore, checked: CheckedAttention): AttentionDesc {
  checkKernelName(core, checked.desc.kernel);
  applyTuning(core, checked);
  const { desc, outDType, outShape, lseShape, bhsd } = checked;
  const out = shapeOnly(outDType, outShape);
  desc.out = checked.out ?? (bhsd ? swapHeads(out) : out);
  if (checked.returnLse) desc.lse = shapeOnly("f32", lseShape);
  return core.hostMemory ? desc : withoutHostArrays(desc);
}

function withoutHostArrays(desc: AttentionDesc): AttentionDesc {
  const members: [string, unknown][] = Object.entries(desc).map(([name, value]) => {
    const onHost = typeof value === "object" && value !== null && "strides" in value && ArrayBuffer.isView(value.data);
    if (!onHost) return [name, value];
    const tensor = value as TensorDesc;
    return [name, { ...shapeOnly(tensor.dtype, tensor.shape), strides: tensor.strides }];
  });
  return Object.fromEntries(members) as unknown as AttentionDesc;
}

/** `engine.supports`. */
export function supportsCall(core: EngineCore, options: unknown): Support {
  core.alive();
  try {
    return core.context.supports(askable(core, checkAttention(options, core)));
  } catch (error) {
    if (!(error instanceof TesseraError)) throw error;
    const { code, message } = error;
    if (code !== "invalid-argument" && code !== "unsupported") throw error;
    return { supported: false, code, reason: message };
  }
}

/** `engine.explain`. */
export function explainCall(core: EngineCore, options: unknown): Explanation {
  core.alive();
  return core.context.explain(askable(core, checkAttention(options, core)));
}
