// Engines made, used and disposed of, again and again: prints as JSON how many bytes the process has grown, and the memory that the
// device's driver has free has shrunk, after as many to warm up, 2,000 at most.
//   node src/cycles.mjs [CYCLES] [cpu|cuda|hip|/path/to/a/library.so] [/path/to/cuda-driver-cycles]
// Exit code 1: the device lost memory, or the process a MiB or more. What a GPU's driver does to the process with as many streams, events
// and buffers, without Tessera, is measured first by that program, and taken off.
import { spawnSync } from "node:child_process";
import { openEngine } from "@tessera/core";
import { freeMemory } from "./device-memory.mjs";
import { problem } from "./problems.mjs";
import { growth, look, steadily } from "./steady.mjs";

steadily();

/** A driver gives memory in pieces of this size; one that is played counts bytes. */
const piece = process.env.TESSERA_EMULATED ? 1 : 2 << 20;
/** 105 bytes for each of 10,000 engines, less than the smallest object of either language that an engine could leave, with its header. */
const limit = 1 << 20;

const [cycles = "10000", name = "cpu", driver] = process.argv.slice(2);
const warm = Math.min(2000, Number(cycles));
const inputs = problem(4);
const open = () => openEngine({ ...(name.includes("/") ? { library: name } : { backend: name }), threads: 2 });
const cycle = async () => {
  const engine = await open();
  const k = engine.tensor(inputs.k.data, { shape: inputs.k.shape });
  const cache = engine.kvCache({ batch: 1, capacity: 8, kvHeads: 1, headDim: 32, dtype: "f16" });
  const token = { data: new Float32Array(32), shape: [1, 1, 1, 32] };
  await cache.append({ k: token, v: token });
  const { out } = await engine.attention({ ...inputs, k });
  if (!(Math.abs(out.data[0]) < 10)) throw new Error(`out is ${out.data[0]}`);
  cache.dispose();
  k.dispose();
  engine.dispose();
};
const free = async () => {
  const engine = await open();
  const bytes = engine.device.caps.hostMemory ? undefined : freeMemory(engine);
  engine.dispose();
  return bytes;
};
function driverAlone() {
  const { status, stdout, stderr } = spawnSync(driver, [cycles, String(warm)], { encoding: "utf8" });
  if (status !== 0) throw new Error(`${driver} ended with ${status}: ${stderr}`);
  return JSON.parse(stdout).grown;
}

const ofDriver = driver === undefined ? undefined : driverAlone();
for (let i = 0; i < warm; i++) await cycle();
const [before, freeBefore] = [await look(), await free()];
for (let i = 0; i < Number(cycles); i++) await cycle();
const [after, freeAfter] = [await look(), await free()];
const { grown, used, native } = growth(before, after);
const lost = freeBefore === undefined ? {} : { freeBefore, freeAfter, lost: freeBefore - freeAfter };
const ours = native - Math.max(0, ofDriver ?? 0);
console.log(JSON.stringify({ cycles: Number(cycles), grown, used, native, driver: ofDriver, ours, ...lost }));
const told = (text) => {
  console.error(`after ${cycles} engines ${text}`);
  process.exitCode = 1;
};
if (lost.lost >= piece) told(`the device has ${lost.lost} bytes less`);
// A sanitizer keeps what is freed for a while.
const rest = process.env.ASAN_OPTIONS ? 0 : Math.max(0, ours);
if (Math.max(0, used) + rest >= limit)
  told(
    `JavaScript uses ${used} bytes more, and the process ${ours} that aren't the driver's; allowed together: ${limit}`,
  );
