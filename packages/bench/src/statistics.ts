/** Order statistics of samples. */

/** The q-quantile by linear interpolation between order statistics. NaN of nothing. */
export function quantile(samples: readonly number[], q: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  const above = sorted[Math.ceil(at)] ?? Number.NaN;
  return below + (above - below) * (at - Math.floor(at));
}

export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

/** Interquartile range over median: what half of all samples stay within. */
export function spread(samples: readonly number[]): number {
  const middle = median(samples);
  return middle > 0 ? (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle : 0;
}
