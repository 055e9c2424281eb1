import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { put, scratch, tessera } from "./helpers.js";

const folder = scratch();
const commands = ["devices", "attend", "conform", "doctor"];

describe("help", () => {
  it("names every command, an example and the exit codes, with --help, help and nothing", async () => {
    for (const args of [["--help"], ["-h"], ["help"], []]) {
      const { code, out, err } = await tessera(...args);
      expect(code).toBe(0);
      expect(err).toBe("");
      for (const command of commands) expect(out).toMatch(new RegExp(`^  ${command}\\b`, "m"));
      expect(out).toContain("$ tessera attend");
      expect(out).toContain("Exit codes");
    }
  });

  it.each(commands)("%s --help has a description, an example and no line too wide", async (command) => {
    const { code, out } = await tessera(command, "--help");
    expect(code).toBe(0);
    expect(out).toContain(`Usage: tessera ${command}`);
    expect(out).toContain(`$ tessera ${command}`);
    expect(Math.max(...out.split("\n").map((line) => line.length))).toBeLessThanOrEqual(120);
    expect((await tessera("help", command)).out).toBe(out);
  });

  it("--version is the package's", async () => {
    const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
    for (const flag of ["--version", "-V"])
      expect(await tessera(flag)).toEqual({ code: 0, out: `${version}\n`, err: "" });
  });
});

describe("wrong usage is exit 2, and says what is right", () => {
  it.each<[string[], RegExp]>([
    [["devcies"], /unknown command 'devcies'[\s\S]*Did you mean devices\?/],
    [["attend"], /missing required argument 'file'/],
    [["attend", "x", "--casual"], /unknown option '--casual'[\s\S]*Did you mean --causal\?/],
    [["attend", "x", "y"], /too many arguments/],
    [["--jsn"], /unknown option '--jsn'/],
    [["attend", "x", "--window", "3"], /LEFT,RIGHT/],
    [["attend", "x", "--window", "3,-2"], /LEFT,RIGHT/],
    [["attend", "x", "--window", "3.5,0"], /LEFT,RIGHT/],
    [["attend", "x", "--scale", "nan"], /any finite number/],
    [["attend", "x", "--scale", "1e999"], /any finite number/],
    [["attend", "x", "--scale", "0x10"], /any finite number/],
    [["attend", "x", "--scale", ""], /any finite number/],
    [["attend", "x", "--softcap", "-1"], />= 0/],
    [["attend", "x", "--softcap", "Infinity"], /any finite number/],
    [["attend", "x", "--align", "middle"], /bottom-right, top-left/],
    [["attend", "x", "--kv-dtype", "q5_1"], /f16, bf16, f32, f8_e4m3, q8_0, q4_0/],
    [["attend", "x", "--num-splits", "-1"], /whole numbers from 0/],
    [["attend", "x", "--threads", "0"], /whole numbers from 1/],
    [["attend", "x", "--head", "1"], /--head chooses what --map draws/],
    [["attend", "x", "--prefix", "a", "--prefix", "a"], /given twice/],
    [["attend", "x", "--prefix", "a", "--prefix", "b", "--map", "m.svg"], /--map draws one prefix/],
    [["attend", "x", "--library", "l.so", "--backend", "cpu"], /leave --backend out/],
    [["conform", "x", "--filter", "("], /Invalid regular expression/],
    [["conform", "x", "--layout", "diagonal"], /contiguous, transposed/],
  ])("%j", async (args, message) => {
    const { code, out, err } = await tessera(...args);
    expect(code).toBe(2);
    expect(out).toBe("");
    expect(err).toMatch(message);
  });

  it("under --json the error is the one object on stdout", async () => {
    for (const args of [
      ["attend", "x", "--casual"],
      ["attend", "/none"],
      ["conform", "/none"],
    ]) {
      const { code, out, err } = await tessera(...args, "--json");
      expect(code).toBe(2);
      expect(JSON.parse(out).error).toEqual({ code: expect.stringMatching(/^invalid-/), message: expect.any(String) });
      expect(err).not.toBe("");
    }
  });
});

describe("files that can't be used are exit 2", () => {
  it.each<[string, string[], RegExp]>([
    ["attend, no file", ["attend", "/none"], /^tessera: \/none: no such file\n$/],
    ["attend, a directory", ["attend", folder], /is a directory/],
    ["attend, not safetensors", ["attend", put(folder, "text", Buffer.from("hello, world"))], /header length/],
    ["conform, no file", ["conform", "/none"], /no such file/],
    ["conform, a directory", ["conform", folder], /not a regular file/],
  ])("%s", async (_, args, message) => {
    const { code, out, err } = await tessera(...args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toMatch(message);
  });
});
