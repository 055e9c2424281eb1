// Host arrays that only native code still uses: FOLDER LIBRARY (with --expose-gc)
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { large } from "./problem.mjs";

const [folder, library] = process.argv.slice(2);
const { loadBackend } = await import(join(folder, "backends.js"));
const context = (await loadBackend({ library })).open({ device: 0 });

const array = (() => {
  const problem = large("sleep:300");
  context.attention(problem);
  return new WeakRef(problem.q.data);
})();
await sleep(20);
globalThis.gc();
await sleep(20);
globalThis.gc();
console.log(array.deref() === undefined ? "lost" : "kept");
await context.synchronize();
for (let i = 0; i < 50 && array.deref() !== undefined; i++) {
  await sleep(10);
  globalThis.gc();
}
console.log(array.deref() === undefined ? "let go" : "leaked");
