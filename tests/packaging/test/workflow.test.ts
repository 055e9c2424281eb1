/** The release workflow, which can't be run here, held to the list of what is published. */
import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { describe, expect, test } from "vitest";
import { publishedFor } from "../../../packages/core/src/native/platform.js";
import { root } from "../src/pack.js";

interface Part {
  readonly folder: string;
  readonly built: string;
  readonly platforms: readonly string[];
}

const script = (name: string) => import(join(root, "scripts/lib", name));
const { parts }: { parts: Record<string, Part> } = await script("platforms.mjs");

test("core knows the platforms that there are packages for", () => {
  for (const [part, platforms] of Object.entries(publishedFor))
    expect([...platforms].sort(), part).toEqual([...parts[part]!.platforms].sort());
});
const { crossFile }: { crossFile(part: string, id: string): string | undefined } = await script("native.mjs");

const workflow = readFileSync(join(root, ".github/workflows/release.yml"), "utf8");
/** What steps of one line run, in their order. */
const steps = [...workflow.matchAll(/^ {6}- run: (.*)$/gm)].map(([, command]) => command!);
const artifacts = /^ {10}path: \|\n((?: {12}\S+\n)+)/m.exec(workflow)![1]!.trim().split(/\s+/);
const matches = (file: string) =>
  artifacts.some((glob) => new RegExp(`^${glob.replaceAll(".", "\\.").replaceAll("*", "[^/]*")}$`).test(file));

const runner = "linux-x64-gnu";
const published = Object.entries(parts).flatMap(([part, { platforms }]) => platforms.map((id) => [part, id] as const));

describe.each(published)("%s for %s", (part, id) => {
  // `npm run setup` builds the addon and the CPU back end.
  const own = part === "core" || part === "cpu" ? "npm run setup" : `node scripts/build-native.mjs ${part}`;
  const step = id === runner ? own : `node scripts/build-native.mjs cross ${id}`;

  test("is built before it is packed", () => {
    expect(steps).toContain(step);
    expect(steps.indexOf(step)).toBeLessThan(steps.indexOf("node scripts/release.mjs"));
  });

  test("goes to the job that publishes", () => {
    const { folder, built } = parts[part]!;
    const file = id === runner ? join(folder, built) : relative(root, crossFile(part, id)!);
    expect(matches(file), `${file} in ${artifacts.join(", ")}`).toBe(true);
  });
});

test("what cross builds of ggml has its headers by then", () => {
  const cross = parts.ggml!.platforms.filter((id) => id !== runner);
  for (const id of cross)
    expect(steps.indexOf("node scripts/build-native.mjs ggml")).toBeLessThan(
      steps.indexOf(`node scripts/build-native.mjs cross ${id}`),
    );
  expect(cross).not.toEqual([]);
});
