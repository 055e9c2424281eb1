/** Every attention case of some suites, tuned. */
import { type AttentionOptions, type Engine, openEngine, TesseraError, type TunedVariant } from "@tessera/core";
import { Arenas } from "./arena.js";
import type { AttentionCase } from "./case.js";
import type { BenchOptions } from "./run.js";
import { inputsOf, NotMeasured } from "./run-case.js";
import { casesOf } from "./suites.js";

/** What came of one case. */
export interface TunedCase {
  readonly device: string;
  readonly suite: string;
  readonly case: string;
  /** The back end's own choice. */
  readonly before: TunedVariant | undefined;
  readonly best: TunedVariant;
  /** All that were timed, fastest first. */
  readonly variants: readonly TunedVariant[];
}

export interface TuneProgress {
  readonly done: number;
  readonly total: number;
  readonly device: string;
  readonly case: string;
}

export interface TuneOptions extends Pick<BenchOptions, "suites" | "devices" | "filter" | "signal"> {
  readonly onProgress?: ((progress: TuneProgress) => void) | undefined;
  /** After each case: what is kept if the device breaks at the next. */
  readonly onTuned?: ((tuned: TunedCase) => void) | undefined;
  /** Forgets all that was tuned on these devices, and tunes nothing. */
  readonly clear?: boolean | undefined;
}

/** @throws TesseraError as `openEngine` does, or if no case matches */
export async function runTune(options: TuneOptions): Promise<TunedCase[]> {
  const table: TunedCase[] = [];
  for (const which of options.devices) {
    using engine = await openEngine(which);
    if (options.clear) engine.clearTuning();
    else await tuneOn(engine, options, table);
  }
  return table;
}

async function tuneOn(engine: Engine, options: TuneOptions, table: TunedCase[]): Promise<void> {
  const device = `${engine.backend}:${engine.device.index}`;
  const wanted = options.filter ?? /^/;
  const cases = options.suites
    .flatMap((suite) => casesOf(suite, engine))
    .filter((one): one is AttentionCase => one.kind === "prefill" || one.kind === "decode")
    .filter((one) => one.kernel === undefined && wanted.test(`${one.suite}: ${one.name}`));
  if (cases.length === 0)
    throw new TesseraError("invalid-argument", `nothing to tune in ${options.suites.join(", ")} for ${wanted}`);
  const arenas = new Arenas(engine);
  for (const [done, one] of cases.entries()) {
    if (options.signal?.aborted) return;
    options.onProgress?.({ done, total: cases.length, device, case: `${one.suite}: ${one.name}` });
    try {
      const inputs = await inputsOf({ engine, arenas }, one);
      try {
        const call = inputs.options as AttentionOptions;
        const variants = await engine.tune({ ...call, ...(options.signal && { signal: options.signal }) } as never);
        const before = variants.find(({ isDefault }) => isDefault);
        const tuned = { device, suite: one.suite, case: one.name, before, best: variants[0]!, variants };
        table.push(tuned);
        options.onTuned?.(tuned);
      } finally {
        inputs.dispose();
      }
    } catch (error) {
      // What was tuned before the interrupt is kept.
      if (options.signal?.aborted) return;
      const passable =
        error instanceof NotMeasured ||
        (error instanceof TesseraError && ["unsupported", "out-of-memory"].includes(error.code));
      if (!passable) throw error;
    }
  }
}
