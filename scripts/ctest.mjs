// node scripts/ctest.mjs release|asan|tsan|arm64|cuda|hip|ggml [ctest arguments]: builds and runs the C and C++ tests of one variant.
import { spawnSync } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { add, line, none, parse } from "./lib/counts.mjs";
import { buildPlugin, installRuntime, unpackSources } from "./lib/ggml.mjs";
import {
  buildTarget,
  findHipCompiler,
  findNvcc,
  noHipCompiler,
  noNvcc,
  requireNativeTools,
  variants,
} from "./lib/native.mjs";
import { fail } from "./lib/sh.mjs";

const [variant = "", ...rest] = process.argv.slice(2);
if (!(variant in variants) && variant !== "ggml")
  fail(`usage: node scripts/ctest.mjs ${[...Object.keys(variants), "ggml"].join("|")}`);
requireNativeTools();
const skip = (reason) => {
  console.log(line({ ...none(), skipped: 1, reasons: { [reason]: 1 } }));
  process.exit(0);
};
if (variant === "cuda" && !findNvcc()) skip(`the CUDA back end: ${noNvcc}`);
if (variant === "hip" && !findHipCompiler()) skip(`the HIP back end: ${noHipCompiler}`);
const hindrance = variant === "ggml" ? (installRuntime() ?? unpackSources()) : undefined;
if (hindrance) skip(`the ggml plug-in: ${hindrance}`);
if (variant === "ggml") buildPlugin("ggml-tessera");
const folder = variant === "ggml" ? buildPlugin("native-tests") : buildTarget("native-tests", variant);
const report = join(folder, "ctest.xml");
rmSync(report, { force: true });
const { status } = spawnSync(
  "ctest",
  // Tests use all cores themselves: one at a time. Their whole output goes to the report, where the counts lines are.
  ["--test-dir", folder, "--output-on-failure", "--output-junit", report, "--no-tests=error", ...rest].concat(
    "--test-output-size-passed=1000000",
    "--test-output-size-failed=1000000",
  ),
  {
    stdio: "inherit",
    env: {
      CTEST_PARALLEL_LEVEL: "1",
      TSAN_OPTIONS: "halt_on_error=1",
      ...(variant === "arm64" && { TESSERA_EMULATED: "1" }), // for what an emulator distorts, such as memory figures
      ...process.env,
    },
  },
);

const unxml = (text) =>
  text.replace(/&(quot|apos|lt|gt|amp);/g, (_, name) => ({ quot: '"', apos: "'", lt: "<", gt: ">", amp: "&" })[name]);
const sum = none();
for (const [, attributes, body] of readFileSync(report, "utf8").matchAll(/<testcase ([^>]*)>([\s\S]*?)<\/testcase>/g)) {
  const name = unxml(/name="([^"]*)"/.exec(attributes)?.[1] ?? "?");
  const state = /status="([^"]*)"/.exec(attributes)?.[1];
  const text = unxml(/<system-out>([\s\S]*?)<\/system-out>/.exec(body)?.[1] ?? "").trim();
  const said = parse(text) ?? none();
  if (state === "run") add(sum, said.passed + said.failed + said.skipped > 0 ? said : { passed: 1 });
  else if (/<skipped/.test(body) && state !== "fail")
    add(sum, { skipped: 1, reasons: { [`${name}: ${text.split("\n").at(-1) || "skipped itself"}`]: 1 } });
  else add(sum, said.failed > 0 ? said : { passed: said.passed, failed: 1, skipped: said.skipped });
}
console.log(line(sum));
process.exitCode = status === 0 && sum.failed === 0 ? 0 : 1;
