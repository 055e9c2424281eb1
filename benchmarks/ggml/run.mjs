// node-llama-cpp on the tiny model, by turns with the plug-in, with ggml's flash attention and without any: tokens a second of
// generation, and of a prompt.
//
//   npm run setup && node scripts/build-native.mjs ggml
//   node benchmarks/ggml/run.mjs [--threads 1,2] [--rounds 7] [--count 200] [--prompt 512] [--json FILE]
//
// Each turn is a process of its own, as GGML_BACKEND_PATH is read once. Figures are medians of the rounds with their quartiles.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { enableTessera } from "../../packages/ggml/dist/index.js";

const root = join(import.meta.dirname, "../..");
const { values } = parseArgs({
  options: {
    threads: { type: "string", default: "1,2" },
    rounds: { type: "string", default: "7" },
    count: { type: "string", default: "200" },
    prompt: { type: "string", default: "512" },
    json: { type: "string" },
  },
});
const runtime = join(root, "packages/ggml/runtime");
const program = join(root, "packages/ggml/test/programs/runtime.mjs");
const model = join(root, "packages/ggml/test/data/tiny-kjv.gguf");
const [count, length] = [Number(values.count), Number(values.prompt)];
// A token of the model is a byte.
const text = readFileSync(join(import.meta.dirname, "prompt.txt"), "utf8");
const prompt = text.repeat(Math.ceil(length / text.length)).slice(0, length - 1);

const plain = { ...process.env };
for (const name of ["GGML_BACKEND_PATH", "TESSERA_BACKEND_PATH", "TESSERA_GGML_ENGINES", "TESSERA_GGML_SMALL"])
  delete plain[name];
const withPlugin = (threads) => {
  const env = { ...plain };
  enableTessera({ from: runtime, env, threads });
  return env;
};

const contestants = [
  { name: "tessera", env: withPlugin, flashAttention: true },
  { name: "ggml, flash attention", env: () => plain, flashAttention: true },
  { name: "ggml without", env: () => plain, flashAttention: false },
];

function turn({ env, flashAttention }, threads) {
  const options = { flashAttention, threads, prompt, count, contextSize: length + count + 8 };
  const args = [program, runtime, model, JSON.stringify(options)];
  const stdout = execFileSync(process.execPath, args, {
    encoding: "utf8",
    env: env(threads),
    stdio: ["ignore", "pipe", "ignore"],
  });
  const { promptTokens, promptMs, tokensPerSecond } = JSON.parse(stdout.trim().split("\n").at(-1));
  return { prompt: (promptTokens / promptMs) * 1000, generation: tokensPerSecond };
}

const quantile = (sorted, at) => sorted[Math.round(at * (sorted.length - 1))];
const summary = (samples) => {
  const sorted = samples.toSorted((a, b) => a - b);
  return { median: quantile(sorted, 0.5), low: quantile(sorted, 0.25), high: quantile(sorted, 0.75) };
};

const result = { processor: cpus()[0].model, cores: cpus().length, prompt: length, count, rows: [] };
console.log(`${result.processor}, ${result.cores} cores; a prompt of ${length} tokens, then ${count}; tokens a second`);
for (const threads of values.threads.split(",").map(Number)) {
  const samples = contestants.map(() => ({ prompt: [], generation: [] }));
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const [i, contestant] of contestants.entries()) {
      const figures = turn(contestant, threads);
      for (const key in figures) samples[i][key].push(figures[key]);
    }
  }
  for (const [i, { name }] of contestants.entries()) {
    const row = { threads, name, prompt: summary(samples[i].prompt), generation: summary(samples[i].generation) };
    result.rows.push(row);
    const words = (key) => `${row[key].median.toFixed(0)} (${row[key].low.toFixed(0)} to ${row[key].high.toFixed(0)})`;
    console.log(
      `${threads} thread(s)  ${name.padEnd(22)} prompt ${words("prompt")}  generation ${words("generation")}`,
    );
  }
}
if (values.json) writeFileSync(values.json, `${JSON.stringify(result, null, 1)}\n`);
