// Workers that load, run and are ended in the middle: FOLDER LIBRARY COUNT ORDER
import { once } from "node:events";
import { join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { large } from "./problem.mjs";

if (isMainThread) {
  const [folder, library, count, order] = process.argv.slice(2);
  const one = async (i) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: { folder, library, order } });
    const gone = new Promise((resolve) => worker.once("exit", resolve)); // "error" comes before its context is closed
    await once(worker, "message");
    if (i % 3 === 0) await worker.terminate();
    else if (i % 3 === 1) worker.postMessage("exit");
    else worker.postMessage("throw");
    if (i % 3 === 2) await once(worker, "error");
    await gone;
  };
  for (let i = 0; i < Number(count); i += 10) {
    await Promise.all(Array.from({ length: Math.min(10, count - i) }, (_, j) => one(i + j)));
  }
  const { loadBackend } = await import(join(folder, "backends.js"));
  const context = (await loadBackend({ library })).open({ device: 0 });
  console.log(context.kernels()[0].summary);
} else {
  const { folder, library, order } = workerData;
  const { loadBackend } = await import(join(folder, "backends.js"));
  const context = (await loadBackend({ library })).open({ device: 0 });
  await context.attention(large());
  for (let i = 0; i < 3; i++) context.attention(large(order)).catch(() => {});
  const buffer = context.alloc(1 << 16);
  context.write(buffer, 0, new Uint8Array(1 << 16));
  context.read(buffer, 0, new Uint8Array(1 << 16));
  parentPort.on("message", (how) => {
    if (how === "exit") process.exit(0);
    throw new Error("on purpose");
  });
  parentPort.postMessage("running");
}
