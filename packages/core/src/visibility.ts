/**
 * Which keys a query may see by structure: causality, window, lengths, offset. The mirror of
 * backends/common/include/tessera/common/visibility.h.
 *
 * Query i of a sequence stands at key position i + offset. It sees keys j with
 *   max(0, i + offset - left) <= j <= min(keyCount - 1, i + offset + right).
 * Causality is right = 0.
 */

/** Half-open range [begin, end). */
export interface Span {
  readonly begin: number;
  readonly end: number;
}

const nothing: Span = { begin: 0, end: 0 };

/** The structure of one sequence. */
export interface Visibility {
  readonly keyCount: number;
  readonly offset: number;
  /** >= 0; Infinity without a bound. */
  readonly left: number;
  readonly right: number;
}

/** The bounds of a window (-1 = unbounded) together with causality. */
export function makeVisibility(
  keyCount: number,
  offset: number,
  causal: boolean,
  windowLeft: number,
  windowRight: number,
): Visibility {
  const left = windowLeft < 0 ? Number.POSITIVE_INFINITY : windowLeft;
  const wide = windowRight < 0 ? Number.POSITIVE_INFINITY : windowRight;
  return { keyCount, offset, left, right: causal ? 0 : wide };
}

function between(first: number, last: number, count: number): Span {
  const begin = Math.max(first, 0);
  const end = Math.min(last + 1, count);
  return begin < end ? { begin, end } : nothing;
}

/** Keys that query i sees. */
export function visibleKeys(seen: Visibility, i: number): Span {
  const position = i + seen.offset;
  return between(position - seen.left, position + seen.right, seen.keyCount);
}

/**
 * Keys that at least one query of the range sees, as one range. Both bounds grow with i by one, so the first query
 * gives the lower one and the last query the upper, with no gap between.
 */
export function visibleKeysOf(seen: Visibility, queries: Span): Span {
  if (queries.begin >= queries.end) return nothing;
  const first = queries.begin + seen.offset - seen.left;
  const last = queries.end - 1 + seen.offset + seen.right;
  return between(first, last, seen.keyCount);
}

/** Queries of [0, queryCount) that see key j. */
export function seeingQueries(seen: Visibility, j: number, queryCount: number): Span {
  if (j < 0 || j >= seen.keyCount) return nothing;
  return between(j - seen.right - seen.offset, j + seen.left - seen.offset, queryCount);
}
