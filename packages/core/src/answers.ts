/** `supports` and `explain`: the path of `attention`, up to the point where it would start. */
import { askable } from "./attention-call.js";
import type { Explanation, Support } from "./backend.js";
import { checkAttention } from "./check-attention.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";

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

/** The kernel that would run, those passed over, and who chose. */
export interface Explained extends Explanation {
  /** The choice was measured by `tune`, in this process or in one before. */
  readonly tuned: boolean;
}

/** `engine.explain`. */
export function explainCall(core: EngineCore, options: unknown): Explained {
  core.alive();
  const checked = checkAttention(options, core);
  const { kernel, numSplits } = checked.desc;
  const desc = askable(core, checked);
  const tuned = kernel === undefined && numSplits === undefined && desc.kernel !== undefined;
  return { ...core.context.explain(desc), tuned };
}
