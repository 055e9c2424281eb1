import { join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

if (isMainThread) {
  const worker = new Worker(new URL(import.meta.url), { workerData: process.argv.slice(2) });
  worker.on("message", (report) => console.log(JSON.stringify(report)));
} else {
  const [folder, library] = workerData;
  const { probe } = await import(join(folder, "probe.js"));
  parentPort.postMessage((await probe({ library }))[0]);
}
