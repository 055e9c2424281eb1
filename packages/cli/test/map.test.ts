import { type OracleOptions, oracle } from "@tessera/core";
import { describe, expect, it } from "vitest";
import type { Inputs } from "../src/attend/inputs.js";
import type { Settings } from "../src/attend/settings.js";
import { weightSource } from "../src/attend/weights.js";
import { hidden, palette, ramp, Scale } from "../src/map/colour.js";
import { layOut, panelSize, ticks } from "../src/map/layout.js";
import { rasterise } from "../src/map/raster.js";
import { drawMap } from "../src/map/svg.js";
import { glyph, inContext, textFor } from "../src/map/text.js";
import { random } from "./helpers.js";
import { checkXml, rasters } from "./png.js";

const next = random(1);
const tensor = (...shape: number[]) => ({
  dtype: "f32" as const,
  shape,
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, next),
});
const ints = (...data: number[]) => Int32Array.from(data);

function inputs(more: Partial<Inputs> = {}, [sq, sk, hq, hkv] = [6, 9, 4, 2]): Inputs {
  return {
    prefix: "",
    q: tensor(1, sq!, hq!, 8),
    k: tensor(1, sk!, hkv!, 8),
    v: tensor(1, sk!, hkv!, 8),
    unbatched: true,
    ...more,
  };
}

function row(source: ReturnType<typeof weightSource>, head: number, query: number): number[] {
  const weights = new Float64Array(source.keys);
  source.rows(0, head)(query, weights);
  return [...weights];
}

const seen = (weights: readonly number[]) => weights.map((w, j) => (Number.isNaN(w) ? -1 : j)).filter((j) => j >= 0);
const sum = (weights: readonly number[]) => weights.filter((w) => !Number.isNaN(w)).reduce((a, b) => a + b, 0);

describe("weights", () => {
  it("are the softmax of the scaled scores, with the head's own keys", () => {
    const given = inputs();
    const source = weightSource(given, { prefix: [] });
    const [q, k] = [given.q.data as Float32Array, given.k.data as Float32Array];
    for (const head of [0, 1, 2, 3]) {
      const scores = Array.from({ length: 9 }, (_, j) => {
        let dot = 0;
        for (let d = 0; d < 8; d++) dot += q[(2 * 4 + head) * 8 + d]! * k[(j * 2 + (head >> 1)) * 8 + d]!;
        return Math.exp(dot / Math.sqrt(8));
      });
      const total = scores.reduce((a, b) => a + b, 0);
      row(source, head, 2).forEach((weight, j) => {
        expect(weight).toBeCloseTo(scores[j]! / total, 12);
      });
    }
  });

  it("hide by causality with both alignments, window and lengths", () => {
    const at = (settings: object, query: number, more: Partial<Inputs> = {}) =>
      seen(row(weightSource(inputs(more), { prefix: [], ...settings }), 0, query));
    expect(at({ causal: true }, 0)).toEqual([0, 1, 2, 3]);
    expect(at({ causal: true }, 5)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(at({ causal: true, align: "top-left" }, 0)).toEqual([0]);
    expect(at({ window: [2, 0] }, 0)).toEqual([1, 2, 3]);
    expect(at({ window: [1, 1] }, 5)).toEqual([7, 8]);
    expect(at({ window: [-1, 1], align: "top-left" }, 1)).toEqual([0, 1, 2]);
    expect(at({}, 0, { seqLensK: ints(4) })).toEqual([0, 1, 2, 3]);
    expect(at({ causal: true }, 0, { seqLensK: ints(7), seqLensQ: ints(2) })).toEqual([0, 1, 2, 3, 4, 5]);
    expect(at({}, 2, { seqLensK: ints(7), seqLensQ: ints(2) })).toEqual([]);
    expect(at({ causal: true }, 0, { k: tensor(1, 3, 2, 8) })).toEqual([]); // 6 queries, 3 keys
  });

  it("follow mask, bias, ALiBi, softcap and sinks", () => {
    const mask = {
      dtype: "bool" as const,
      shape: [6, 9],
      data: Uint8Array.from({ length: 54 }, (_, n) => (n % 9) % 2),
    };
    expect(seen(row(weightSource(inputs({ mask }), { prefix: [] }), 1, 3))).toEqual([1, 3, 5, 7]);

    const bias = tensor(4, 6, 9);
    bias.data.fill(0);
    bias.data[(2 * 6 + 1) * 9 + 4] = Number.NEGATIVE_INFINITY;
    bias.data[(2 * 6 + 1) * 9 + 5] = 50;
    const source = weightSource(inputs({ bias }), { prefix: [] });
    expect(seen(row(source, 2, 1))).toEqual([0, 1, 2, 3, 5, 6, 7, 8]);
    expect(row(source, 2, 1)[5]).toBeCloseTo(1, 9);
    expect(seen(row(source, 1, 1)).length).toBe(9);

    const slopes = Float32Array.of(40, 0, 0, 0);
    const near = row(weightSource(inputs({ alibiSlopes: slopes }), { prefix: [] }), 0, 2);
    expect(near.indexOf(Math.max(...near))).toBe(5); // at its own position, offset 3

    const capped = row(weightSource(inputs(), { prefix: [], scale: 1000, softcap: 0.001 }), 0, 0);
    for (const weight of capped) expect(weight).toBeCloseTo(1 / 9, 3);

    const sinks = Float32Array.of(100, -100, 0, 0);
    const sunk = weightSource(inputs({ sinks }), { prefix: [] });
    expect(sum(row(sunk, 0, 0))).toBeLessThan(1e-30);
    expect(sum(row(sunk, 1, 0))).toBeCloseTo(1, 12);
  });

  it("are what the oracle gives to values that are the identity", () => {
    const lens = { seqLensQ: ints(5), seqLensK: ints(8) };
    const slopes = Float32Array.of(0.5, 0.1, 2, 0);
    const sinks = Float32Array.of(0, 1, -2, 0.5);
    const bias = tensor(1, 6, 9);
    bias.data[13] = Number.NEGATIVE_INFINITY;
    const mask = { dtype: "bool" as const, shape: [4, 6, 9], data: Uint8Array.from({ length: 216 }, (_, n) => n % 5) };
    const settings: Omit<Settings, "prefix">[] = [
      {},
      { causal: true },
      { causal: true, align: "top-left", softcap: 0.7 },
      { window: [2, 1], scale: -0.3 },
      { window: [3, 0], align: "top-left" },
      { causal: true, window: [1, 2] },
    ];
    const tensors: Partial<Inputs>[] = [
      {},
      lens,
      { bias },
      { mask },
      { alibiSlopes: slopes, sinks },
      { bias, mask, sinks, ...lens },
    ];
    for (const given of settings) {
      for (const more of tensors) {
        const all = inputs(more);
        const identity = Float32Array.from({ length: 9 * 9 * 2 }, (_, n) => (Math.floor(n / 18) === n % 9 ? 1 : 0));
        const { out } = oracle({
          ...given,
          q: all.q,
          k: all.k,
          v: { data: identity, shape: [1, 9, 2, 9] },
          ...more,
        } as OracleOptions);
        const source = weightSource(all, { prefix: [], ...given });
        for (let head = 0; head < 4; head++) {
          for (let query = 0; query < 6; query++) {
            row(source, head, query).forEach((weight, j) => {
              expect(Number.isNaN(weight) ? 0 : weight).toBeCloseTo(out[(query * 4 + head) * 9 + j]!, 10);
            });
          }
        }
      }
    }
  });

  it("keep packed sequences apart", () => {
    const packed = inputs({
      q: tensor(5, 4, 8),
      k: tensor(7, 2, 8),
      cuSeqLensQ: ints(0, 2, 2, 5),
      cuSeqLensK: ints(0, 3, 4, 7),
    });
    const source = weightSource(packed, { prefix: [], causal: true });
    expect(seen(row(source, 0, 0))).toEqual([0, 1]);
    expect(seen(row(source, 0, 1))).toEqual([0, 1, 2]);
    expect(seen(row(source, 0, 2))).toEqual([4]);
    expect(sum(row(source, 3, 4))).toBeCloseTo(1, 12);

    // A mask of each sequence's own.
    const mask = { dtype: "bool" as const, shape: [3, 1, 3, 3], data: new Uint8Array(27).fill(1) };
    mask.data[2 * 9 + 1] = 0; // sequence 2, query 0, key 1
    const masked = weightSource({ ...packed, mask }, { prefix: [] });
    expect(seen(row(masked, 0, 0))).toEqual([0, 1, 2]);
    expect(seen(row(masked, 0, 2))).toEqual([4, 6]);
  });
});

describe("scale and colours", () => {
  it("tells hidden from zero, rises with the weight, and reads back", () => {
    const scale = new Scale(512);
    expect(scale.floor).toBeCloseTo(1e-4, 12);
    expect(scale.index(0)).toBe(1);
    expect(scale.index(Number.NaN)).toBe(1);
    expect(scale.index(1)).toBe(255);
    let last = 0;
    for (let w = 1e-5; w <= 1; w *= 1.01) {
      const index = scale.index(w);
      expect(index).toBeGreaterThanOrEqual(last);
      if (w > scale.floor * 1.05) expect(Math.abs(scale.weight(index) / w - 1)).toBeLessThan(0.03);
      last = index;
    }
  });

  it("has a ramp of rising lightness and a transparent entry for hidden", () => {
    expect(palette()[hidden]).toEqual([0, 0, 0, 0]);
    // CIE L*, of another colour space than the ramp is made in.
    const lightness = (t: number) => {
      const y = ramp(t).reduce((a, c, n) => a + (c / 255) ** 2.2 * [0.2126, 0.7152, 0.0722][n]!, 0);
      return y > 0.00886 ? 116 * Math.cbrt(y) - 16 : 903.3 * y;
    };
    for (let t = 0; t < 0.96; t += 0.04) expect(lightness(t + 0.04)).toBeGreaterThan(lightness(t));
    expect(lightness(0)).toBeLessThan(8);
    expect(lightness(1)).toBeGreaterThan(90);
  });
});

describe("raster", () => {
  it("shows the largest weight of a cell, and hides a cell only if all of it is hidden", () => {
    const scale = new Scale(4);
    const rows = [
      [0.9, 0.05, Number.NaN, Number.NaN],
      [0.1, 0.2, 0.7, Number.NaN],
      [0.25, 0.25, 0.25, 0.25],
    ];
    const raster = rasterise(3, 4, (i, weights) => weights.set(rows[i]!), scale, 2);
    expect([raster.width, raster.height, raster.queriesPerCell, raster.keysPerCell]).toEqual([2, 2, 2, 2]);
    expect([...raster.pixels]).toEqual([0.9, 0.7, 0.25, 0.25].map((w) => scale.index(w)));
    expect(raster.strongest[0]).toEqual([
      { key: 2, weight: 0.7 },
      { key: 1, weight: 0.2 },
      { key: 0, weight: 0.1 },
    ]);
    const empty = rasterise(2, 2, (_, weights) => void weights.fill(Number.NaN), scale, 2);
    expect([...empty.pixels]).toEqual([hidden, hidden, hidden, hidden]);
  });

  it("has ticks at round positions and at the last one", () => {
    expect(ticks(512, 560)).toEqual([0, 64, 128, 192, 256, 320, 384, 448, 511]);
    expect(ticks(0, 100)).toEqual([]);
    expect(ticks(1, 100)).toEqual([0]);
    expect(ticks(5, 300)).toEqual([0, 1, 2, 3, 4]);
    expect(ticks(1_000_000, 200).length).toBeLessThan(8);
  });

  it("lays out one head, many heads, and shapes that are far from square", () => {
    for (const heads of [1, 2, 3, 4, 7, 9, 16, 32, 64]) {
      for (const [width, height] of [
        [512, 512],
        [576, 1],
        [1, 576],
        [0, 0],
      ] as const) {
        const layout = layOut(heads, { width, height });
        expect(layout.panels.length).toBe(heads);
        for (const box of layout.panels) {
          expect(box.width).toBeGreaterThan(8);
          expect(box.height).toBeGreaterThan(8);
          expect(box.x + box.width).toBeLessThan(layout.legend.x);
          expect(box.y + box.height).toBeLessThan(layout.height);
        }
      }
      expect(panelSize(heads).cells ** 2 * heads).toBeLessThan(600_000);
    }
  });
});

describe("picture", () => {
  const draw = (heads: number, text?: string) => {
    const source = weightSource(inputs({}, [24, 24, 8, 2]), { prefix: [], causal: true });
    const scale = new Scale(24);
    const metadata = new Map(text === undefined ? [] : [["text", text]]);
    const svg = drawMap({
      title: 'a <"title"> & more \u0001',
      options: "causal",
      scale,
      queryText: textFor(metadata, 24),
      keyText: textFor(metadata, 24),
      heads: Array.from({ length: heads }, (_, head) => ({
        head,
        raster: rasterise(24, 24, source.rows(0, head), scale, 100),
      })),
    });
    return { svg, scale };
  };

  it.each([1, 4, 8])("of %i heads is XML whose rasters hold the weights", (heads) => {
    const { svg, scale } = draw(heads);
    checkXml(svg);
    const images = rasters(svg);
    expect(images.length).toBe(heads);
    for (const { width, height, pixels, palette: colours } of images) {
      expect([width, height]).toEqual([24, 24]);
      expect(colours.filter(([, , , alpha]) => alpha === 0).length).toBe(1);
      for (let i = 0; i < 24; i++) {
        const line = [...pixels.subarray(i * 24, (i + 1) * 24)];
        expect(line.map((index) => index !== hidden)).toEqual(line.map((_, j) => j <= i));
        expect(line.reduce((total, index) => total + scale.weight(index), 0)).toBeCloseTo(1, 1);
      }
    }
  });

  it("names queries and keys by the text that they stand for, only if it has their length", () => {
    const text = "In the beginning <God> &\n";
    expect(draw(1, text).svg).not.toContain("[G]"); // 25 bytes
    const { svg } = draw(1, text.slice(0, 24));
    checkXml(svg);
    expect(svg).toContain("query 18  In the beginning &#60;[G]");
    expect(svg).toMatch(/% {2}key \d+ {2}/);
    expect(svg).toContain(">&#38;<");
  });

  it("shows bytes that are no characters", () => {
    expect([0x20, 0x0a, 0x41, 0xc3, 0x00, undefined].map(glyph)).toEqual(["␣", "⏎", "A", "\\xc3", "\\x00", ""]);
    const text = textFor(new Map([["text", "né"]]), 3)!;
    expect(inContext(text, 2)).toBe("n\\xc3[\\xa9]");
    expect(textFor(new Map([["text", "né"]]), 2)).toBeUndefined();
  });
});
