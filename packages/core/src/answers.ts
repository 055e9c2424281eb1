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

/** `engine.explain`. */
export function explainCall(core: EngineCore, options: unknown): Explanation {
  core.alive();
  return core.context.explain(askable(core, checkAttention(options, core)));
}
