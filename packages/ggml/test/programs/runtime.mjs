// node-llama-cpp, as its users run it, on the tiny model; one JSON line on stdout. Started by the tests, in a process of its
// own for each way of computing attention: GGML_BACKEND_PATH is read once.
//
//   node runtime.mjs RUNTIME MODEL '{"flashAttention":true, "threads":1, "tokens":[…] | "prompt":"…", "count":200, …}'
import { join } from "node:path";

const [runtime, modelPath, text] = process.argv.slice(2);
const { flashAttention, threads, tokens, prompt, count, contextSize = 1024, cache, batchSize = 512 } = JSON.parse(text);
const { getLlama, LlamaLogLevel } = await import(join(runtime, "node_modules/node-llama-cpp/dist/index.js"));

const log = [];
const llama = await getLlama({
  gpu: false,
  build: "never",
  skipDownload: true,
  progressLogs: false,
  logLevel: LlamaLogLevel.info,
  logger: (level, message) => log.push(`${level}: ${message}`),
});
const model = await llama.loadModel({ modelPath });
const types = cache === undefined ? {} : { experimentalKvCacheKeyType: cache, experimentalKvCacheValueType: cache };
const context = await model.createContext({ contextSize, batchSize, flashAttention, threads, ...types });
const sequence = context.getSequence();
const result = {};

if (tokens) {
  const ask = { generateNext: { logits: true, options: { temperature: 0 } } };
  const rows = await sequence.controlledEvaluate(tokens.map((token) => [token, ask]));
  result.logits = rows.map(({ next }) => {
    const row = [];
    for (const [token, logit] of next.logits) row[token] = logit;
    return row;
  });
} else {
  const given = model.tokenize(prompt);
  const out = [];
  const start = performance.now();
  let first;
  for await (const token of sequence.evaluate(given, { temperature: 0 })) {
    first ??= performance.now();
    out.push(token);
    if (out.length >= count) break;
  }
  const end = performance.now();
  Object.assign(result, {
    text: model.detokenize(out),
    promptTokens: given.length,
    promptMs: first - start,
    tokensPerSecond: ((out.length - 1) / (end - first)) * 1000,
  });
}
await context.dispose();
await model.dispose();
await llama.dispose();
console.log(JSON.stringify({ ...result, log }));
