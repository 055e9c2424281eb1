/**
 * How fast this host's memory can be read, with no native code: WebAssembly that adds up 64 bytes a step with 128-bit
 * vectors, on as many threads as a CPU back end computes with, each over memory of its own.
 */
import { Worker } from "node:worker_threads";
import type { Plan } from "./measure.js";

/**
 * (module (memory (import "m" "m") 0)
 *   (func (export "sum") (param $at i32) (param $end i32) (result i32) (local $a v128) (local $b v128) (local $c v128) (local $d v128)
 *     (loop  $a += [at], $b += [at+16], $c += [at+32], $d += [at+48];  at += 64;  br_if at < end)
 *     lane 0 of $a + $b + $c + $d))
 */
function moduleBytes(): Uint8Array {
  const section = (id: number, body: readonly number[]) => [id, ...leb(body.length), ...body];
  const text = (name: string) => [name.length, ...Buffer.from(name)];
  const get = (local: number) => [0x20, local];
  const set = (local: number) => [0x21, local];
  const add = [0xfd, 0xae, 0x01]; // i32x4.add
  const load = (offset: number) => [0xfd, 0x00, 0x04, offset]; // v128.load align=16
  const chains = [2, 3, 4, 5];
  const loop = [
    ...[0x03, 0x40],
    ...chains.flatMap((local, i) => [...get(local), ...get(0), ...load(16 * i), ...add, ...set(local)]),
    ...[...get(0), 0x41, ...[0xc0, 0x00], 0x6a, 0x22, 0], // at += 64, and look at it
    ...[...get(1), 0x49, 0x0d, 0x00, 0x0b], // while it is below the end
  ];
  const sum = [...get(2), ...get(3), ...add, ...get(4), ...add, ...get(5), ...add, 0xfd, 0x1b, 0x00];
  const code = [1, 4, 0x7b, ...loop, ...sum, 0x0b]; // four locals, v128
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [1, 0x60, 2, 0x7f, 0x7f, 1, 0x7f]),
    ...section(2, [1, ...text("m"), ...text("m"), 0x02, 0x00, 0x00]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text("sum"), 0x00, 0]),
    ...section(10, [1, ...leb(code.length), ...code]),
  ]);
}

function leb(value: number): number[] {
  const bytes: number[] = [];
  for (let rest = value; ; rest >>>= 7) {
    if (rest < 0x80) return [...bytes, rest];
    bytes.push((rest & 0x7f) | 0x80);
  }
}

// The worker: fills its memory, then at each number in the flag reads all of it once and says that it has.
const worker = `
const { workerData, parentPort } = require("node:worker_threads");
const { bytes, wasm, shared } = workerData;
const flag = new Int32Array(shared);
const memory = new WebAssembly.Memory({ initial: bytes / 65536 });
new Int32Array(memory.buffer).fill(1);
const { sum } = new WebAssembly.Instance(new WebAssembly.Module(wasm), { m: { m: memory } }).exports;
sum(0, bytes);
if (sum(0, bytes) === 0) throw new Error("nothing was read");
Atomics.add(flag, 1, 1);
Atomics.notify(flag, 1);
for (let turn = 1; ; turn++) {
  Atomics.wait(flag, 0, turn - 1);
  if (Atomics.load(flag, 0) < 0) break;
  sum(0, bytes);
  Atomics.add(flag, 1, 1);
  Atomics.notify(flag, 1);
}
`;

/** ES2024; every supported Node has it. */
const { waitAsync } = Atomics as unknown as {
  waitAsync(array: Int32Array, index: number, value: number): { readonly value: unknown };
};

export interface MemoryRead {
  /** Milliseconds. */
  readonly samples: number[];
  /** Bytes of a sample. */
  readonly total: number;
  readonly method: string;
}

export async function readOnce(bytes: number, threads: number, plan: Plan): Promise<MemoryRead> {
  const each = Math.ceil(bytes / threads / 65536) * 65536;
  const shared = new SharedArrayBuffer(8);
  const flag = new Int32Array(shared);
  const workerData = { bytes: each, wasm: moduleBytes(), shared };
  const workers = Array.from({ length: threads }, () => new Worker(worker, { eval: true, workerData }));
  const failed = new Promise<never>((_, reject) => {
    for (const one of workers) one.once("error", reject);
  });
  failed.catch(() => {});
  const reached = async (count: number) => {
    for (let seen = Atomics.load(flag, 1); seen < count; seen = Atomics.load(flag, 1)) {
      const waiting = waitAsync(flag, 1, seen);
      await Promise.race([waiting.value, failed]);
    }
  };
  try {
    await reached(threads);
    const samples: number[] = [];
    for (let turn = 1; samples.length < plan.repeats; turn++) {
      plan.signal?.throwIfAborted();
      const start = performance.now();
      Atomics.store(flag, 0, turn);
      Atomics.notify(flag, 0);
      await reached(threads * (turn + 1));
      samples.push(performance.now() - start);
    }
    const method = `${Math.round((each * threads) / 2 ** 20)} MiB added up once by WebAssembly with 128-bit vectors, on ${threads} threads`;
    return { samples, total: each * threads, method };
  } finally {
    Atomics.store(flag, 0, -1);
    Atomics.notify(flag, 0);
    await Promise.all(workers.map((one) => one.terminate()));
  }
}
