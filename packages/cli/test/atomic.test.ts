import { execFileSync } from "node:child_process";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { TesseraError } from "@tessera/core";
import { describe, expect, it } from "vitest";
import { writeAtomically } from "../src/ui/atomic.js";
import { scratch } from "./helpers.js";

const folder = scratch();
const bytes = (text: string) => new TextEncoder().encode(text);

describe("writeAtomically", () => {
  it("writes chunks in order and leaves nothing beside the file", async () => {
    mkdirSync(join(folder, "a"));
    await writeAtomically(join(folder, "a", "out"), [bytes("one "), bytes(""), bytes("two")]);
    expect(readFileSync(join(folder, "a", "out"), "utf8")).toBe("one two");
    expect(readdirSync(join(folder, "a"))).toEqual(["out"]);
  });

  it("never shows a part: a reader sees the old file until the new one is whole", async () => {
    const path = join(folder, "b");
    writeFileSync(path, "old");
    const big = new Uint8Array(64 << 20).fill(120);
    const writing = writeAtomically(path, [big]);
    let old = 0;
    let done = false;
    void writing.finally(() => {
      done = true;
    });
    while (!done) {
      const size = statSync(path).size;
      expect([3, big.length]).toContain(size);
      if (size === 3) old++;
      await new Promise((resolve) => setImmediate(resolve));
    }
    await writing;
    expect(old).toBeGreaterThan(0);
    expect(statSync(path).size).toBe(big.length);
  });

  it("keeps the old file, and no temporary one, if writing fails", async () => {
    mkdirSync(join(folder, "c"));
    const path = join(folder, "c", "out");
    writeFileSync(path, "old");
    const broken = { length: 8 } as Uint8Array; // fs refuses it after the temporary file exists
    await expect(writeAtomically(path, [bytes("new"), broken])).rejects.toThrow(TesseraError);
    expect(readFileSync(path, "utf8")).toBe("old");
    expect(readdirSync(join(folder, "c"))).toEqual(["out"]);
  });

  it("follows a link, keeps the mode, and doesn't replace a device", async () => {
    const path = join(folder, "real");
    writeFileSync(path, "old");
    chmodSync(path, 0o640);
    symlinkSync("real", join(folder, "link"));
    await writeAtomically(join(folder, "link"), [bytes("new")]);
    expect(lstatSync(join(folder, "link")).isSymbolicLink()).toBe(true);
    expect(readFileSync(path, "utf8")).toBe("new");
    expect(statSync(path).mode & 0o777).toBe(0o640);

    await writeAtomically("/dev/null", [bytes("gone")]);
    expect(lstatSync("/dev/null").isCharacterDevice()).toBe(true);
  });

  execFileSync("mkfifo", [join(folder, "pipe")]);
  it.each([
    ["a folder that isn't there", "none/out", /can't write .*none\/out: ENOENT/],
    ["a directory", ".", /is a directory/],
    ["a pipe, which nobody may be reading", "pipe", /can't write .*pipe: is not a regular file/],
  ])("refuses %s", async (_, name, message) => {
    const failure = writeAtomically(join(folder, name), [bytes("x")]);
    await expect(failure).rejects.toMatchObject({ code: "invalid-argument", message: expect.stringMatching(message) });
  });
});
