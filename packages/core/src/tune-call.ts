/** The verb `tune`: the usable variants on one problem, timed. */

import { explainCall, supportsCall } from "./answers.js";
import { attentionCall } from "./attention-call.js";
import { checkAttention } from "./check-attention.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { isTensor } from "./tensor-brand.js";
import { shapeKey } from "./tune-key.js";

/** One variant that was timed. */
export interface TunedVariant {
  readonly kernel: string;
  /** Forced number of splits; 0 = the variant's own choice. */
  readonly numSplits: number;
  /** Fastest of its runs: by the device's clock where it has one, else from call to result. */
  readonly milliseconds: number;
  /** What runs if nothing was ever tuned. */
  readonly isDefault: boolean;
}

/** Splits worth trying beside a variant's own choice. */
const splits = [0, 2, 4, 8, 16, 32];
const RUNS = 5;
/** No more runs of a variant that has taken this long. */
const BUDGET_MS = 500;
/** Calls between two marks take about this long together. */
const BATCH_MS = 0.5;
/** A variant this much slower than the best won't win by another number of splits. */
const HOPELESS = 4;

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
  const byDefault = defaultKernel(core, options);
  let best = Number.POSITIVE_INFINITY;
  for (const { name, usable } of core.kernels()) {
    if (!usable || (forced !== undefined && forced !== name)) continue;
    let own = 0;
    for (const numSplits of forcedSplits === undefined ? splits : [forcedSplits]) {
      if (own > HOPELESS * best) break;
      const call = { ...options, kernel: name, numSplits };
      const support = supportsCall(core, call);
      if (!support.supported) {
        if (numSplits === 0) reasons.push(`${name}: ${support.reason}`);
        continue;
      }
      const milliseconds = await fastest(core, call, checked.signal);
      if (numSplits === 0) own = milliseconds;
      best = Math.min(best, milliseconds);
      table.push({ kernel: name, numSplits, milliseconds, isDefault: name === byDefault && numSplits === 0 });
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
    const { kernel, numSplits, milliseconds } = table[0]!;
    core.tuned.set(key, { kernel, numSplits });
    core.store.save(key, { kernel, numSplits }, milliseconds);
  }
  return table;
}

/** The back end's own choice: numSplits 0 is what it takes anyway, and given keeps what was tuned out of it. */
function defaultKernel(core: EngineCore, options: object): string | undefined {
  const plain = { ...options, numSplits: 0 };
  return supportsCall(core, plain).supported ? explainCall(core, plain).kernel : undefined;
}

async function fastest(core: EngineCore, call: object, signal: AbortSignal | undefined): Promise<number> {
  // One result for all runs: allocating it would be timed, too. The first run warms up.
  const given = (call as { out?: unknown }).out;
  const begins = performance.now();
  const first = (await attentionCall(core, call)) as { readonly out: unknown; readonly lse?: unknown };
  await core.context.synchronize();
  const took = performance.now() - begins;
  (first.lse as { dispose?: () => void } | undefined)?.dispose?.();
  const onDevice = isTensor(first.out);
  const again = { ...call, returnLse: undefined, ...(onDevice && { out: first.out }) };
  try {
    if (took > BUDGET_MS) return took;
    let least = Number.POSITIVE_INFINITY;
    for (let run = 0; run < RUNS; run++) {
      signal?.throwIfAborted();
      least = Math.min(least, await timed(core, again, Math.min(least, took)));
      if (performance.now() - begins > BUDGET_MS) break;
    }
    return least;
  } finally {
    if (onDevice && first.out !== given) (first.out as unknown as { dispose(): void }).dispose();
  }
}

/** Milliseconds of a call that takes about `guess`. */
async function timed(core: EngineCore, call: object, guess: number): Promise<number> {
  const { context } = core;
  if (!context.mark || !context.elapsed) {
    const start = performance.now();
    await attentionCall(core, call);
    await context.synchronize();
    return performance.now() - start;
  }
  const count = Math.min(50, Math.max(1, Math.ceil(BATCH_MS / guess)));
  // One more before, so that the device doesn't wait for the host where it is timed.
  await attentionCall(core, call);
  const start = context.mark();
  for (let i = 0; i < count; i++) await attentionCall(core, call);
  const stop = context.mark();
  try {
    return (await context.elapsed(start, stop)) / count;
  } finally {
    start.dispose();
    stop.dispose();
  }
}
