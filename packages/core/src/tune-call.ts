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
/** The fastest of the first round and the default run again, by turns. */
const FINALISTS = 3;
/** What is chosen by default stays chosen unless another is faster by more than clocks are uncertain. */
const MARGIN = 0.98;

/** A variant in the race. */
interface Runner {
  readonly kernel: string;
  readonly numSplits: number;
  readonly isDefault: boolean;
  readonly call: object;
  milliseconds: number;
}

/**
 * `engine.tune`: fastest first.
 *
 * @throws TesseraError as `attention` does, if no variant can do it
 */
export async function tuneCall(core: EngineCore, options: object): Promise<TunedVariant[]> {
  core.alive();
  const checked = checkAttention(options, core);
  const { signal } = checked;
  const key = shapeKey(checked);
  const { kernel: forced, numSplits: forcedSplits } = checked.desc;
  const runners: Runner[] = [];
  const reasons: string[] = [];
  const byDefault = defaultKernel(core, options);
  const results = new Results(core, options);
  try {
    let best = Number.POSITIVE_INFINITY;
    for (const { name, usable, byNameOnly } of core.kernels()) {
      if (!usable || (forced === undefined ? byNameOnly : forced !== name)) continue;
      let own = 0;
      for (const numSplits of forcedSplits === undefined ? splits : [forcedSplits]) {
        if (own > HOPELESS * best) break;
        const call = { ...options, kernel: name, numSplits };
        const support = supportsCall(core, call);
        if (!support.supported) {
          if (numSplits === 0) reasons.push(`${name}: ${support.reason}`);
          continue;
        }
        const isDefault = name === byDefault && numSplits === 0;
        const runner = { kernel: name, numSplits, isDefault, call, milliseconds: Number.POSITIVE_INFINITY };
        await firstRound(core, runner, results, signal);
        if (numSplits === 0) own = runner.milliseconds;
        best = Math.min(best, runner.milliseconds);
        runners.push(runner);
      }
    }
    if (runners.length === 0) {
      // Nothing to choose from: the call itself knows best what is wrong with it.
      const support = supportsCall(core, options);
      if (!support.supported) throw new TesseraError(support.code, support.reason);
      throw new TesseraError("unsupported", `no variant of ${core.backend} can do this: ${reasons.join("; ")}`);
    }
    await finals(core, runners, results, signal);
  } finally {
    results.dispose();
  }
  const best = runners[0]!;
  if (forced === undefined && forcedSplits === undefined) {
    const { kernel, numSplits, milliseconds } = best;
    core.tuned.set(key, { kernel, numSplits });
    core.store.save(key, { kernel, numSplits }, milliseconds);
  }
  return runners.map(({ kernel, numSplits, milliseconds, isDefault }) => ({
    kernel,
    numSplits,
    milliseconds,
    isDefault,
  }));
}

/** The back end's own choice: numSplits 0 is what it takes anyway, and given keeps what was tuned out of it. */
function defaultKernel(core: EngineCore, options: object): string | undefined {
  const plain = { ...options, numSplits: 0 };
  return supportsCall(core, plain).supported ? explainCall(core, plain).kernel : undefined;
}

/** One result for all runs, as allocating it would be timed, too. */
class Results {
  readonly #core: EngineCore;
  readonly #given: unknown;
  #out: { dispose?(): void } | undefined;

  constructor(core: EngineCore, options: object) {
    this.#core = core;
    this.#given = (options as { out?: unknown }).out;
  }

  /** The call with a result to write to; the first that is run makes it. */
  async warmUp(call: object): Promise<void> {
    const given = this.#out ? { ...call, out: this.#out } : call;
    const { out, lse } = (await attentionCall(this.#core, given)) as { out: object; lse?: { dispose?(): void } };
    await this.#core.context.synchronize();
    lse?.dispose?.();
    if (isTensor(out) && out !== this.#given) this.#out = out as object;
  }

  into(call: object): object {
    return { ...call, returnLse: undefined, ...(this.#out && { out: this.#out }) };
  }

  dispose(): void {
    if (!this.#core.disposed) this.#out?.dispose?.();
  }
}

async function firstRound(
  core: EngineCore,
  runner: Runner,
  results: Results,
  signal: AbortSignal | undefined,
): Promise<void> {
  const begins = performance.now();
  await results.warmUp(runner.call);
  const took = performance.now() - begins;
  // The first run warms up, and counts only if it is the last.
  if (took > BUDGET_MS) {
    runner.milliseconds = took;
    return;
  }
  for (let run = 0; run < RUNS; run++) {
    signal?.throwIfAborted();
    const guess = Math.min(runner.milliseconds, took);
    runner.milliseconds = Math.min(runner.milliseconds, await timed(core, results.into(runner.call), guess));
    if (performance.now() - begins > BUDGET_MS) break;
  }
}

/** Sorts the runners, fastest first. */
async function finals(
  core: EngineCore,
  runners: Runner[],
  results: Results,
  signal: AbortSignal | undefined,
): Promise<void> {
  const faster = (a: Runner, b: Runner) => a.milliseconds - b.milliseconds;
  runners.sort(faster);
  const finalists = runners.filter((runner, place) => place < FINALISTS || runner.isDefault);
  const begins = performance.now();
  for (let run = 0; run < RUNS && performance.now() - begins < 2 * BUDGET_MS; run++) {
    for (const runner of finalists) {
      signal?.throwIfAborted();
      const again = await timed(core, results.into(runner.call), runner.milliseconds);
      runner.milliseconds = Math.min(runner.milliseconds, again);
    }
  }
  runners.sort(faster);
  const place = runners.findIndex(({ isDefault }) => isDefault);
  const own = runners[place];
  if (!own || runners[0]!.milliseconds < MARGIN * own.milliseconds) return;
  runners.splice(place, 1);
  runners.unshift(own);
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
