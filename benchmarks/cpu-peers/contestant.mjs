// One contestant of run.mjs, in a process of its own: Tessera's engine, or one of onnxruntime's ops. (ggml's is
// ggml_peer.cpp; all speak alike.)
//
//   node contestant.mjs CORE THREADS CASE FOLDER tessera
//   node contestant.mjs CORE THREADS CASE FOLDER onnxruntime OP TYPE
//
// CORE is the module of the engine, CASE one of cases.mjs as JSON. Reads FOLDER/q.bin (f32), k.bin and v.bin (of the case's
// type), computes once, writes FOLDER/out.bin (f32, [SQ, HEADS, DIM]) and a line: what it is, or "can't: " and why not. Then,
// for every line with two numbers, runs so many times untimed and so many timed, and answers with the milliseconds.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { queryType } from "./cases.mjs";
import { onnxruntimeOp } from "./onnxruntime.mjs";

const [core, threads, text, folder, kind, op, type] = process.argv.slice(2);
const c = JSON.parse(text);
const { decode, encode, openEngine } = await import(core);

const file = (name) => readFileSync(join(folder, `${name}.bin`));
const floats = (bytes) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
const operands = () => {
  const stored = (bytes) => {
    if (c.type === "f32") return floats(bytes);
    return c.type.startsWith("q")
      ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length)
      : new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
  };
  return { q: floats(file("q")), k: stored(file("k")), v: stored(file("v")) };
};

async function tessera() {
  const engine = await openEngine({ backend: "cpu", threads: Number(threads) });
  const { q, k, v } = operands();
  const dtype = queryType(c);
  const shape = [1, c.sq, c.heads, c.dim];
  const kv = { shape: [1, c.sk, c.kvHeads, c.dim], dtype: c.type };
  const calls = Array.from({ length: c.copies ?? 1 }, () => ({
    q: engine.tensor(encode(q, dtype), { shape, dtype }),
    k: engine.tensor(k.slice(), kv),
    v: engine.tensor(v.slice(), kv),
    out: engine.tensor(encode(new Float32Array(q.length), dtype), { shape, dtype }),
    causal: c.causal === true,
  }));
  let turn = 0;
  return {
    name: `tessera ${engine.explain(calls[0]).kernel}`,
    run: () => engine.attention(calls[turn++ % calls.length]),
    output: () => calls[0].out.readFloat32(),
  };
}

const { name, run, output } = await (kind === "tessera"
  ? tessera()
  : onnxruntimeOp(c, operands(), { op, type, threads: Number(threads), encode, decode })
).catch((error) => ({ name: `can't: ${String(error.message).split("\n")[0].slice(0, 120)}` }));
if (run) {
  await run();
  const out = await output();
  writeFileSync(join(folder, "out.bin"), Buffer.from(out.buffer, out.byteOffset, out.byteLength));
}
console.log(name);

for await (const line of createInterface({ input: process.stdin })) {
  const [before, timed] = line.split(" ").map(Number);
  for (let i = 0; i < before; i++) await run();
  const samples = [];
  for (let i = 0; i < timed; i++) {
    const start = performance.now();
    await run();
    samples.push((performance.now() - start).toFixed(6));
  }
  console.log(samples.join(" "));
}
