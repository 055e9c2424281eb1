import { execFileSync } from "node:child_process";
import { closeSync, ftruncateSync, openSync, readdirSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fileBytes, kjv, put, scratch, tessera } from "./helpers.js";

const folder = scratch();
const commands = ["devices", "attend", "bench", "report", "tune", "conform", "doctor"];

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
    [["attend", "x", "--scale", ""], /The value is empty\. Allowed: any finite number/],
    [["attend", "x", "--softcap", "-1"], />= 0/],
    [["attend", "x", "--softcap", "Infinity"], /Allowed: finite numbers >= 0; 0 = off/],
    [["attend", "x", "--softcap", ""], /The value is empty\. Allowed: finite numbers >= 0; 0 = off/],
    [["attend", "x", "--window", ""], /The value is empty\. Allowed: LEFT,RIGHT/],
    [["attend", "x", "--window", "99999999999999999999,0"], /from -1 \(unbounded\) to 999999999999999,/],
    [["attend", "x", "--window", "0,1000000000000000"], /from -1 \(unbounded\) to 999999999999999,/],
    [["attend", "x", "--align", "middle"], /bottom-right, top-left/],
    [["attend", "x", "--kv-dtype", "q5_1"], /f16, bf16, f32, f8_e4m3, q8_0, q4_0/],
    [["attend", "x", "--num-splits", "-1"], /whole numbers from 0/],
    [["attend", "x", "--num-splits", "2147483647"], /whole numbers from 0 to 999999999\./],
    [["attend", "x", "--num-splits", ""], /The value is empty\. Allowed: whole numbers from 0/],
    [["attend", "x", "--threads", "0"], /whole numbers from 1/],
    [["attend", "x", "--device", "1e3"], /whole numbers from 0 to 999999999\./],
    [["attend", "x", "-o", ""], /^tessera: --output is empty; give the file to write\n$/],
    [["attend", "x", "--map", ""], /^tessera: --map is empty; give the file to write\n$/],
    [["attend", "x", "--library", ""], /^tessera: --library is empty; give the path/],
    [["attend", ""], /^tessera: <file> is empty; give the path/],
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

describe.skipIf(process.platform === "win32")("what is no regular file is refused, not waited for: exit 2", () => {
  const pipe = join(folder, "x.safetensors");
  execFileSync("mkfifo", [pipe]);
  const refused = new RegExp(`^tessera: .*${pipe}: is not a regular file\n$`);

  it.each<[string, string[], RegExp]>([
    ["a pipe to read", [pipe], refused],
    ["a device to read", ["/dev/zero"], /^tessera: \/dev\/zero: is not a regular file\n$/],
    ["a pipe as --library", [kjv, "--prefix", "layer0.", "--library", pipe], refused],
    [
      "a pipe as --output",
      [kjv, "--prefix", "layer0.", "-o", pipe],
      /^tessera: --output: can't write .*regular file\n$/,
    ],
    ["a pipe as --map", [kjv, "--prefix", "layer0.", "--map", pipe], /^tessera: --map: can't write .*regular file\n$/],
    ["a directory as --output", [kjv, "--prefix", "layer0.", "-o", folder], /^tessera: --output: .*is a directory\n$/],
  ])("%s", { timeout: 10_000 }, async (_, args, message) => {
    const { code, out, err } = await tessera("attend", ...args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toMatch(message);
  });

  it("a socket to read", async () => {
    const path = join(folder, "socket");
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(path, resolve));
    try {
      const { code, err } = await tessera("attend", path);
      expect({ code, err }).toEqual({ code: 2, err: `tessera: ${path}: is not a regular file\n` });
    } finally {
      server.close();
    }
  });

  it("one flag that can't be written stops the other from being written", async () => {
    const map = join(folder, "untouched.svg");
    writeFileSync(map, "old");
    const before = readdirSync(folder);
    expect((await tessera("attend", kjv, "--prefix", "layer0.", "--map", map, "-o", pipe)).code).toBe(2);
    expect(readFileSync(map, "utf8")).toBe("old");
    expect(readdirSync(folder)).toEqual(before);
  });
});

describe("a file whose tensors don't fit into memory is exit 3", () => {
  it("says how much is needed, how much there is, and that the file is sound", async () => {
    const path = join(folder, "huge.safetensors");
    const keys = 2 ** 33;
    const half = keys * 128;
    const bytes = fileBytes({
      q: { dtype: "F16", shape: [1, 1, 64], data_offsets: [0, 128] },
      k: { dtype: "F16", shape: [keys, 1, 64], data_offsets: [128, 128 + half] },
      v: { dtype: "F16", shape: [keys, 1, 64], data_offsets: [128 + half, 128 + 2 * half] },
    });
    const file = openSync(path, "w");
    writeSync(file, bytes);
    ftruncateSync(file, bytes.length + 128 + 2 * half); // sparse
    closeSync(file);
    const { code, out, err } = await tessera("attend", path, "--json");
    expect(code).toBe(3);
    expect(err).toMatch(/huge\.safetensors: not enough memory: tensor "k" takes 1\.0 TiB, and this process can have /);
    expect(err).toMatch(/the file itself is sound/);
    expect(JSON.parse(out).error).toMatchObject({ code: "out-of-memory" });
    for (const help of [["--help"], ["attend", "--help"]]) {
      expect((await tessera(...help)).out).toMatch(/3 no usable device, or not enough memory/);
    }
  });
});
