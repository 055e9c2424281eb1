import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { here, runNode } from "./run-node.js";

const readme = readFileSync(join(here, "../../README.md"), "utf8");
const programs = [...readme.matchAll(/```js\n([\s\S]*?)```/g)].map(([, source]) => source as string);

it("has a first program", () => {
  expect(programs.length).toBeGreaterThan(0);
  expect(programs[0]).toContain("openEngine");
});

const examples = join(here, "../../examples");
const files = readdirSync(examples).filter((name) => name.endsWith(".mjs"));
const sources = files.map((name) => readFileSync(join(examples, name), "utf8"));

it("the README's programs are in examples/, word for word", () => {
  for (const program of programs) expect(sources).toContain(program);
});

for (const [index, source] of sources.entries()) {
  it(`examples/${files[index]} runs as it stands`, () => {
    const { status, stdout, stderr } = runNode(source, "mjs");
    expect(stderr).toBe("");
    expect(status).toBe(0);
    expect(stdout.trim()).not.toBe("");
    expect(stdout).not.toMatch(/NaN|undefined/);
  });
}
