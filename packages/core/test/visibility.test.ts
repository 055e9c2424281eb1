import { describe, expect, it } from "vitest";
import { makeVisibility, seeingQueries, visibleKeys, visibleKeysOf } from "../src/visibility.js";

describe("visibility", () => {
  it("is the definition, for every small shape", () => {
    let checked = 0;
    const windows = [-1, 0, 1, 3];
    for (const queryCount of [0, 1, 2, 5]) {
      for (const keyCount of [0, 1, 2, 4, 7]) {
        for (const offset of [-9, -3, -1, 0, 1, 2, 6, 9]) {
          for (const causal of [false, true]) {
            for (const left of windows) {
              for (const right of windows) {
                const seen = makeVisibility(keyCount, offset, causal, left, right);
                const visible = (i: number, j: number) =>
                  (!causal || j <= i + offset) &&
                  (left < 0 || j >= i + offset - left) &&
                  (right < 0 || j <= i + offset + right);
                const any = new Set<number>();
                for (let i = 0; i < queryCount; i++) {
                  const { begin, end } = visibleKeys(seen, i);
                  for (let j = 0; j < keyCount; j++) {
                    const inside = j >= begin && j < end;
                    if (inside !== visible(i, j)) expect.fail(`query ${i}, key ${j}: ${JSON.stringify(seen)}`);
                    if (inside) any.add(j);
                    const queries = seeingQueries(seen, j, queryCount);
                    if (i >= queries.begin && i < queries.end !== visible(i, j)) expect.fail(`transpose: ${i}, ${j}`);
                    checked++;
                  }
                }
                const all = visibleKeysOf(seen, { begin: 0, end: queryCount });
                expect(all.end - all.begin).toBe(any.size);
                for (const j of any) expect(j >= all.begin && j < all.end).toBe(true);
              }
            }
          }
        }
      }
    }
    expect(checked).toBeGreaterThan(20_000);
  });

  it("bounds far beyond any key do no harm", () => {
    const seen = makeVisibility(5, -(2 ** 31), true, 2 ** 50, 2 ** 50);
    expect(visibleKeys(seen, 2 ** 31)).toEqual({ begin: 0, end: 1 });
    expect(visibleKeys(seen, 0)).toEqual({ begin: 0, end: 0 });
  });
});
