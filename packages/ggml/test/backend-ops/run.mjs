// llama.cpp's own test of its operators on the plug-in: every case of FLASH_ATTN_EXT against ggml's CPU back end, in the prebuilt
// libraries of node-llama-cpp. Each case counts as one test.
//
//   node packages/ggml/test/backend-ops/run.mjs            all of them
//   TESSERA_FUZZ_SEED=7 node … --part                      one of 30 parts, drawn by the seed
//   node … --cuda                                          in CUDA mode, where the CPU plays the GPU: what it takes of heads of 64
import { spawn, spawnSync } from "node:child_process";
import { join } from "node:path";
import * as build from "../../../../scripts/lib/ggml.mjs";
import { root } from "../../../../scripts/lib/sh.mjs";

/** What the cases' parameters have to match. Every case is in one half of one part, which a whole run checks. */
const parts = ["mask=1,sinks=0,", "mask=1,sinks=1,", "mask=0,"].flatMap((mask) =>
  [
    ["hsk=64,", `${mask}.*type_K=(f16|f32|bf16),`],
    ["hsk=64,", `${mask}.*type_K=(q1_0|q2_0|q4_0|q8_0),`],
    ["hsk=64,", `${mask}.*type_K=(q4_1|iq4_nl),`],
    ["hsk=64,", `${mask}.*type_K=(q5_0|q5_1),`],
    ["hsk=72,", `${mask}.*type_K=(f16|f32|bf16),`],
    ["hsk=72,", `${mask}.*type_K=(q|iq)`],
    ["hsk=(40|80|96),", mask],
    ["hsk=128,", mask],
    ["hsk=(192|320),", mask],
    ["hsk=(256|512|576),", mask],
  ].map(([dims, rest]) => ["nb=\\d,", "nb=\\d\\d+,"].map((queries) => `${dims}.*${queries}.*${rest}`)),
);

const onCuda = process.argv.includes("--cuda");
const cudaParts = ["f16", "q8_0", "q4_0"].map(
  (type) => `hsk=64,.*kv=512,.*max_bias=0\\.0+,.*prec=f32,type_K=${type},type_V=${type},.*v_is_view_of_k=0`,
);

function end(counts) {
  console.log(`::tessera ${JSON.stringify({ passed: 0, failed: 0, skipped: 0, ...counts })}`);
  process.exit(counts.failed > 0 ? 1 : 0);
}

const hindrance =
  process.platform === "linux" && process.arch === "x64"
    ? (build.installRuntime() ?? build.unpackSources())
    : "the runtime's prebuilt libraries that are installed are for linux-x64";
if (hindrance !== undefined) end({ skipped: 1, reasons: { [hindrance]: 1 } });
build.buildPlugin("ggml-tessera");
const program = build.buildBackendOps();
const played = onCuda ? build.buildPlayedCuda() : undefined;
const env = {
  ...process.env,
  GGML_BACKEND_PATH: build.plugin,
  TESSERA_BACKEND_PATH: played ?? join(root, "backends/cpu/lib"),
  TESSERA_GGML_SMALL: "take",
  ...(onCuda && { TESSERA_GGML_LOG: "1", LD_LIBRARY_PATH: played }),
};
// Started where the prebuilt libraries are: it looks for back ends beside itself and in the working directory.
const options = { cwd: played ?? build.prebuilt, env, encoding: "utf8", maxBuffer: 1 << 28 };
const argumentsOf = (mode) => [mode, "-o", "FLASH_ATTN_EXT", "-b", onCuda ? "CUDA0" : "Tessera"];

/** Runs one part; what its cases came to. */
function test(part) {
  const child = spawn(program, [...argumentsOf("test"), "-p", part], options);
  let said = "";
  let told = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    said += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    told += text;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (status) => {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: colours
      const lines = `${said}\n${told}`.replace(/\u001b\[[\d;]*m/g, "").split("\n");
      const cases = lines.filter((line) => line.includes("FLASH_ATTN_EXT("));
      const left = cases.filter((line) => line.includes("not supported"));
      const passed = cases.filter((line) => line.trimEnd().endsWith(": OK")).length;
      // In CUDA mode what isn't taken is computed by ggml, which would pass, too.
      const taken = Number([...told.matchAll(/(\d+) calls so far/g)].at(-1)?.[1] ?? 0);
      // What is left to ggml are heads of more than 512 dims, and nothing else.
      const failed = onCuda
        ? cases.length - Math.min(passed, taken)
        : cases.length - passed - left.filter((line) => line.includes("hsk=576")).length;
      if (failed > 0 || status !== 0 || cases.length === 0) {
        const bad = cases.filter((line) => !line.trimEnd().endsWith(": OK") && !line.includes("hsk=576"));
        console.log(`${part} ended with ${status}:\n${[...bad.slice(0, 20), ...lines.slice(-5)].join("\n")}`);
      }
      const seconds = Math.round((Date.now() - start) / 1000);
      console.log(`${part} ${passed} passed, ${failed} failed, ${left.length} left to ggml, after ${seconds} s`);
      resolve({ passed, failed: failed === 0 && (status !== 0 || cases.length === 0) ? 1 : failed, all: cases.length });
    });
  });
}

const start = Date.now();
const whole = !onCuda && !process.argv.includes("--part");
const seed = Number(process.env.TESSERA_FUZZ_SEED ?? Date.now());
const waiting = onCuda ? cudaParts : whole ? parts.flat() : [...parts[seed % parts.length]];
const results = [];
// Two at a time: what ggml computes takes one thread.
await Promise.all(
  [0, 1].map(async () => {
    for (let part = waiting.shift(); part !== undefined; part = waiting.shift()) results.push(await test(part));
  }),
);
const sum = (key) => results.reduce((all, result) => all + result[key], 0);
let failed = sum("failed");
if (whole) {
  const listed = spawnSync(program, [...argumentsOf("support"), "--output", "csv"], options).stdout;
  const all = listed.split("\n").filter((line) => line.startsWith('"Tessera"')).length;
  if (all !== sum("all") || all < 5000) {
    console.log(`${sum("all")} cases in the parts, ${all} in all`);
    failed++;
  }
}
end({ passed: sum("passed"), failed });
