import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it, type TestContext } from "vitest";

const bin = fileURLToPath(new URL("../bin/tessera.js", import.meta.url));
const built = existsSync(fileURLToPath(new URL("../dist/main.js", import.meta.url)));

/** The command as it is installed, under bash with a pipeline's exit codes. */
function bash(ctx: TestContext, line: string) {
  if (!built || process.platform === "win32" || !existsSync("/dev/full"))
    ctx.skip("needs the build, bash and /dev/full");
  const tessera = `"${process.execPath}" "${bin}"`;
  const { status, stdout, stderr } = spawnSync(
    "bash",
    ["-o", "pipefail", "-c", line.replace("tessera ", `${tessera} `)],
    {
      encoding: "utf8",
    },
  );
  return { code: status, out: stdout, err: stderr };
}

describe("an output that can't be written", () => {
  it("full: one line, exit 2", (ctx) => {
    for (const command of ["devices", "devices --json", "--help", "doctor"]) {
      const { code, err } = bash(ctx, `tessera ${command} > /dev/full`);
      expect(err).toMatch(/^tessera: can't write the output: ENOSPC[^\n]*\n$/);
      expect(code).toBe(2);
    }
  });

  it("closed by a reader that has seen enough: nothing, and the code of the answer", (ctx) => {
    for (const reader of ["head -1 > /dev/null", "true"]) {
      expect(bash(ctx, `tessera devices | ${reader}`)).toEqual({ code: 0, out: "", err: "" });
    }
    expect(bash(ctx, "TESSERA_BACKEND=nope tessera devices --json | true").code).toBe(2);
  });
});
