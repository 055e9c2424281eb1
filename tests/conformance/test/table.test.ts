import { loadBackend } from "@tessera/core";
import { expect, it } from "vitest";
import type { AttentionCase } from "../src/case.js";
import { cases, runConformance, selectCases } from "../src/index.js";

const attention = cases.filter((c): c is AttentionCase => c.kind === "attention");
const has = (what: string, test: (c: AttentionCase) => unknown) => expect(attention.some(test), what).toBe(true);

it("names are unique and every case says what it is for", () => {
  expect(new Set(cases.map((c) => c.name)).size).toBe(cases.length);
  for (const c of cases) expect(c.about.length, c.name).toBeGreaterThan(3);
});

it("levels nest", () => {
  const quick = selectCases({ quick: true, badInput: false }).length;
  const full = selectCases({ badInput: false }).length;
  expect(quick).toBeGreaterThan(400);
  expect(full).toBeGreaterThan(quick);
  expect(selectCases({ cases: /^bad\// }).length).toBeGreaterThan(40);
  expect(selectCases({ long: true, badInput: false }).length).toBe(cases.length);
});

it("parts together are the table, each case once", () => {
  const parts = [0, 1, 2].map((n) => selectCases({ part: [n, 3] }).map(({ name }) => name));
  for (const part of parts) expect(part.length).toBeGreaterThan(selectCases().length / 4);
  const names = selectCases().map(({ name }) => name);
  expect(parts.flat().sort()).toEqual(names.sort());
});

it("no case begins when the time is over, and the report says how many there were", async () => {
  const run = async (until: number) =>
    runConformance({ backend: await loadBackend("reference"), cases: /^length\//, quick: true, until });
  const whole = await run(Date.now() + 600_000);
  expect(whole.cases).toBeGreaterThan(5);
  expect(whole.cases).toBe(whole.selected);
  expect(await run(Date.now() - 1)).toMatchObject({ cases: 0, selected: whole.selected, passed: 0, conformant: false });
});

it("covers what docs/semantics.md promises", () => {
  for (const d of [1, 8, 33, 40, 64, 80, 88, 96, 128, 192, 224, 256, 512])
    has(`D ${d}`, (c) => c.dim === d && c.valueDim === d);
  has("Dv", (c) => c.dim === 192 && c.valueDim === 128);
  for (const ratio of [1, 4, 7, 8, 12]) has(`ratio ${ratio}`, (c) => c.heads / c.kvHeads === ratio && c.kvHeads > 1);
  for (const n of [0, 1, 2, 3, 5, 9, 12, 63, 64, 65, 127, 128, 129, 257]) {
    has(`Sq ${n}`, (c) => c.queries === n);
    has(`Sk ${n}`, (c) => c.keys === n);
  }
  for (const q of ["f32", "f16", "bf16"]) {
    for (const k of ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"]) {
      for (const v of ["f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0"]) {
        has(`${q}/${k}/${v}`, (c) => c.types.q === q && c.types.k === k && c.types.v === v);
      }
    }
  }
  has("negative scale", (c) => (c.scale ?? 0) < 0);
  has("scale 0", (c) => c.scale === 0);
  has("H 12 ALiBi", (c) => c.heads === 12 && c.alibi === "standard");
  has("shared pages", (c) => c.pages?.share);
  for (const size of [16, 64, 128, 256]) has(`pages of ${size}`, (c) => c.pages?.size === size);
  has("packed q over pages", (c) => c.packedQ && c.pages);
  has("packed q over padded", (c) => c.packedQ && !c.packedK && c.lengthsK);
  has("no lse", (c) => !c.wantLse);
});
