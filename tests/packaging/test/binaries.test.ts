import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { libraries, mayLack } from "../src/built.js";
import { root } from "../src/root.js";

const needs: { readonly [part: string]: string } = {
  cuda: "nvcc",
  hip: "clang-22",
  ggml: "node-llama-cpp's sources",
};

let weaknesses: (part: string, file: string) => string[];
beforeAll(async () => {
  ({ weaknesses } = await import(join(root, "scripts/lib/objections.mjs")));
});

// GPU libraries and ggml's are for some platforms only.
const binaries = [...libraries].map(([part, file]) => ({ part, file }));

test("each part with native code for this platform is looked at", () => {
  expect(binaries.map(({ part }) => part)).toEqual(expect.arrayContaining(["core", "cpu"]));
});

describe.each(binaries)("$file", ({ part, file }) => {
  const path = join(root, file);
  const read = (program: string, ...args: string[]) => execFileSync(program, [...args, path], { encoding: "utf8" });

  beforeEach((context) => {
    if (mayLack(part) && !existsSync(path)) context.skip(`${file} isn't there, which needs ${needs[part]} to be built`);
    if (process.platform !== "linux") context.skip("looks at ELF files, so only on Linux");
    if (spawnSync("readelf", ["--version"]).status !== 0) context.skip("needs binutils (readelf, nm)");
  });

  test("is hardened, and exports nothing but its entry", () => {
    expect(weaknesses(part, path)).toEqual([]);
  });

  test("needs the system's C and C++ libraries only, looked up the system's way", () => {
    const dynamic = read("readelf", "-dW");
    expect(dynamic).not.toMatch(/R(UN)?PATH/);
    const needed = [...dynamic.matchAll(/\(NEEDED\).*\[(.*)\]/g)].map((match) => match[1] ?? "");
    const strange = needed.filter(
      (name) => !/^(libc|libm|libdl|libpthread|libgcc_s|libstdc\+\+|ld-linux[^.]*)\.so/.test(name),
    );
    expect(strange).toEqual([]);
  });

  test("doesn't carry the path of the machine that built it", () => {
    expect(readFileSync(path).includes(root)).toBe(false);
  });
});
