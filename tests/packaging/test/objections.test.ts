/** What scripts/release.mjs refuses to publish, shown with libraries made to be refused. */
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
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
  function library(version: string, soname = "libc.so.6", hardening = hardened, entry = "tsr_backend_entry"): string {
    const at = (name: string) => join(folder, `${version}-${hash(hardening.join(" ") + entry)}-${name}`);
    const shared = ["-shared", "-fPIC", "-nostdlib", ...hardening];
    writeFileSync(at("played.c"), "int asked(void) { return 0; }\n");
    writeFileSync(at("played.map"), `${version} { global: asked; };\n`);
    writeFileSync(at("asks.c"), `int asked(void);\nint ${entry}(void) { return asked(); }\n`);
    const played = [`-Wl,--version-script=${at("played.map")}`, `-Wl,-soname,${soname}`];
    execFileSync(compiler, [...shared, ...played, at("played.c"), "-o", at("played.so")]);
    execFileSync(compiler, [...shared, at("asks.c"), at("played.so"), "-o", at("asks.so")]);
    return at("asks.so");
  }
  /** As scripts build what is published. */
  const hardened = ["-fstack-protector-all", "-Wl,-z,relro,-z,now,-z,noexecstack"];
  const hash = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 8);
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
    expect(objections("cpu", here, library("GLIBCXX_3.4.30", "libstdc++.so.6"))).toEqual([
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

  test.each([
    ["has writable relocations (no RELRO)", "-z,now,-z,relro", "-z,now,-z,norelro"],
    ["binds its symbols late (no -z now)", "-z,now", "-z,lazy"],
    ["has an executable stack", "-z,noexecstack", "-z,execstack"],
    ["doesn't guard its stack", "-fstack-protector-all", "-fno-stack-protector"],
  ])("a library that %s", (words, flag, other) => {
    const flags = ["-fstack-protector-all", "-Wl,-z,now,-z,relro", "-Wl,-z,noexecstack"];
    const weaker = flags.map((one) => one.replace(flag, other));
    expect(objections("cpu", here, library("GLIBC_2.4", "libc.so.6", weaker))).toEqual([words]);
  });

  test("one that shows more than its entry, or not that", () => {
    const shown = library("GLIBC_2.4", "libc.so.6", hardened, "inner");
    expect(objections("cpu", here, shown)).toEqual(["exports inner", "doesn't export tsr_backend_entry"]);
  });

  test("a DLL without what Windows guards it by", (context) => {
    const tools = ["clang-22", "ld.lld-22", "objdump"];
    if (tools.some((tool) => spawnSync(tool, ["--version"]).status !== 0)) context.skip(`needs ${tools.join(", ")}`);
    const source = join(folder, "dll.c");
    writeFileSync(source, "__declspec(dllexport) int tsr_backend_entry(void) { return 0; }\n");
    const dll = (...flags: string[]) => {
      const file = join(folder, `${hash(flags.join(" "))}.dll`);
      execFileSync("clang-22", ["--target=x86_64-w64-mingw32", "-c", source, "-o", `${file}.o`]);
      execFileSync("ld.lld-22", [
        "-m",
        "i386pep",
        "--shared",
        "-e",
        "tsr_backend_entry",
        ...flags,
        `${file}.o`,
        "-o",
        file,
      ]);
      return file;
    };
    expect(objections("cpu", "win32-x64", dll())).toEqual([]);
    expect(objections("cpu", "win32-x64", dll("--disable-nxcompat"))).toEqual(["forgoes no-execute"]);
    expect(objections("cpu", "win32-x64", dll("--disable-dynamicbase")).at(-1)).toBe("forgoes address randomisation");
    expect(objections("core", "win32-x64", dll()).at(0)).toBe("exports tsr_backend_entry");
  });
});
