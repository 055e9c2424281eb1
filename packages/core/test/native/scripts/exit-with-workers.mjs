// process.exit of the main thread while workers compute: FOLDER LIBRARY ORDER
import { once } from "node:events";
import { join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { large } from "./problem.mjs";

if (isMainThread) {
  const [folder, library, order] = process.argv.slice(2);
  const workers = [0, 1, 2].map(() => new Worker(new URL(import.meta.url), { workerData: { folder, library, order } }));
  await Promise.all(workers.map((worker) => once(worker, "message")));
  process.exit(42);
} else {
  const { folder, library, order } = workerData;
  const { loadBackend } = await import(join(folder, "backends.js"));
  const context = (await loadBackend({ library })).open({ device: 0 });
  context.attention(large(order)).catch(() => {});
  setTimeout(() => parentPort.postMessage("running"), 20);
}
