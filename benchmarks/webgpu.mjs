// The WebGPU back end on the GPU that the system's driver has (Vulkan, D3D12, Metal), in Node by way of Dawn: bench suites into a result
// file for `tessera report`. After `npm run build`, and `npm ci` in backends/webgpu/test/dawn:
//   node benchmarks/webgpu.mjs [--suite prefill ...] [--filter REGEX] [--seconds 120] [--json FILE]
// Correctness there: node backends/webgpu/test/run.mjs --full gpu
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { webgpu } from "../backends/webgpu/dist/index.js";
import { runBench } from "../packages/bench/dist/index.js";

const { values } = parseArgs({
  options: {
    suite: { type: "string", multiple: true, default: ["prefill", "decode", "overhead"] },
    filter: { type: "string" },
    seconds: { type: "string", default: "120" },
    json: { type: "string" },
  },
});
const dawn = join(import.meta.dirname, "../backends/webgpu/test/dawn/node_modules/webgpu/index.js");
const { create, globals } = await import(pathToFileURL(dawn).href);
Object.assign(globalThis, globals);
const gpu = create(["enable-dawn-features=allow_unsafe_apis,disable_workgroup_init,vulkan_enable_f16_on_nvidia"]);
const result = await runBench({
  suites: values.suite,
  devices: [{ backend: webgpu({ gpu }) }],
  seconds: Number(values.seconds),
  ...(values.filter && { filter: new RegExp(values.filter) }),
  onMeasured: (one) => console.log(`${one.suite}: ${one.case}  ${one.kernel ?? ""}  ${one.median.toPrecision(4)} ms`),
});
for (const { suite, case: name, reason } of result.skipped) console.log(`${suite}: ${name}: not measured: ${reason}`);
if (values.json) writeFileSync(values.json, `${JSON.stringify(result, null, 1)}\n`);
process.exit(0);
