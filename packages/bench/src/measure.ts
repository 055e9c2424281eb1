/**
 * How calls are timed.
 *
 * On a device with queues: a sample is a batch of calls back to back, recorded as a graph where the device has graphs, so
 * that the host's pace doesn't count; between batches lies a mark, and a sample is the time between two marks by the
 * device's clock. All batches are enqueued before the first is waited for. Elsewhere a sample is the host's time of
 * awaited calls, one after the other; on a queue that can't be marked (WebGPU) until it is empty.
 */
import { type Engine, type Mark, TesseraError } from "@tessera/core";

export interface Plan {
  readonly repeats: number;
  /** A batch takes at least this long, so that a clock's resolution doesn't count. */
  readonly sampleMs: number;
  /** Calls are made for at least this long before the first sample. */
  readonly warmUpMs: number;
  /** By `performance.now()`: what would take longer isn't begun. */
  readonly until?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onSample?: ((done: number) => void) | undefined;
}

export interface Sampled {
  readonly clock: "device" | "host";
  readonly callsPerSample: number;
  /** Milliseconds a call. */
  readonly samples: number[];
}

export type Call = () => Promise<unknown>;

/** @param calls the same call over different memory: batches cycle through them */
export function sample(engine: Engine, calls: readonly Call[], plan: Plan): Promise<Sampled> {
  if (!engine.device.caps.async) return byHost(calls, plan);
  return canMark(engine) ? byDevice(engine, calls, plan) : byHost(calls, plan, () => engine.synchronize());
}

function canMark(engine: Engine): boolean {
  try {
    engine.mark().dispose();
    return true;
  } catch (error) {
    if (error instanceof TesseraError && error.code === "unsupported") return false;
    throw error;
  }
}

async function byHost(calls: readonly Call[], plan: Plan, finish?: Call): Promise<Sampled> {
  let turn = 0;
  const timed = async (count: number) => {
    const start = performance.now();
    for (let i = 0; i < count; i++) {
      plan.signal?.throwIfAborted();
      await calls[turn++ % calls.length]!();
    }
    await finish?.();
    return (performance.now() - start) / count;
  };
  let least = Number.POSITIVE_INFINITY;
  for (let call = 0; call < 3; call++) least = Math.min(least, await timed(1));
  for (const begins = performance.now(); performance.now() - begins < plan.warmUpMs; )
    least = Math.min(least, await timed(1));
  const callsPerSample = Math.max(1, Math.ceil(plan.sampleMs / least));
  const samples: number[] = [];
  while (samples.length < plan.repeats) {
    samples.push(await timed(callsPerSample));
    plan.onSample?.(samples.length);
  }
  return { clock: "host", callsPerSample, samples };
}

async function byDevice(engine: Engine, calls: readonly Call[], plan: Plan): Promise<Sampled> {
  const single = async () => {
    for (const call of calls) await call();
  };
  const [first] = await between(engine, single, 1);
  // Whole rounds, so that each batch begins with memory that the one before it has pushed out of the cache.
  const rounds = Math.max(1, Math.ceil(plan.sampleMs / first!));
  const callsPerSample = rounds * calls.length;
  const all = async () => {
    for (let round = 0; round < rounds; round++) await single();
  };
  const recorded = callsPerSample > 1 && engine.device.caps.graphs;
  const graph = recorded ? await engine.capture(all) : undefined;
  const batch = graph ? () => graph.launch() : all;
  try {
    for (const begins = performance.now(); performance.now() - begins < plan.warmUpMs; ) {
      plan.signal?.throwIfAborted();
      await batch();
      await engine.synchronize();
    }
    const samples: number[] = [];
    while (samples.length < plan.repeats) {
      plan.signal?.throwIfAborted();
      // A few tens of milliseconds at a time, so that an interrupt needn't wait long.
      const some = Math.min(plan.repeats - samples.length, Math.max(5, Math.ceil(50 / (first! * rounds))));
      samples.push(...(await between(engine, batch, some)).map((ms) => ms / callsPerSample));
      plan.onSample?.(samples.length);
    }
    return { clock: "device", callsPerSample, samples };
  } finally {
    graph?.dispose();
  }
}

/** Device time of each of `count` batches. One more goes before them, so that the queue never runs dry. */
async function between(engine: Engine, batch: Call, count: number): Promise<number[]> {
  await batch();
  const marks: Mark[] = [engine.mark()];
  try {
    for (let i = 0; i < count; i++) {
      await batch();
      marks.push(engine.mark());
    }
    const times: number[] = [];
    for (let i = 1; i < marks.length; i++) times.push(await marks[i]!.since(marks[i - 1]!));
    return times;
  } finally {
    for (const mark of marks) mark.dispose();
  }
}
