// Workers that are terminated at random moments between small calls, errors and settled promises: FOLDER LIBRARY COUNT
import { once } from "node:events";
import { join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { large } from "./problem.mjs";

if (isMainThread) {
  const [folder, library, count] = process.argv.slice(2);
  const one = async (i) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: { folder, library } });
    await once(worker, "message");
    await new Promise((resolve) => setTimeout(resolve, i % 7));
    await worker.terminate();
  };
  for (let i = 0; i < Number(count); i += 4) await Promise.all([0, 1, 2, 3].map((j) => one(i + j)));
  console.log("done");
} else {
  const { folder, library } = workerData;
  const { loadBackend } = await import(join(folder, "backends.js"));
  const backend = await loadBackend({ library });
  const context = backend.open({ device: 0 });
  parentPort.postMessage("running");
  for (;;) {
    const calls = [context.attention(large("sleep:1")), context.attention(large("fail:2")), context.attention({})];
    for (let i = 0; i < 50; i++) calls.push(context.attention(large()));
    context.alloc(1000);
    try {
      context.alloc(-1);
    } catch {}
    await Promise.allSettled(calls);
  }
}
