// How far the harness's figures are from a plain loop's over the same back end, by turns on a GPU:
//   node packages/bench/native/compare.mjs cuda [REPEATS]
// In the bundle: tessera-bench/node tessera-bench/node_modules/@tessera/bench/native/compare.mjs cuda
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { loadBackend } from "@tessera/core";
import { runBench } from "../dist/index.js";

const [backend = "cuda", repeats = "30"] = process.argv.slice(2);
const { path } = await loadBackend(backend);
const program = fileURLToPath(new URL("build/plain_loop", import.meta.url));
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

let worst = 0;
// Calls that take some 20 ms on an H200, as the harness's samples do.
for (const [size, calls] of [
  [1024, 200],
  [2048, 64],
  [4096, 20],
  [8192, 6],
]) {
  // The loop, the harness, the loop: a device that warms up or slows down shows.
  const loop = () => {
    const args = [path, 0, repeats, calls, 4, 32, 8, size, 128].map(String);
    return median(JSON.parse(execFileSync(program, args)).samples);
  };
  const before = loop();
  const filter = new RegExp(`B4 ${size}² H32:8 D128 causal f16$`);
  const result = await runBench({ suites: ["prefill"], devices: [{ backend }], repeats: Number(repeats), filter });
  const after = loop();
  const harness = result.measurements[0].median;
  const off = harness / ((before + after) / 2) - 1;
  worst = Math.max(worst, Math.abs(off));
  const times = `harness ${harness.toFixed(4)} ms, plain loop ${before.toFixed(4)} and ${after.toFixed(4)} ms`;
  console.log(`S ${size}: ${times}: ${(100 * off).toFixed(1)} %`);
}
console.log(`largest difference ${(100 * worst).toFixed(1)} %`);
