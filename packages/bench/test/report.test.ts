import { describe, expect, it } from "vitest";
import { csvOf } from "../src/report/csv.js";
import { modelOf } from "../src/report/model.js";
import { renderReport } from "../src/report/render.js";
import { imagined } from "./support.js";

const files = [
  { name: "h.json", result: imagined("Imagined <One>") },
  { name: "m.json", result: imagined("Imagined Two", "cpu", 0.5, { state: "interrupted", note: "</script><b>" }) },
];
const page = renderReport(files);

describe("the page", () => {
  it("needs nothing but itself", () => {
    expect(page).not.toMatch(/<(script|link|img|iframe)[^>]+(src|href)="(?!data:)/);
    expect(page.replaceAll("http://www.w3.org/", "").match(/fetch\(|XMLHttpRequest|import\(/)).toBeNull();
    expect(page.length).toBeLessThan(600_000);
  });
  it("says what files say, and lets none of it become markup", () => {
    expect(page).toContain("Imagined &lt;One&gt;");
    expect(page).not.toContain("Imagined <One>");
    expect(page).not.toContain("</script><b>");
    expect(page.match(/<\/script>/g)).toHaveLength(3);
    expect(page).toContain("m.json is part of a run: it was interrupted.");
    expect(page).toContain("Not measured: 2 cases");
  });
  it("has every number in a table, ratios, the article's steps and who is missing", () => {
    expect(page).toContain("not run: no device");
    expect(page).toMatch(/<th scope="row">AMD<\/th><td>hip<\/td>/);
    expect(page).toContain("0.50 ×");
    expect(page).toContain("B200, as published");
    expect(page).toContain(">835<");
    for (const caption of ["Prefill", "Decode", "Cost of options", "The ladder, TFLOP/s", "Devices side by side"])
      expect(page).toContain(`<caption>${caption}</caption>`);
  });
  it("tells of a wrong output", () => {
    const [first, ...others] = files[0]!.result.measurements;
    const wrong = { ...first!, check: { ok: false, rows: 5, maxError: 1, bound: 0.1 } };
    const result = { ...files[0]!.result, measurements: [wrong, ...others] };
    expect(renderReport([{ name: "w.json", result }])).toContain("1 outputs were wrong");
  });
});

describe("CSV", () => {
  it("has a line for each measurement, quoted where it must be", () => {
    const model = modelOf([{ name: 'a"b,c.json', result: files[0]!.result }]);
    const lines = csvOf(model).trim().split("\r\n");
    expect(lines).toHaveLength(1 + model.rows.length);
    expect(lines[0]).toMatch(/^device,backend,arch,file,suite,case,/);
    expect(lines[1]).toContain('"a""b,c.json"');
  });
});
