/** What scripts/release.mjs refuses to publish, shown with libraries made to be refused. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { root } from "../src/pack.js";

type Objections = (part: string, platform: string, file: string) => string[];
const machines: { readonly [arch: string]: string } = { x64: "linux-x64-gnu", arm64: "linux-arm64-gnu" };
const here = machines[process.arch] ?? "";
const other = Object.values(machines).find((id) => id !== here)!;
const compiler = process.env.CC ?? "cc";

describe("objections", () => {
  const folder = mkdtempSync(join(tmpdir(), "tessera-objections-"));
  let objections: Objections;
  let glibcFloor: string;

  beforeAll(async () => {
    ({ objections } = (await import(join(root, "scripts/lib/objections.mjs"))) as { objections: Objections });
    ({ glibcFloor } = (await import(join(root, "scripts/lib/platforms.mjs"))) as { glibcFloor: string });
  });
  beforeEach((context) => {
    if (process.platform !== "linux" || here === "") context.skip("makes ELF files for x64 or arm64, so only on Linux");
    for (const program of [compiler, "readelf"])
      if (spawnSync(program, ["--version"]).status !== 0) context.skip(`needs ${program}`);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** A library that asks for a symbol of that version: linked with one that plays `soname`. */
  function library(version: string, soname = "libc.so.6"): string {
    const at = (name: string) => join(folder, `${version}-${name}`);
    const shared = ["-shared", "-fPIC", "-nostdlib"];
    writeFileSync(at("played.c"), "int asked(void) { return 0; }\n");
    writeFileSync(at("played.map"), `${version} { global: asked; };\n`);
    writeFileSync(at("asks.c"), "int asked(void);\nint answer(void) { return asked(); }\n");
    const played = [`-Wl,--version-script=${at("played.map")}`, `-Wl,-soname,${soname}`];
    execFileSync(compiler, [...shared, ...played, at("played.c"), "-o", at("played.so")]);
    execFileSync(compiler, [...shared, at("asks.c"), at("played.so"), "-o", at("asks.so")]);
    return at("asks.so");
  }
  const next = () => glibcFloor.replace(/\d+$/, (minor) => String(Number(minor) + 1));

  test("none to the floor's glibc and older ones", () => {
    expect(objections("cpu", here, library(`GLIBC_${glibcFloor}`))).toEqual([]);
    expect(objections("cpu", here, library("GLIBC_2.4"))).toEqual([]); // not newer for its longer numeral
  });

  test("a newer glibc than the floor", () => {
    for (const version of [next(), "2.99", "3.0"])
      expect(objections("cpu", here, library(`GLIBC_${version}`))).toEqual([
        `needs GLIBC_${version}; the floor is glibc ${glibcFloor}`,
      ]);
  });

  test("what newer ones have by a name in place of a number", () => {
    for (const version of ["GLIBC_ABI_DT_RELR", "GLIBC_ABI_TO_COME", "GLIBC_PRIVATE"])
      expect(objections("cpu", here, library(version))).toEqual([`needs ${version}; the floor is glibc ${glibcFloor}`]);
  });

  test("a C++ library of the system", () => {
    expect(objections("core", here, library("GLIBCXX_3.4.30", "libstdc++.so.6"))).toEqual([
      "needs a C++ library of its system: GLIBCXX_3.4.30",
    ]);
  });

  test("another machine's code, and what is no library", () => {
    expect(objections("cpu", other, library("GLIBC_2.4"))).toEqual([`is for another machine than ${other}`]);
    writeFileSync(join(folder, "text.so"), "not a library");
    expect(objections("cpu", here, join(folder, "text.so"))).toEqual([
      "can't be looked at: readelf (binutils) is missing or refuses it",
    ]);
  });
});
