import { expect, it } from "vitest";
import { runNode } from "./run-node.js";

const body = `
  const k = new Float32Array([1, 0, 0, 1]), v = new Float32Array([1, 2, 3, 4]);
  const shape = [1, 2, 1, 2];
  const tensor = (data) => ({ data, shape });
  const { out } = await attention({ q: tensor(k), k: tensor(k), v: tensor(v), causal: true, returnLse: true });
  console.log(JSON.stringify([...out.data].map((x) => Math.round(x * 1e4) / 1e4)));
`;
const weight = Math.exp(1 / Math.SQRT2) / (1 + Math.exp(1 / Math.SQRT2));
const want = [1, 2, 1 + 2 * weight, 2 + 2 * weight].map((x) => Math.round(x * 1e4) / 1e4);

it("ESM: import and compute", () => {
  const { stdout, stderr, status } = runNode(`import { attention } from "@tessera/core";${body}`, "mjs");
  expect(stderr).toBe("");
  expect(JSON.parse(stdout)).toEqual(want);
  expect(status).toBe(0);
});

it("CommonJS: require and compute", () => {
  const source = `const { attention } = require("@tessera/core");\n(async () => {${body}})();`;
  const { stdout, stderr, status } = runNode(source, "cjs");
  expect(stderr).toBe("");
  expect(JSON.parse(stdout)).toEqual(want);
  expect(status).toBe(0);
});

it("both at once: errors of one copy are errors of the other", () => {
  const source = `
    import { createRequire } from "node:module";
    import { openEngine, TesseraError } from "@tessera/core";
    const cjs = createRequire(import.meta.url)("@tessera/core");
    const errors = await Promise.all([openEngine, cjs.openEngine].map((open) => open({ backend: "no-such" }).catch((e) => e)));
    console.log(errors.map((e) => [e instanceof TesseraError, e instanceof cjs.TesseraError, e.code].join()).join(" "));`;
  const { stdout, stderr } = runNode(source, "mjs");
  expect(stderr).toBe("");
  expect(stdout.trim()).toBe("true,true,invalid-argument true,true,invalid-argument");
});
