/** A whole run: suites on devices, with progress, interruptible, and what came of it whatever happened. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { type Engine, type EngineOptions, openEngine, TesseraError } from "@tessera/core";
import { Arenas } from "./arena.js";
import { type Case, flopsOf } from "./case.js";
import { ceilingsOf } from "./ceilings.js";
import { commitOf, hostOf, rotation, vendorOf } from "./environment.js";
import { cpuCeilings, gpuCeilings, NoLimits } from "./limits.js";
import type { Plan } from "./measure.js";
import type { Ceilings, DeviceResult, Measurement, ResultFile, RunState, Skipped } from "./result.js";
import { type Bench, NotMeasured, OutOfTime, runCase } from "./run-case.js";
import { casesOf, type SuiteName, suits } from "./suites.js";

export interface BenchOptions {
  readonly suites: readonly SuiteName[];
  /** Devices, by turns. */
  readonly devices: readonly EngineOptions[];
  /** Samples of each case; at least 20 where figures are to be believed. */
  readonly repeats?: number | undefined;
  /** No case begins that would end later than this after the start. */
  readonly seconds?: number | undefined;
  /** Only cases whose "suite: name" matches. */
  readonly filter?: RegExp | undefined;
  /** Bytes that inputs cycle through; default: twice the last-level cache. */
  readonly rotateBytes?: number | undefined;
  readonly note?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: BenchProgress) => void) | undefined;
  /** After each case. */
  readonly onMeasured?: ((measured: Measurement) => void) | undefined;
}

export interface BenchProgress {
  readonly device: string;
  readonly suite: string;
  readonly case: string;
  readonly done: number;
  readonly total: number;
  /** Estimate. */
  readonly secondsLeft: number;
}

const here = fileURLToPath(new URL(".", import.meta.url));

function toolOf(): ResultFile["tool"] {
  const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string };
  return { version: manifest.version, commit: commitOf(here), node: process.version };
}

/** Work of a case in one unit, for estimates: bytes moved or a hundredth of the operations, whichever is more. */
function workOf(one: Case): number {
  if (one.kind === "overhead" || one.kind === "memory" || one.kind === "unfused") return 0;
  const { batch, kvHeads, keys, dim } = one.shape;
  return Math.max(4 * batch * kvHeads * keys * dim, flopsOf(one) / 100);
}

/** Seconds that a case takes, from what the cases before it took. */
class Forecast {
  /** Milliseconds per unit of work, of the last case. */
  #rate: number;
  readonly #plan: Plan;

  constructor(plan: Plan, fast: boolean) {
    this.#plan = plan;
    this.#rate = fast ? 3e-10 : 4e-7;
  }

  learn(one: Case, median: number): void {
    const work = workOf(one);
    if (work > 0) this.#rate = median / work;
  }

  seconds(one: Case): number {
    const { repeats, sampleMs, warmUpMs } = this.#plan;
    const call = workOf(one) * this.#rate;
    return (200 + warmUpMs + call + repeats * Math.max(call, sampleMs)) / 1000;
  }
}

interface Opened {
  readonly engine: Engine;
  readonly key: string;
  readonly threads: number | undefined;
  readonly cases: Case[];
  /** Another engine on it. */
  open(): Promise<Engine>;
}

/** All devices before anything is measured: one that isn't there is told of at once. */
async function openAll(options: BenchOptions): Promise<Opened[]> {
  const opened: Opened[] = [];
  try {
    for (const which of options.devices) {
      const engine = await openEngine(which);
      const key = `${engine.backend}:${engine.device.index}`;
      const threads = engine.device.caps.async
        ? undefined
        : engine.backend === "reference"
          ? 1
          : (which.threads ?? (Number(process.env.TESSERA_THREADS) || availableParallelism()));
      opened.push({ engine, key, threads, cases: [], open: () => openEngine(which) });
      if (opened.slice(0, -1).some((other) => other.key === key))
        throw new TesseraError("invalid-argument", `the device ${key} is given twice`);
    }
  } catch (error) {
    for (const { engine } of opened) engine.dispose();
    throw error;
  }
  const refuse = (code: "device-unavailable" | "invalid-argument", message: string): never => {
    for (const { engine } of opened) engine.dispose();
    throw new TesseraError(code, message);
  };
  const wanted = options.filter ?? /^/;
  for (const suite of options.suites) {
    if (opened.some(({ engine }) => suits(suite, engine))) continue;
    const here = opened.map(({ key }) => key).join(", ");
    refuse("device-unavailable", `the suite ${suite} needs the back end cuda or hip; this run is on ${here} alone`);
  }
  for (const { engine, cases } of opened) {
    const all = options.suites.flatMap((suite) => (suits(suite, engine) ? casesOf(suite, engine) : []));
    cases.push(...all.filter((one) => wanted.test(`${one.suite}: ${one.name}`)));
  }
  if (opened.every(({ cases }) => cases.length === 0))
    refuse("invalid-argument", `no case of ${options.suites.join(", ")} matches ${options.filter}`);
  return opened;
}

/**
 * Runs suites. What was measured is in the result, also if the run was interrupted or a device broke: `state` says.
 *
 * @throws TesseraError before anything is measured: as `openEngine` does, or if no case matches
 */
export async function runBench(options: BenchOptions): Promise<ResultFile> {
  const started = performance.now();
  const { signal, seconds = Number.POSITIVE_INFINITY } = options;
  // A GPU under load is at its power limit, which it keeps by moving its clock every few milliseconds, and gets there within some
  // tenths of a second: a sample averages over that, and none is taken before.
  const planOf = (engine: Engine): Plan => ({
    repeats: options.repeats ?? 30,
    sampleMs: engine.device.caps.async ? 20 : 1,
    warmUpMs: engine.device.caps.async ? 300 : 30,
    until: started + 1000 * seconds,
    signal,
  });
  const opened = await openAll(options);
  const total = opened.reduce((sum, { cases }) => sum + cases.length, 0);
  const forecasts = new Map(
    opened.map(({ key, engine }) => [key, new Forecast(planOf(engine), engine.device.caps.async)]),
  );
  const results: DeviceResult[] = [];
  const measurements: Measurement[] = [];
  const skipped: Skipped[] = [];
  let done = 0;
  const elapsed = () => (performance.now() - started) / 1000;
  const left = (from: number, index: number) => {
    let sum = 0;
    opened.slice(from).forEach(({ key, cases }, i) => {
      for (const one of i === 0 ? cases.slice(index) : cases) sum += forecasts.get(key)!.seconds(one);
    });
    return Math.min(sum, Math.max(0, seconds - elapsed()));
  };
  const show = (device: string, one: { suite: string; name: string }, from: number, index: number) =>
    options.onProgress?.({
      device,
      suite: one.suite,
      case: one.name,
      done,
      total,
      secondsLeft: left(from, index),
    });

  for (const [place, { engine, key, threads, cases, open }] of opened.entries()) {
    const rotateBytes = options.rotateBytes ?? rotation(engine.device);
    const plan = planOf(engine);
    const bench: Bench = { engine, key, arenas: new Arenas(engine), rotateBytes, plan, open };
    // A ceiling moves gigabytes a sample: thousands of repeats, which a small case may want, would take minutes.
    const few: Plan = { ...plan, repeats: Math.min(plan.repeats, 50) };
    const vendor = vendorOf(engine.backend, engine.device);
    let state: RunState = signal?.aborted ? "interrupted" : "complete";
    let failure: string | undefined;
    let ceilings: Ceilings = {};
    const skip = (one: Case, reason: string) =>
      skipped.push({ device: key, suite: one.suite, case: one.name, reason: reason.split("\n")[0]! });
    try {
      if (state === "complete") {
        show(key, { suite: "ceilings", name: "memory" }, place, 0);
        ceilings = await ceilingsOf(engine, rotateBytes, threads, few);
        try {
          if (!engine.device.caps.hostMemory) ceilings = { ...ceilings, ...(await gpuCeilings(engine, few)) };
          else if (engine.backend === "cpu") ceilings = { ...ceilings, ...(await cpuCeilings(threads ?? 1, few)) };
        } catch (error) {
          if (!(error instanceof NoLimits)) throw error;
          const reason = error.message.split("\n")[0]!;
          skipped.push({
            device: key,
            suite: "ceilings",
            case: engine.device.caps.hostMemory ? "matrix product" : "read, matrix product",
            reason,
          });
        }
      }
      for (const [index, one] of cases.entries()) {
        signal?.throwIfAborted();
        if (elapsed() + forecasts.get(key)!.seconds(one) > seconds) {
          state = "time-limit";
          skip(one, `would not end within the limit of ${seconds} s`);
          continue;
        }
        show(key, one, place, index);
        try {
          const measured = await runCase(bench, one);
          forecasts.get(key)!.learn(one, measured.median);
          measurements.push(measured);
          options.onMeasured?.(measured);
        } catch (error) {
          if (!isSkip(error)) throw error;
          if (error instanceof OutOfTime) state = "time-limit";
          skip(one, error.message);
        }
        done++;
      }
    } catch (error) {
      if (signal?.aborted) state = "interrupted";
      else {
        // Whatever it was, what was measured is kept.
        state = "device-error";
        failure = error instanceof TesseraError ? `${error.code}: ${error.message}` : `defect: ${String(error)}`;
      }
    } finally {
      const { name, arch, id, index, memoryBytes, computeUnits } = engine.device;
      const vendorAfter = vendor && state !== "device-error" ? vendorOf(engine.backend, engine.device) : undefined;
      results.push({
        key,
        backend: engine.backend,
        index,
        name,
        arch,
        id,
        memoryBytes,
        computeUnits,
        ...(threads !== undefined && { threads }),
        ...(vendor && { vendor }),
        ...(vendorAfter && { vendorAfter }),
        rotateBytes,
        ceilings,
        state,
        ...(failure !== undefined && { error: failure }),
      });
      engine.dispose();
    }
  }
  const states = results.map(({ state }) => state);
  const worst = (["interrupted", "device-error", "time-limit"] as const).find((state) => states.includes(state));
  return {
    format: "tessera-bench",
    version: 1,
    created: new Date().toISOString(),
    seconds: elapsed(),
    state: worst ?? "complete",
    suites: options.suites,
    tool: toolOf(),
    host: hostOf(),
    ...(options.note !== undefined && { note: options.note }),
    devices: results,
    measurements,
    skipped,
  };
}

/** No memory, or not supported: the case is passed over, and the device is as good as before. */
function isSkip(error: unknown): error is Error {
  if (error instanceof NotMeasured) return true;
  return error instanceof TesseraError && (error.code === "unsupported" || error.code === "out-of-memory");
}
