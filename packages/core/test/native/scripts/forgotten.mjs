// Forgets buffers and contexts and lets the garbage collector find them: FOLDER LIBRARY (with --expose-gc)
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { large } from "./problem.mjs";

const [folder, library] = process.argv.slice(2);
const { loadBackend } = await import(join(folder, "backends.js"));
const backend = await loadBackend({ library });
const watch = backend.open({ device: 0 });
const counts = () => watch.kernels()[0].summary;

// Arrays that only native code still uses must survive a collection.
(() => watch.attention(large("sleep:50")).then(() => console.log("survived")))();
globalThis.gc();
await watch.synchronize();

(() => {
  for (let i = 0; i < 100; i++) watch.alloc(1 << 16);
  for (let i = 0; i < 10; i++) {
    const context = backend.open({ device: 0 });
    context.alloc(1 << 16);
    context.attention(large("sleep:5"));
  }
})();
console.log(counts());
for (let i = 0; i < 100 && !/contexts=1 buffers=0/.test(counts()); i++) {
  globalThis.gc();
  await sleep(20);
}
console.log(counts());
