/** tests/fuzz/run.mjs: a fuzzer that dies after its last word is a failure, although its counts are good. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import { cpu, shimIn } from "../../../packages/cli/test/shim.js";

const folder = mkdtempSync(join(tmpdir(), "tessera-fuzz-run-"));
afterAll(() => rmSync(folder, { recursive: true }));

function fuzz(backend: string) {
  const script = fileURLToPath(new URL("../../fuzz/run.mjs", import.meta.url));
  const args = [script, "--problems", "5", "--seconds", "0", "--backend", backend];
  return spawnSync(process.execPath, args, { encoding: "utf8", env: { ...process.env, TESSERA_FUZZ_SEED: "3" } });
}

it("counts an exit status that the counts don't tell of", { timeout: 300_000 }, (ctx) => {
  const good = fuzz(cpu);
  expect(good.stdout).toMatch(/::tessera \{"passed":5,"failed":0,"skipped":0.*\n$/);
  expect(good.status).toBe(0);
  const dead = fuzz(shimIn(folder)(ctx, "DIES_AT_EXIT"));
  expect(dead.stdout).toMatch(/5 problems, .* 0 mismatches/);
  expect(dead.stdout).toMatch(/ended with SIGABRT/);
  expect(dead.stdout).toMatch(/::tessera \{"passed":5,"failed":1,"skipped":0.*\n$/);
  expect(dead.status).toBe(1);
});
