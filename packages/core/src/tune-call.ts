/** The verb `tune`: the usable variants on one problem, timed. */

import { supportsCall } from "./answers.js";
import { attentionCall } from "./attention-call.js";
import { checkAttention } from "./check-attention.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { shapeKey } from "./tune-key.js";

/** One variant that was timed. */
export interface TunedVariant {
  readonly kernel: string;
  /** Forced number of splits; 0 = the variant's own choice. */
  readonly numSplits: number;
  /** Fastest of its runs, from call to result. */
  readonly milliseconds: number;
}

/** Splits worth trying beside a variant's own choice. */
const splits = [0, 2, 4, 8, 16, 32];
const RUNS = 5;
/** No more runs of a variant that has taken this long. */
const BUDGET_MS = 500;

/**
 * `engine.tune`: fastest first.
 *
 * @throws TesseraError as `attention` does, if no variant can do it
 */
export async function tuneCall(core: EngineCore, options: object): Promise<TunedVariant[]> {
  core.alive();
  const checked = checkAttention(options, core);
  const key = shapeKey(checked);
  const { kernel: forced, numSplits: forcedSplits } = checked.desc;
  const table: TunedVariant[] = [];
  const reasons: string[] = [];
  for (const { name, usable } of core.kernels()) {
    if (!usable || (forced !== undefined && forced !== name)) continue;
    for (const numSplits of forcedSplits === undefined ? splits : [forcedSplits]) {
      const call = { ...options, kernel: name, numSplits };
      const support = supportsCall(core, call);
      if (support.supported)
        table.push({ kernel: name, numSplits, milliseconds: await fastest(core, call, checked.signal) });
      else if (numSplits === 0) reasons.push(`${name}: ${support.reason}`);
    }
  }
  if (table.length === 0) {
    // Nothing to choose from: the call itself knows best what is wrong with it.
    const support = supportsCall(core, options);
    if (!support.supported) throw new TesseraError(support.code, support.reason);
    throw new TesseraError("unsupported", `no variant of ${core.backend} can do this: ${reasons.join("; ")}`);
  }
  table.sort((a, b) => a.milliseconds - b.milliseconds);
  if (forced === undefined && forcedSplits === undefined) {
    const { kernel, numSplits } = table[0]!;
    core.tuned.set(key, { kernel, numSplits });
  }
  return table;
}

async function fastest(core: EngineCore, call: object, signal: AbortSignal | undefined): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  const begins = performance.now();
  // The first run warms up, and counts only if it is the last.
  for (let run = 0; run <= RUNS; run++) {
    signal?.throwIfAborted();
    const start = performance.now();
    const results = await attentionCall(core, call);
    await core.context.synchronize();
    const took = performance.now() - start;
    for (const result of Object.values(results)) {
      if (result !== (call as { out?: unknown }).out) (result as { dispose?: () => void } | undefined)?.dispose?.();
    }
    const late = performance.now() - begins > BUDGET_MS;
    if (run > 0 || late) least = Math.min(least, took);
    if (late) break;
  }
  return least;
}
