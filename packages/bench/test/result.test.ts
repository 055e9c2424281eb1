import { describe, expect, it } from "vitest";
import type { ResultFile } from "../src/result.js";
import { parseResult, validateResult } from "../src/validate.js";
import { imagined } from "./support.js";

const good = imagined("GPU");

/** The good one with another value at a place; undefined takes it away. */
function changed(place: string, value: unknown): string {
  const copy = JSON.parse(JSON.stringify(good)) as object;
  const keys = place.split(".");
  const last = keys.pop()!;
  const holder = keys.reduce((object, key) => (object as Record<string, object>)[key]!, copy);
  (holder as Record<string, unknown>)[last] = value;
  return JSON.stringify(copy);
}

describe("result files", () => {
  it("are taken as they are", () => {
    expect(parseResult(JSON.stringify(good), "a.json")).toEqual(good);
  });

  const bad: [string, string, RegExp][] = [
    ["half a file", JSON.stringify(good).slice(0, 900), /a\.json: is damaged: /],
    ["nothing", "", /is damaged/],
    ["something else", '{"format":"other"}', /is no result of `tessera bench`/],
    ["null", "null", /is no result/],
    ["another version", changed("version", 2), /is a result of version 2; this program reads version 1/],
    ["a literal NaN", JSON.stringify(good).replace(/"median":[\d.]+/, '"median":NaN'), /is damaged/],
    ["NaN as JSON writes it", changed("measurements.0.median", null), /measurements\.0\.median must be number/],
    ["a member too many", changed("devices.0.colour", "red"), /devices\.0 .*colour/],
    ["a member too few", changed("host", undefined), /host/],
    ["a time below zero", changed("measurements.2.samples.3", -1), /measurements\.2\.samples\.3/],
    ["a device that isn't there", changed("measurements.1.device", "hip:3"), /hip:3/],
    ["two devices of one name", changed("devices.1", good.devices[0]), /same key/],
    ["a text of any length", changed("version", "x".repeat(1e5)), /^a\.json: .{1,400}$/],
    ["samples beyond counting", changed("measurements.0.samples", Array(300_000).fill(1e9)), /median is not among/],
    ["no samples", changed("measurements.0.samples", []), /no samples/],
    ["a median from elsewhere", changed("measurements.0.median", 1e9), /median is not among/],
  ];
  it.each(bad)("are refused, and named: %s", (_, text, message) => {
    expect(() => parseResult(text, "a.json")).toThrowError(message);
    expect(() => parseResult(text, "a.json")).toThrowError(/^a\.json: /);
  });

  it("NaN in memory is refused before it is written", () => {
    const [first, ...others] = good.measurements;
    const measurements = [{ ...first!, median: Number.NaN }, ...others];
    expect(() => validateResult({ ...good, measurements } as ResultFile, "this run")).toThrowError(
      /median must be number/,
    );
  });
});
