/**
 * The weights themselves, which the engine never holds: row by row in float64, for the picture. The order of steps is
 * that of docs/semantics.md; the tests hold the rows against the oracle.
 */
import type { WeightsOf } from "../map/raster.js";
import { floats } from "./floats.js";
import type { Inputs } from "./inputs.js";
import type { Settings } from "./settings.js";

const biasLimit = 2 ** 126; // TSR_BIAS_LIMIT

export interface WeightSource {
  readonly batches: number;
  readonly heads: number;
  readonly queries: number;
  readonly keys: number;
  rows(batch: number, head: number): WeightsOf;
}

/** Where one query stands: its sequence, and that sequence's rows of q and k. */
interface Place {
  readonly batch: number;
  readonly query: number;
  readonly queryCount: number;
  readonly keyCount: number;
  /** Index of the sequence's first key among the map's columns; packed keys lie one sequence after the other. */
  readonly firstKey: number;
}

export function weightSource(inputs: Inputs, settings: Settings): WeightSource {
  const qShape = inputs.q.shape;
  const kShape = inputs.k.shape;
  const [queries, heads, dim] = qShape.slice(-3) as [number, number, number];
  const [keys, kvHeads] = kShape.slice(-3) as [number, number];
  const scale = settings.scale ?? 1 / Math.sqrt(dim);
  const softcap = settings.softcap ?? 0;
  const q = floats(inputs.q);
  const k = floats(inputs.k);
  const bias = inputs.bias && grid(inputs.bias, floats(inputs.bias));
  const mask = inputs.mask && grid(inputs.mask, inputs.mask.data);
  const { alibiSlopes: slopes, sinks } = inputs;

  const rows = (batch: number, head: number): WeightsOf => {
    const kvHead = Math.floor(head / (heads / kvHeads));
    return (row, weights) => {
      weights.fill(Number.NaN);
      const place = placeOf(inputs, batch, row);
      if (place === undefined) return;
      const { query, firstKey } = place;
      const offset = settings.align === "top-left" ? 0 : place.keyCount - place.queryCount;
      const span = visible(place.keyCount, query + offset, settings);
      const queryAt = ((qShape.length === 3 ? 0 : batch * queries) + row) * heads * dim + head * dim;
      const keyBase = kShape.length === 3 ? firstKey : place.batch * keys;

      const sink = sinks?.[head] ?? Number.NEGATIVE_INFINITY;
      let largest = sink;
      for (let j = span.begin; j < span.end; j++) {
        if (mask !== undefined && mask(place.batch, head, query, j) === 0) continue;
        const keyAt = ((keyBase + j) * kvHeads + kvHead) * dim;
        let score = 0;
        for (let d = 0; d < dim; d++) score += q[queryAt + d]! * k[keyAt + d]!;
        score *= scale;
        if (softcap > 0) score = softcap * Math.tanh(score / softcap);
        if (bias !== undefined) {
          const added = bias(place.batch, head, query, j);
          if (added === Number.NEGATIVE_INFINITY) continue;
          score += Math.max(-biasLimit, Math.min(biasLimit, added));
        }
        if (slopes !== undefined) score -= slopes[head]! * Math.abs(query + offset - j);
        weights[firstKey + j] = score;
        largest = Math.max(largest, score);
      }
      let sum = Math.exp(sink - largest);
      if (Number.isNaN(sum)) sum = 0; // no sink and no visible key
      for (let j = firstKey + span.begin; j < firstKey + span.end; j++) {
        if (Number.isNaN(weights[j])) continue;
        weights[j] = Math.exp(weights[j]! - largest);
        sum += weights[j]!;
      }
      for (let j = firstKey + span.begin; j < firstKey + span.end; j++) weights[j] = weights[j]! / sum;
    };
  };
  return { batches: qShape.length === 3 ? 1 : qShape[0]!, heads, queries, keys, rows };
}

/** Keys [begin, end) that a query at key position `at` sees by causality, window and length. */
function visible(keyCount: number, at: number, { causal, window }: Settings): { begin: number; end: number } {
  const [left, right] = window ?? [-1, -1];
  const begin = left < 0 ? 0 : Math.max(0, at - left);
  const last = causal ? at : right < 0 ? keyCount - 1 : at + right;
  return { begin, end: Math.min(keyCount, last + 1) };
}

function placeOf(inputs: Inputs, batch: number, row: number): Place | undefined {
  const { cuSeqLensQ: cuQ, cuSeqLensK: cuK, seqLensK: lensK } = inputs;
  const keysOf = (b: number) => {
    if (cuK !== undefined) return { keyCount: cuK[b + 1]! - cuK[b]!, firstKey: cuK[b]! };
    return { keyCount: lensK?.[b] ?? inputs.k.shape.at(-3)!, firstKey: 0 };
  };
  if (cuQ === undefined) {
    const queryCount = inputs.seqLensQ?.[batch] ?? inputs.q.shape.at(-3)!;
    return row < queryCount ? { batch, query: row, queryCount, ...keysOf(batch) } : undefined;
  }
  for (let b = 0; b + 1 < cuQ.length; b++) {
    if (row >= cuQ[b]! && row < cuQ[b + 1]!) {
      return { batch: b, query: row - cuQ[b]!, queryCount: cuQ[b + 1]! - cuQ[b]!, ...keysOf(b) };
    }
  }
  return undefined;
}

/** Element [b, h, i, j] of [B|1, H|1, Sq, Sk]; leading dimensions may be absent. */
function grid(
  tensor: { readonly shape: readonly number[] },
  data: ArrayLike<number>,
): (b: number, h: number, i: number, j: number) => number {
  const [batches, heads, queries, keys] = [...Array(4 - tensor.shape.length).fill(1), ...tensor.shape] as [
    number,
    number,
    number,
    number,
  ];
  return (b, h, i, j) => {
    const at = ((batches === 1 ? 0 : b) * heads + (heads === 1 ? 0 : h)) * queries + i;
    return data[at * keys + j]!;
  };
}
