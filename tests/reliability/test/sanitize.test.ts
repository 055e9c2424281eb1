/** The script for compute-sanitizer, with a program in its place that runs the command and says how many errors it is told to. */
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "tessera-sanitize-"));
beforeAll(() => {
  const program = join(folder, "compute-sanitizer");
  writeFileSync(
    program,
    `#!/bin/sh
while [ "\${1#--}" != "$1" ]; do
  [ "$1" = --log-file ] && log=$2
  shift 2
done
"$@" || exit
[ -n "$SAYS" ] && echo "========= ERROR SUMMARY: $SAYS errors" > "$log"
exit 0
`,
  );
  chmodSync(program, 0o755);
});
afterAll(() => rmSync(folder, { recursive: true }));

function sanitize(says: string, ...args: string[]) {
  const script = join(root, "tests/reliability/sanitize.mjs");
  const library = ["--library", join(root, "backends/cpu/lib/libtessera-cpu.so"), "--out", join(folder, "logs")];
  const few = ["--filter", "^causal", "--quick", "--layout", "contiguous", "--jobs", "2", "--parts", "2"];
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...library, ...few, ...args], {
    encoding: "utf8",
    env: { ...process.env, PATH: `${folder}:${process.env.PATH}`, SAYS: says },
  });
  return { status, text: stdout + stderr };
}

it("each tool sees each case once, whatever the parts", () => {
  const { status, text } = sanitize("0", "--tools", "memcheck,racecheck");
  expect(text).toMatch(/every part was reached/);
  const counts = [...text.matchAll(/^\w+: (\d+) cases, (\d+) results, 0 parts failed$/gm)].map((m) => m.slice(1));
  expect(counts).toHaveLength(2);
  expect(counts[0]).toEqual(counts[1]);
  const one = sanitize("0", "--tools", "memcheck", "--parts", "1");
  expect(one.text).toContain(`memcheck: ${counts[0]![0]} cases, ${counts[0]![1]} results`);
  expect([status, one.status]).toEqual([0, 0]);
});

it("what a tool finds, and a tool that says nothing, is a failure; goes on from a part", () => {
  const found = sanitize("3", "--tools", "memcheck,racecheck", "--from", "memcheck:2,racecheck:1");
  expect(found).toMatchObject({ status: 1, text: expect.stringMatching(/racecheck found 3/) });
  expect(found.text).not.toMatch(/^memcheck \d|^racecheck 0/m);
  expect(sanitize("", "--tools", "memcheck")).toMatchObject({
    status: 1,
    text: expect.stringMatching(/memcheck gave no summary/),
  });
});

it("refuses what it doesn't know", () => {
  for (const [args, told] of [
    [["--tools", "leakcheck"], /leakcheck isn't one of/],
    [["--from", "3"], /there are 2 parts/],
    [["--seconds", "5"], /from 60 to/],
  ] as const) {
    expect(sanitize("0", ...args)).toMatchObject({ status: 2, text: expect.stringMatching(told) });
  }
});
