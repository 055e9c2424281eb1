/** One case on one device. */
import { freemem } from "node:os";
import type { AttentionOptions, CacheDType, Engine, Tensor } from "@tessera/core";
import { Arenas, bytesOf, type Cut } from "./arena.js";
import {
  type AttentionCase,
  type Case,
  type Extra,
  flopsOf,
  type MemoryCase,
  type OverheadCase,
  type UnfusedCase,
} from "./case.js";
import { checkRows, spoil } from "./check.js";
import { NoLimits, unfused } from "./limits.js";
import { type Plan, sample } from "./measure.js";
import type { Check, Measurement } from "./result.js";
import { median, spread } from "./statistics.js";

/** A device, and where its cases get their memory. */
export interface Place {
  readonly engine: Engine;
  readonly arenas: Arenas;
  readonly rotateBytes: number;
}

/** A device under test. */
export interface Bench extends Place {
  readonly key: string;
  readonly plan: Plan;
  /** Another engine on the device, which holds nothing yet. */
  open(): Promise<Engine>;
}

/** Why a case wasn't measured. */
export class NotMeasured extends Error {}

/** It would take longer than there is time. */
export class OutOfTime extends NotMeasured {}

export function runCase(bench: Bench, one: Case): Promise<Measurement> {
  if (one.kind === "overhead") return runOverhead(bench, one);
  if (one.kind === "memory") return runMemory(bench, one);
  if (one.kind === "unfused") return runUnfused(bench, one);
  return runAttention(bench, one);
}

const count = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

interface Shapes {
  readonly q: readonly number[];
  readonly k: readonly number[];
}

function shapesOf({ shape }: Pick<AttentionCase, "shape">, form: Extra["form"]): Shapes {
  const { batch, heads, kvHeads, queries, keys, dim } = shape;
  if (form === "packed") return { q: [batch * queries, heads, dim], k: [batch * keys, kvHeads, dim] };
  const q = [batch, queries, heads, dim];
  if (form === undefined) return { q, k: [batch, keys, kvHeads, dim] };
  return { q, k: [(batch * keys) / form.pageSize, form.pageSize, kvHeads, dim] };
}

/** Bytes that inputs and outputs of all cases together may take. */
function memoryLimit({ engine }: Place): number {
  const { caps, memoryBytes } = engine.device;
  return caps.hostMemory ? freemem() * 0.6 : memoryBytes * 0.6;
}

const mebi = (bytes: number) => `${Math.ceil(bytes / 2 ** 20)} MiB`;

/** Memory of a case: as many sets of inputs as it takes to fill more than the last-level cache. */
async function prepare(
  bench: Place,
  one: Pick<AttentionCase, "shape" | "q" | "kv">,
  form: Extra["form"],
  most: number,
) {
  const { engine, arenas, rotateBytes } = bench;
  const shapes = shapesOf(one, form);
  const room = (shape: readonly number[]) => Arenas.room(count(shape));
  const bytes = 2 * bytesOf(one.q, room(shapes.q)) + 2 * bytesOf(one.kv, room(shapes.k));
  const limit = memoryLimit(bench);
  if (bytes > limit) throw new NotMeasured(`takes ${mebi(bytes)}; ${mebi(limit)} may be used`);
  const sets = Math.max(1, Math.min(most, Math.ceil(rotateBytes / bytes), Math.floor(limit / bytes)));
  const counts = new Map<CacheDType, number>();
  const add = (dtype: CacheDType, more: number) => counts.set(dtype, (counts.get(dtype) ?? 0) + more);
  add(one.q, sets * room(shapes.q));
  add(one.kv, 2 * sets * room(shapes.k));
  await arenas.begin(counts);
  const outs = engine.empty({ shape: [sets * room(shapes.q)], dtype: one.q });
  const inputs = Array.from({ length: sets }, (_, set) => {
    const start = set * room(shapes.q);
    return {
      q: arenas.cut(one.q, shapes.q),
      k: arenas.cut(one.kv, shapes.k),
      v: arenas.cut(one.kv, shapes.k),
      out: outs.slice(0, start, start + count(shapes.q)).reshape(shapes.q),
    };
  });
  return {
    inputs,
    dispose: () => {
      for (const { q, k, v, out } of inputs) for (const tensor of [q.tensor, k.tensor, v.tensor, out]) tensor.dispose();
      outs.dispose();
    },
  };
}

type Inputs = { readonly q: Cut; readonly k: Cut; readonly v: Cut; readonly out: Tensor };

function optionsOf(one: AttentionCase | MemoryCase, inputs: Inputs, more: object): AttentionOptions {
  const { q, k, v, out } = inputs;
  const kernel = one.kind === "memory" ? undefined : one.kernel;
  const options = { q: q.tensor, k: k.tensor, v: v.tensor, out, causal: one.causal, ...more };
  return { ...options, ...(kernel !== undefined && { kernel }) } as unknown as AttentionOptions;
}

/** One set of inputs of a case, as options of `attention`. */
export async function inputsOf(place: Omit<Place, "rotateBytes">, one: AttentionCase) {
  const extra: Extra = one.extra?.(place.engine, one.shape) ?? { options: {} };
  const memory = await prepare({ ...place, rotateBytes: 0 }, one, extra.form, 1);
  return {
    options: optionsOf(one, memory.inputs[0]!, extra.options),
    dispose: () => {
      memory.dispose();
      for (const tensor of extra.owned ?? []) tensor.dispose();
    },
  };
}

/** A case with candidates, with the one of them that `tune` finds the fastest: it keeps nothing of what has a name. */
async function fastest(engine: Engine, one: AttentionCase, inputs: Inputs, { options }: Extra): Promise<AttentionCase> {
  const times: { kernel: string; milliseconds: number }[] = [];
  for (const kernel of one.candidates ?? []) {
    const call = optionsOf({ ...one, kernel }, inputs, { ...options, numSplits: 0 });
    if (engine.supports(call).supported) times.push(...(await engine.tune(call)));
  }
  const [best] = times.sort((a, b) => a.milliseconds - b.milliseconds);
  return best === undefined ? one : { ...one, kernel: best.kernel };
}

async function runAttention(bench: Bench, one: AttentionCase): Promise<Measurement> {
  const { engine, plan } = bench;
  const extra: Extra = one.extra?.(engine, one.shape) ?? { options: {} };
  let memory: Awaited<ReturnType<typeof prepare>> | undefined;
  try {
    memory = await prepare(bench, one, extra.form, 64);
    const { inputs } = memory;
    const chosen = await fastest(engine, one, inputs[0]!, extra);
    const first = optionsOf(chosen, inputs[0]!, extra.options);
    const support = engine.supports(first);
    if (!support.supported) throw new NotMeasured(support.reason);
    const { kernel, splits, tuned } = engine.explain(first);

    spoil(inputs[0]!.out, one.shape);
    // A device of which nothing was known until now. The first call may load the kernel: it alone doesn't decide.
    for (let attempt = 0; ; attempt++) {
      const begins = performance.now();
      const once = await engine.attention(first);
      (once as { lse?: Tensor }).lse?.dispose();
      await engine.synchronize();
      const took = performance.now() - begins;
      const needed = plan.repeats * took;
      if (plan.until === undefined || performance.now() + needed <= plan.until) break;
      if (attempt > 0 || took > 2000)
        throw new OutOfTime(`would take about ${Math.ceil(needed / 1000)} s more, beyond the limit`);
    }
    const check: Check = await checkRows(one, inputs[0]!, inputs[0]!.out, extra);

    // Where log-sum-exps are asked for, each call allocates them: that is part of what they cost.
    const calls = inputs.map((set) => {
      const options = optionsOf(chosen, set, { ...extra.options, ...(plan.signal && { signal: plan.signal }) });
      return async () => ((await engine.attention(options)) as { lse?: Tensor }).lse?.dispose();
    });
    const sampled = await sample(engine, calls, plan);
    const { shape, causal, q, kv, feature, step } = one;
    const { batch, kvHeads, keys, dim } = shape;
    return {
      device: bench.key,
      suite: one.suite,
      case: one.name,
      kind: one.kind,
      shape,
      dtype: { q, kv },
      causal,
      ...(feature !== undefined && { feature }),
      ...(step !== undefined && { step }),
      kernel,
      splits,
      tuned,
      sets: inputs.length,
      ...timing(sampled),
      flops: flopsOf(one),
      ...(one.kind === "decode" && { bytes: 2 * bytesOf(kv, batch * keys * kvHeads * dim) }),
      check,
    };
  } finally {
    memory?.dispose();
    for (const tensor of extra.owned ?? []) tensor.dispose();
  }
}

function timing({ clock, callsPerSample, samples }: Awaited<ReturnType<typeof sample>>) {
  return { clock, callsPerSample, samples, median: median(samples), spread: spread(samples) };
}

/** What the engine takes from the device for a call, at most: by its own count, looked at in each turn of the event loop. */
async function allocatedBy(engine: Engine, options: AttentionOptions): Promise<number> {
  const before = engine.bytesInUse;
  let [peak, running] = [before, true];
  const call = engine
    .attention(options)
    .then(() => engine.synchronize())
    .finally(() => {
      running = false;
    });
  while (running) {
    peak = Math.max(peak, engine.bytesInUse);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await call;
  return peak - before;
}

async function runMemory(bench: Bench, one: MemoryCase): Promise<Measurement> {
  // One that keeps no workspace of calls before.
  using engine = await bench.open();
  const memory = await prepare({ engine, arenas: new Arenas(engine), rotateBytes: 0 }, one, undefined, 1);
  try {
    const options = optionsOf(one, memory.inputs[0]!, {});
    const support = engine.supports(options);
    if (!support.supported) throw new NotMeasured(support.reason);
    const { kernel, splits, workspaceBytes } = engine.explain(options);
    const allocated = await allocatedBy(engine, options);
    const { shape, causal, q, kv } = one;
    // What a matrix product, a softmax and a second product need in between: the scores, in q's type.
    const unfused = bytesOf(q, shape.batch * shape.heads * shape.queries * shape.keys);
    return {
      device: bench.key,
      suite: one.suite,
      case: one.name,
      kind: "memory",
      shape,
      dtype: { q, kv },
      causal,
      kernel,
      splits,
      clock: "host",
      callsPerSample: 0,
      sets: 1,
      samples: [],
      median: 0,
      spread: 0,
      memory: { workspace: workspaceBytes, allocated, unfused },
    };
  } finally {
    memory.dispose();
  }
}

async function runUnfused({ engine, key, plan }: Bench, { suite, name, shape }: UnfusedCase): Promise<Measurement> {
  let measured: Awaited<ReturnType<typeof unfused>>;
  try {
    measured = await unfused(engine, shape, plan);
  } catch (error) {
    if (error instanceof NoLimits) throw new NotMeasured(error.message);
    throw error;
  }
  return {
    device: key,
    suite,
    case: name,
    kind: "prefill",
    shape,
    dtype: { q: "f16", kv: "f16" },
    causal: true,
    step: "ladder-unfused",
    kernel: "ladder-unfused",
    callsPerSample: 1,
    sets: 1,
    flops: flopsOf({ shape, causal: true }),
    ...measured,
  };
}

/** Calls of a burst, which a device's queue holds; each is waited for before the next. */
const burst = 100;

async function runOverhead(bench: Bench, one: OverheadCase): Promise<Measurement> {
  const { engine, plan } = bench;
  if (one.name.startsWith("launch") && !engine.device.caps.graphs) throw new NotMeasured("the device has no graphs");
  // A device that computes in the call would be measured computing.
  const prepared = await one.prepare(engine);
  try {
    const samples: number[] = [];
    // JavaScript is slow until it was compiled; a device that takes long over its part isn't waited for fifty times.
    const begins = performance.now();
    for (let round = 0; samples.length < plan.repeats; round++) {
      plan.signal?.throwIfAborted();
      const warm = round >= 50 || performance.now() - begins > 500;
      const start = performance.now();
      for (let i = 0; i < burst; i++) prepared.call();
      const took = performance.now() - start;
      await prepared.end();
      if (warm) samples.push(took / burst);
    }
    return {
      device: bench.key,
      suite: one.suite,
      case: one.name,
      kind: "overhead",
      ...(prepared.kernel !== undefined && { kernel: prepared.kernel }),
      clock: "host",
      sets: 1,
      callsPerSample: burst,
      samples,
      median: median(samples),
      spread: spread(samples),
    };
  } finally {
    prepared.dispose();
  }
}
