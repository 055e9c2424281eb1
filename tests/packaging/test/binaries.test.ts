import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { libraries, mayLack, parts } from "../src/built.js";
import { root } from "../src/root.js";

const entries = {
  core: { symbols: ["napi_register_module_v1", "node_api_module_get_api_version_v1"] },
  cpu: { symbols: ["tsr_backend_entry"] },
  cuda: { symbols: ["tsr_backend_entry"], needs: "nvcc" },
  hip: { symbols: ["tsr_backend_entry"], needs: "clang-22" },
  ggml: {
    symbols: ["ggml_backend_init", "ggml_backend_score", "tessera_ggml_calls"],
    needs: "node-llama-cpp's sources",
  },
};

test("each part with native code is looked at", () => {
  expect(Object.keys(entries).sort()).toEqual([...parts].sort());
});

// GPU libraries and ggml's are for some platforms only.
const binaries = Object.entries(entries).flatMap(([part, entry]) => {
  const file = libraries.get(part);
  return file === undefined ? [] : [{ part, file, ...entry }];
});

describe.each<{ part: string; file: string; symbols: string[]; needs?: string }>(binaries)("$file", (one) => {
  const { part, file, symbols, needs } = one;
  const path = join(root, file);
  const read = (program: string, ...args: string[]) => execFileSync(program, [...args, path], { encoding: "utf8" });

  beforeEach((context) => {
    if (mayLack(part) && !existsSync(path)) context.skip(`${file} isn't there, which needs ${needs} to be built`);
    if (process.platform !== "linux") context.skip("looks at ELF files, so only on Linux");
    if (spawnSync("readelf", ["--version"]).status !== 0) context.skip("needs binutils (readelf, nm)");
  });

  test("exports nothing but its entry", () => {
    const exported = read("nm", "-D", "--defined-only").trim().split("\n");
    expect(exported.map((line) => line.split(" ").at(-1)).sort()).toEqual(symbols);
  });

  test("is hardened: relocations read-only, bound at load, no executable stack", () => {
    const headers = read("readelf", "-lW");
    expect(headers).toContain("GNU_RELRO");
    expect(headers).toMatch(/GNU_STACK .* RW /);
    expect(read("readelf", "-dW")).toMatch(/BIND_NOW|\bNOW\b/);
  });

  test("guards its stack", () => {
    expect(read("nm", "-D", "--undefined-only")).toMatch(/ __stack_chk_fail\b/);
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
