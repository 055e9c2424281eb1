/** Option objects: no unknown names, and for a slip of the pen the name that was meant. */
import { describe, list } from "./host-tensor.js";
import { invalid } from "./invalid.js";

/** Edits (insert, delete, replace, swap neighbours) from one word to another. */
function distance(from: string, to: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: to.length + 1 }, (_, j) => j);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1];
      let cost = Math.min(previous[j]! + 1, row[j - 1]! + 1, previous[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1])
        cost = Math.min(cost, before[j - 2]! + 1);
      row[j] = cost;
    }
    before = previous;
    previous = row;
  }
  return previous[to.length]!;
}

const plain = (word: string) => word.toLowerCase().replaceAll(/[_-]/g, "");

/** The known name closest to an unknown one, if any is close. */
export function closest(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const edits = distance(plain(name), plain(candidate));
    if (edits < least) {
      least = edits;
      best = candidate;
    }
  }
  return best;
}

const others: Readonly<Record<string, string>> = {
  is_causal: 'causal: true with align: "top-left"',
  isCausal: 'causal: true with align: "top-left"',
  attn_mask: "mask (boolean) or bias",
  attnMask: "mask (boolean) or bias",
  softmax_scale: "scale",
  softmaxScale: "scale",
  sm_scale: "scale",
  logits_soft_cap: "softcap",
  block_table: "pageTable",
  blockTable: "pageTable",
};

/** " Did you mean …?" or nothing. */
export function suggestion(name: string, known: Iterable<string>): string {
  const meant = Object.hasOwn(others, name) ? others[name] : closest(name, known);
  return meant === undefined ? "" : ` Did you mean ${meant}?`;
}

/**
 * Checks that `options` is an object with known names only.
 *
 * @throws TesseraError `invalid-argument`
 */
export function checkNames(options: unknown, known: ReadonlySet<string>, call: string): asserts options is object {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw invalid(`${call} takes an object of options; got ${describe(options)}`);
  }
  for (const name in options) {
    if (!known.has(name) && (options as Record<string, unknown>)[name] !== undefined) {
      throw invalid(
        `${call} has no option ${JSON.stringify(name)}.${suggestion(name, known)} It has: ${[...known].join(", ")}`,
      );
    }
  }
}

/** Checks that a value is one of a few words. */
export function checkWord<T extends string>(value: unknown, allowed: readonly T[], name: string): asserts value is T {
  if (!allowed.includes(value as T)) throw invalid(`${name} is ${describe(value)}; allowed: ${list(allowed)}`);
}

/** Checks that a value, if given, is a boolean. */
export function checkBoolean(value: unknown, name: string): asserts value is boolean | undefined {
  if (value !== undefined && typeof value !== "boolean")
    throw invalid(`${name} is ${describe(value)}; allowed: true or false`);
}

/** Checks that a value is a whole number in a range. */
export function checkWhole(
  value: unknown,
  least: number,
  name: string,
  most = Number.MAX_SAFE_INTEGER,
): asserts value is number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < least || value > most) {
    const range = most === Number.MAX_SAFE_INTEGER ? `>= ${least}` : `from ${least} to ${most}`;
    throw invalid(`${name} is ${describe(value)}; allowed: whole numbers ${range}`);
  }
}

/** Checks that a value, if given, is an AbortSignal. */
export function checkSignal(value: unknown, name = "signal"): asserts value is AbortSignal | undefined {
  if (value !== undefined && !(value instanceof AbortSignal))
    throw invalid(`${name} is ${describe(value)}; allowed: an AbortSignal`);
}
