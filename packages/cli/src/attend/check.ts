/** --check: the result against the oracle, and against what the file has stored. */
import { checkAgainstOracleAsync, encode, type HostKv, type OracleCheck } from "@tessera/core";
import { invalid, quote } from "../safetensors/header.js";
import type { Progress } from "../ui/progress.js";
import { floats } from "./floats.js";
import type { FloatTensor, Inputs } from "./inputs.js";
import { optionsOf } from "./options.js";
import type { Computed } from "./run.js";
import type { Settings } from "./settings.js";

export interface Comparison {
  readonly maxError: number;
  readonly bound: number;
}

export interface Verdict {
  readonly ok: boolean;
  readonly out: Comparison;
  readonly lse: Comparison;
  /** Against the file's own out and lse. */
  readonly storedOut?: Comparison;
  readonly storedLse?: Comparison;
}

/** Relative rounding of a stored result. */
const rounding = { f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 };

export async function verify(
  path: string,
  inputs: Inputs,
  settings: Settings,
  result: Computed,
  progress: Progress,
): Promise<Verdict> {
  const options = optionsOf(inputs, settings);
  const { kvDtype } = settings;
  // The cache's own rounding is no error of the kernel's: the oracle sees what the cache holds.
  const cached = (tensor: FloatTensor): HostKv =>
    kvDtype === undefined ? tensor : ({ ...tensor, data: encode(floats(tensor), kvDtype), dtype: kvDtype } as HostKv);
  const oracle = await checkAgainstOracleAsync(
    {
      options: { ...options, k: cached(inputs.k), v: cached(inputs.v) },
      out: result.outTensor,
      lse: result.lseTensor,
    },
    { onProgress: (share) => progress.show(`${inputs.prefix} oracle: ${Math.round(share * 100)} %`.trim()) },
  );
  // Stored results are those of the values in the file; through a narrower cache they would tell of its rounding only.
  const stored = kvDtype === undefined ? compareStored(path, inputs, result, oracle) : {};
  const ok = [stored.storedOut, stored.storedLse].every((c) => c === undefined || c.maxError <= c.bound);
  return {
    ok: oracle.ok && ok,
    out: { maxError: oracle.maxError, bound: oracle.bound },
    lse: { maxError: oracle.lseMaxError, bound: oracle.lseBound },
    ...stored,
  };
}

function compareStored(
  path: string,
  inputs: Inputs,
  result: Computed,
  oracle: OracleCheck,
): Pick<Verdict, "storedOut" | "storedLse"> {
  const out = inputs.storedOut;
  const lse = inputs.storedLse;
  const verdict: { storedOut?: Comparison; storedLse?: Comparison } = {};
  if (out !== undefined) {
    sameShape(path, `${inputs.prefix}out`, out.shape, result.out.shape);
    const bound = oracle.bound + oracle.largestValue * rounding[out.dtype];
    verdict.storedOut = { maxError: furthest(floats(result.outTensor), floats(out)).error, bound };
  }
  if (lse !== undefined) {
    sameShape(path, `${inputs.prefix}lse`, lse.shape, result.lse.shape);
    const expected = floats(lse);
    const { error, at } = furthest(result.lseTensor.data, expected);
    // The oracle's bound is that of its own worst place; only the relative part moves with the value.
    const value = Math.abs(expected[at] ?? 0);
    const bound =
      1e-5 + 2 ** -22 * oracle.magnitude + (Number.isFinite(value) ? (1e-6 + rounding[lse.dtype]) * value : 0);
    verdict.storedLse = { maxError: error, bound };
  }
  return verdict;
}

function sameShape(path: string, name: string, stored: readonly number[], expected: readonly number[]): void {
  if (stored.length === expected.length && stored.every((n, d) => n === expected[d])) return;
  throw invalid(
    path,
    `tensor ${quote(name)} has shape [${stored.join(", ")}]; its q, k and v give [${expected.join(", ")}]`,
  );
}

function furthest(actual: ArrayLike<number>, expected: ArrayLike<number>): { error: number; at: number } {
  let error = 0;
  let at = 0;
  for (let i = 0; i < expected.length; i++) {
    const [a, e] = [actual[i]!, expected[i]!];
    let distance = Object.is(a, e) || a === e ? 0 : Math.abs(a - e);
    if (Number.isNaN(distance)) distance = Number.POSITIVE_INFINITY;
    if (distance > error) [error, at] = [distance, i];
  }
  return { error, at };
}
