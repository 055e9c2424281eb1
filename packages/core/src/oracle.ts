/** `oracle`: what attention is, in float64, for tests and `--check`. */
import type { AttentionOptions } from "./attention-options.js";
import { checkAttention, swapped } from "./check-attention.js";
import type { HostTensor } from "./host-tensor.js";
import { type Rounding, type Solution, solve } from "./oracle-solve.js";
import { hostMemory, problemOf } from "./problem.js";
import { soon } from "./soon.js";
import { countOf } from "./strides.js";

/** Options of the oracle: those of `attention`, with host arrays. */
export type OracleOptions = AttentionOptions<HostTensor, HostTensor>;

/** The truth, row-major. */
export interface OracleResult {
  /** [B,Sq,Hq,Dv], [T,Hq,Dv] packed; [B,Hq,Sq,Dv] or [Hq,T,Dv] with layout "bhsd". */
  readonly out: Float64Array;
  /** [B,Hq,Sq], [Hq,T] packed: natural logarithm; -Infinity for a row that sees nothing. */
  readonly lse: Float64Array;
}

/** For long runs. */
export interface LongRun {
  /** Called now and then with the share that is done, from 0 to 1. */
  readonly onProgress?: ((share: number) => void) | undefined;
  /** Aborts: the promise rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
}

/** Runs to the end at once. */
export function finish<T>(steps: Generator<number, T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** Runs in slices of about 20 ms, letting the event loop breathe in between. */
export async function finishInSlices<T>(steps: Generator<number, T>, run: LongRun): Promise<T> {
  run.signal?.throwIfAborted();
  let sliceEnds = performance.now() + 20;
  for (;;) {
    const step = steps.next();
    if (step.done) {
      run.onProgress?.(1);
      return step.value;
    }
    if (performance.now() < sliceEnds) continue;
    run.onProgress?.(step.value);
    await new Promise<void>((resolve) => soon(resolve));
    run.signal?.throwIfAborted();
    sliceEnds = performance.now() + 20;
  }
}

/** Steps of a solution in the caller's layout. */
export function* solveOptions(options: OracleOptions, rounding?: Rounding): Generator<number, Solution> {
  const checked = checkAttention(options, undefined, "oracle");
  const solution = yield* solve(problemOf(checked.desc, hostMemory), rounding);
  if (!checked.bhsd) return solution;
  const shape = swapped(checked.outShape);
  return { ...solution, out: headsFirst(solution.out, shape), rounded: headsFirst(solution.rounded, shape) };
}

/** Row-major [..., S, H, D] as row-major [..., H, S, D]. */
function headsFirst(values: Float64Array, shape: readonly number[]): Float64Array {
  if (values.length === 0) return values;
  const [rows, heads, dim] = shape.slice(-3) as [number, number, number];
  const result = new Float64Array(values.length);
  const batch = countOf(shape.slice(0, -3));
  for (let b = 0; b < batch; b++) {
    for (let i = 0; i < rows; i++) {
      for (let h = 0; h < heads; h++) {
        const from = ((b * rows + i) * heads + h) * dim;
        result.set(values.subarray(from, from + dim), ((b * heads + h) * rows + i) * dim);
      }
    }
  }
  return result;
}

/**
 * Float64 truth of an attention, straight from the definition. Slow and simple: about 10^8 multiplications a second.
 *
 * @param options those of `attention`, with host arrays of any type; `kernel`, `numSplits` and `out` change nothing
 * @throws TesseraError `invalid-argument`, as `attention` does
 */
export function oracle(options: OracleOptions): OracleResult {
  const { out, lse } = finish(solveOptions(options));
  return { out, lse };
}

/**
 * The same without blocking the event loop for more than about 20 ms at a time.
 *
 * @param run `onProgress`, `signal` (the one in `options` counts too)
 */
export async function oracleAsync(options: OracleOptions, run: LongRun = {}): Promise<OracleResult> {
  const { out, lse } = await finishInSlices(solveOptions(options), { signal: options.signal, ...run });
  return { out, lse };
}
