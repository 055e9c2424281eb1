import { hidden, type Scale } from "./colour.js";

/** Fills `weights` with one query's weights; NaN where a key is hidden from it. */
export type WeightsOf = (query: number, weights: Float64Array) => void;

export interface Strongest {
  readonly key: number;
  readonly weight: number;
}

/** One head's weights, reduced to at most `limit` cells a side. */
export interface HeadRaster {
  readonly queries: number;
  readonly keys: number;
  readonly width: number;
  readonly height: number;
  /** Palette indices. */
  readonly pixels: Uint8Array;
  /** Queries and keys that a cell stands for; 1 and 1 = every weight is a pixel. */
  readonly queriesPerCell: number;
  readonly keysPerCell: number;
  /** Mean over the queries that see a key; bits. */
  readonly entropy: number;
  /** The three heaviest keys of the last query of each cell row. */
  readonly strongest: readonly (readonly Strongest[])[];
}

/**
 * A cell that stands for several weights shows the largest: a mean would wash out the thin lines that heads draw. A cell
 * is hidden only if all of it is. Memory is that of the picture and of one row.
 */
export function rasterise(
  queries: number,
  keys: number,
  weightsOf: WeightsOf,
  scale: Scale,
  limit: number,
): HeadRaster {
  const queriesPerCell = Math.max(1, Math.ceil(queries / limit));
  const keysPerCell = Math.max(1, Math.ceil(keys / limit));
  const width = Math.ceil(keys / keysPerCell);
  const height = Math.ceil(queries / queriesPerCell);
  const pixels = new Uint8Array(width * height).fill(hidden);
  const weights = new Float64Array(keys);
  const strongest: Strongest[][] = [];
  let bits = 0;
  let seeing = 0;
  for (let i = 0; i < queries; i++) {
    weightsOf(i, weights);
    const row = Math.floor(i / queriesPerCell) * width;
    let entropy = 0;
    let sum = 0;
    for (let j = 0; j < keys; j++) {
      const weight = weights[j]!;
      if (Number.isNaN(weight)) continue;
      const cell = row + Math.floor(j / keysPerCell);
      pixels[cell] = Math.max(pixels[cell]!, scale.index(weight));
      if (weight > 0) entropy -= weight * Math.log2(weight);
      sum += weight;
    }
    if (sum > 0) {
      bits += entropy;
      seeing++;
    }
    strongest[Math.floor(i / queriesPerCell)] = topOf(weights);
  }
  const entropy = seeing === 0 ? 0 : bits / seeing;
  return { queries, keys, width, height, pixels, queriesPerCell, keysPerCell, entropy, strongest };
}

function topOf(weights: Float64Array): Strongest[] {
  const top: Strongest[] = [];
  for (let key = 0; key < weights.length; key++) {
    const weight = weights[key]!;
    if (Number.isNaN(weight) || (top.length === 3 && weight <= top[2]!.weight)) continue;
    top.push({ key, weight });
    top.sort((a, b) => b.weight - a.weight);
    top.length = Math.min(3, top.length);
  }
  return top;
}
