/** Files that something went wrong with: what fast-check draws, applied to a good one. */
import fc from "fast-check";

/** One thing that happens to bytes, at a place given as a share of their length. */
type Damage =
  | { readonly kind: "flip"; readonly at: number; readonly bit: number }
  | { readonly kind: "set"; readonly at: number; readonly value: number }
  | { readonly kind: "cut"; readonly at: number }
  | { readonly kind: "drop"; readonly at: number; readonly count: number }
  | { readonly kind: "repeat"; readonly at: number; readonly count: number; readonly times: number }
  | { readonly kind: "insert"; readonly at: number; readonly text: string };

/** What parsers of JSON and of lengths stumble over. */
const words = [
  ...'{}[]",:\\\0\ufeff',
  ...[
    "null",
    "true",
    "-0",
    "1e999",
    "-1",
    "1e-400",
    "NaN",
    "9007199254740993",
    "18446744073709551615",
    '"__proto__":{',
  ],
  ...['"constructor":', "[[[[[[[[[[", '{"a":{"a":{"a":', "\\u0000", "\\ud800", "0".repeat(400), ",".repeat(50)],
];

const share = fc.double({ min: 0, max: 1, noNaN: true });
const damage: fc.Arbitrary<Damage> = fc.oneof(
  fc.record({ kind: fc.constant("flip" as const), at: share, bit: fc.integer({ min: 0, max: 7 }) }),
  fc.record({ kind: fc.constant("set" as const), at: share, value: fc.integer({ min: 0, max: 255 }) }),
  fc.record({ kind: fc.constant("cut" as const), at: share }),
  fc.record({ kind: fc.constant("drop" as const), at: share, count: fc.integer({ min: 1, max: 64 }) }),
  fc.record({
    kind: fc.constant("repeat" as const),
    at: share,
    count: fc.integer({ min: 1, max: 64 }),
    times: fc.integer({ min: 1, max: 200 }),
  }),
  fc.record({ kind: fc.constant("insert" as const), at: share, text: fc.constantFrom(...words) }),
);

function apply(bytes: Buffer, d: Damage): Buffer {
  const at = Math.floor(d.at * bytes.length);
  const [head, tail] = [bytes.subarray(0, at), bytes.subarray(at)];
  if (d.kind === "cut") return head;
  if (d.kind === "drop") return Buffer.concat([head, tail.subarray(d.count)]);
  if (d.kind === "insert") return Buffer.concat([head, Buffer.from(d.text), tail]);
  if (d.kind === "repeat") {
    const piece = tail.subarray(0, d.count);
    return Buffer.concat([head, ...Array<Buffer>(d.times).fill(piece), tail]);
  }
  const copy = Buffer.from(bytes);
  if (at < copy.length) copy[at] = d.kind === "set" ? d.value : (copy[at] as number) ^ (1 << d.bit);
  return copy;
}

/** One of the good files with up to six things wrong, or any bytes at all. */
export function corrupted(good: readonly Buffer[]): fc.Arbitrary<Buffer> {
  const damaged = fc
    .tuple(fc.constantFrom(...good), fc.array(damage, { minLength: 0, maxLength: 6 }))
    .map(([file, all]) => all.reduce(apply, file));
  const any = fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes));
  return fc.oneof({ arbitrary: damaged, weight: 20 }, any);
}

/** A JSON value in which one member, however deep, is another value. */
export function altered(good: unknown): fc.Arbitrary<unknown> {
  const places: (readonly (string | number)[])[] = [[]];
  const walk = (value: unknown, path: readonly (string | number)[]): void => {
    if (typeof value !== "object" || value === null) return;
    for (const key of Object.keys(value)) {
      places.push([...path, key]);
      walk((value as Record<string, unknown>)[key], [...path, key]);
    }
  };
  walk(good, []);
  const values = fc.oneof(
    fc.jsonValue({ maxDepth: 3 }),
    fc.constantFrom<unknown>(undefined, null, -1, 1e308, 2 ** 53, "", "x".repeat(1e5), [], {}, Array(200_000).fill(1)),
  );
  return fc.tuple(fc.constantFrom(...places), values).map(([path, value]) => {
    if (path.length === 0) return value;
    const copy = structuredClone(good) as Record<string | number, unknown>;
    let holder = copy;
    for (const key of path.slice(0, -1)) holder = holder[key] as typeof copy;
    holder[path.at(-1) as string] = value;
    return copy;
  });
}

/** Seconds for a property, and a seed: TESSERA_FUZZ_SEED, else the clock. A failure prints it. */
export function lasting<T>(seconds: number): fc.Parameters<T> {
  return {
    seed: Number(process.env.TESSERA_FUZZ_SEED ?? Date.now() % 0x7fffffff),
    numRuns: 10_000_000,
    interruptAfterTimeLimit: seconds * 1000,
    markInterruptAsFailure: false,
  };
}
