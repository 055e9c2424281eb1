// Tessera's CPU back end beside onnxruntime's attention ops: causal, fp32, batch 1, 32 query and 8 key/value heads, D 128.
//
//   npm install && node run.mjs [--threads 2] [--sizes 512,1024,4096] [--rounds 15] [--json FILE]
//
// Contestants take turns, round after round, in one process, so that whatever else the machine does hits all alike.
// Figures are medians; GFLOP/s count the visible half (4 · Hq · D · S (S + 1) / 2). Outputs are compared before timing.
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import ort from "onnxruntime-node";
import { openEngine } from "../../packages/core/dist/index.js";
import { oneNodeModel } from "./onnx.mjs";

const { values } = parseArgs({
  options: {
    threads: { type: "string", default: "2" },
    sizes: { type: "string", default: "512,1024,4096" },
    rounds: { type: "string", default: "15" },
    json: { type: "string" },
  },
});
const threads = Number(values.threads);
const rounds = Number(values.rounds);
const [heads, kvHeads, dim] = [32, 8, 128];

function normal(count) {
  const out = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    out[i] = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  }
  return out;
}

/** [S, H, D] to [H, S, D]. */
function headsFirst(data, size, count) {
  const out = new Float32Array(data.length);
  for (let s = 0; s < size; s++) {
    for (let h = 0; h < count; h++) {
      out.set(data.subarray((s * count + h) * dim, (s * count + h + 1) * dim), (h * size + s) * dim);
    }
  }
  return out;
}

async function onnxruntimeOps(size, q, k, v) {
  const type = "float32";
  const tensor = (data, dims) => new ort.Tensor(type, data, dims);
  const options = { intraOpNumThreads: threads, interOpNumThreads: 1, logSeverityLevel: 3 };
  const grouped = oneNodeModel({
    op: "GroupQueryAttention",
    domain: "com.microsoft",
    opset: 21,
    inputs: [
      { name: "q", type, shape: [1, size, heads * dim] },
      { name: "k", type, shape: [1, size, kvHeads * dim] },
      { name: "v", type, shape: [1, size, kvHeads * dim] },
      null,
      null,
      { name: "lengths", type: "int32", shape: [1] },
      { name: "total", type: "int32", shape: [1] },
    ],
    outputs: [
      { name: "out", type, shape: [1, size, heads * dim] },
      { name: "present_k", type, shape: [1, kvHeads, size, dim] },
      { name: "present_v", type, shape: [1, kvHeads, size, dim] },
    ],
    attributes: { num_heads: heads, kv_num_heads: kvHeads },
  });
  const attention = oneNodeModel({
    op: "Attention",
    domain: "",
    opset: 23,
    inputs: [
      { name: "q", type, shape: [1, heads, size, dim] },
      { name: "k", type, shape: [1, kvHeads, size, dim] },
      { name: "v", type, shape: [1, kvHeads, size, dim] },
    ],
    outputs: [{ name: "out", type, shape: [1, heads, size, dim] }],
    attributes: { is_causal: 1 },
  });
  const sessions = {
    grouped: await ort.InferenceSession.create(grouped, options),
    attention: await ort.InferenceSession.create(attention, options),
  };
  const groupedFeeds = {
    q: tensor(q, [1, size, heads * dim]),
    k: tensor(k, [1, size, kvHeads * dim]),
    v: tensor(v, [1, size, kvHeads * dim]),
    lengths: new ort.Tensor("int32", Int32Array.of(size - 1), [1]),
    total: new ort.Tensor("int32", Int32Array.of(size), [1]),
  };
  const attentionFeeds = {
    q: tensor(headsFirst(q, size, heads), [1, heads, size, dim]),
    k: tensor(headsFirst(k, size, kvHeads), [1, kvHeads, size, dim]),
    v: tensor(headsFirst(v, size, kvHeads), [1, kvHeads, size, dim]),
  };
  return [
    {
      name: "onnxruntime GroupQueryAttention",
      run: async () => (await sessions.grouped.run(groupedFeeds)).out.data,
    },
    {
      name: "onnxruntime Attention (opset 23)",
      run: async () => (await sessions.attention.run(attentionFeeds)).out.data,
      headsFirst: true,
    },
  ];
}

async function tessera(engine, size, q, k, v) {
  const tensors = {
    q: engine.tensor(q, { shape: [1, size, heads, dim] }),
    k: engine.tensor(k, { shape: [1, size, kvHeads, dim] }),
    v: engine.tensor(v, { shape: [1, size, kvHeads, dim] }),
    out: engine.tensor(new Float32Array(q.length), { shape: [1, size, heads, dim] }),
  };
  const call = { ...tensors, causal: true };
  return {
    name: `tessera ${engine.explain(call).kernel}`,
    run: async () => {
      await engine.attention(call);
      return tensors.out;
    },
  };
}

const median = (samples) => samples.slice().sort((a, b) => a - b)[samples.length >> 1];

const engine = await openEngine({ backend: "cpu", threads });
const results = [];
for (const size of values.sizes.split(",").map(Number)) {
  const [q, k, v] = [normal(size * heads * dim), normal(size * kvHeads * dim), normal(size * kvHeads * dim)];
  const contestants = [await tessera(engine, size, q, k, v), ...(await onnxruntimeOps(size, q, k, v))];
  const expected = await (await contestants[0].run()).read();
  for (const peer of contestants.slice(1)) {
    const got = await peer.run();
    const same = peer.headsFirst ? headsFirst(expected, size, heads) : expected;
    let worst = 0;
    for (let i = 0; i < got.length; i++) worst = Math.max(worst, Math.abs(got[i] - same[i]));
    if (!(worst < 1e-4)) throw new Error(`${peer.name} and Tessera differ by ${worst} at S ${size}`);
  }
  const samples = contestants.map(() => []);
  for (let round = -2; round < rounds; round++) {
    for (const [i, contestant] of contestants.entries()) {
      const start = performance.now();
      await contestant.run();
      if (round >= 0) samples[i].push(performance.now() - start);
    }
  }
  const flops = 4 * heads * dim * ((size * (size + 1)) / 2);
  const rows = contestants.map(({ name }, i) => ({
    size,
    name,
    medianMs: median(samples[i]),
    minMs: Math.min(...samples[i]),
    maxMs: Math.max(...samples[i]),
    gflops: flops / median(samples[i]) / 1e6,
  }));
  const best = Math.min(...rows.slice(1).map((row) => row.medianMs));
  console.log(`\n${size} × ${size}, causal fp32, ${threads} threads (${cpus()[0]?.model}, ${engine.device.arch})`);
  for (const row of rows) {
    console.log(
      `  ${row.name.padEnd(34)} ${row.medianMs.toFixed(2).padStart(9)} ms  (${row.minMs.toFixed(2)} … ${row.maxMs.toFixed(2)})  ${row.gflops.toFixed(0).padStart(5)} GFLOP/s`,
    );
  }
  console.log(`  Tessera ÷ best peer: ${(best / rows[0].medianMs).toFixed(2)} × its speed`);
  results.push(...rows);
}
engine.dispose();
if (values.json) {
  const about = { date: new Date().toISOString(), cpu: cpus()[0]?.model, arch: engine.device.arch, threads, rounds };
  writeFileSync(values.json, `${JSON.stringify({ ...about, node: process.version, results }, null, 2)}\n`);
}
