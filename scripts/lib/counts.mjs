// The counts line that lanes print and the runner reads (described in ../lanes.mjs).
const mark = "::tessera ";

export const none = () => ({ passed: 0, failed: 0, skipped: 0, reasons: {} });

export function add(sum, counts) {
  for (const key of ["passed", "failed", "skipped"]) sum[key] += counts[key] ?? 0;
  for (const [reason, n] of Object.entries(counts.reasons ?? {})) sum.reasons[reason] = (sum.reasons[reason] ?? 0) + n;
  return sum;
}

export const line = (counts) => mark + JSON.stringify(counts);

/** The sum of all counts lines in a text, or null if it has none. A line may have something before the mark. */
export function parse(text) {
  let sum = null;
  for (const row of text.split("\n")) {
    const at = row.indexOf(mark);
    if (at < 0) continue;
    try {
      sum = add(sum ?? none(), JSON.parse(row.slice(at + mark.length)));
    } catch {
      sum = add(sum ?? none(), { failed: 1, reasons: {} });
    }
  }
  return sum;
}

/** What a program that has ended said: nothing is a failure, and so is an exit status that tells of one its counts don't. */
export function told(status, text) {
  const counts = parse(text);
  if (counts && (status === 0 || counts.failed > 0)) return counts;
  return { ...(counts ?? none()), failed: 1 };
}

export const sentence = ({ passed, failed, skipped }) => `${passed} passed, ${failed} failed, ${skipped} skipped`;
