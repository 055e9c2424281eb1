// The process ends in the middle of work: FOLDER LIBRARY HOW ORDER
import { join } from "node:path";
import { large } from "./problem.mjs";

const [folder, library, how, order] = process.argv.slice(2);
const { loadBackend } = await import(join(folder, "backends.js"));
const context = (await loadBackend({ library })).open({ device: 0 });
const running = context.attention(large(order));
const queued = context.attention(large(order));
const buffer = context.alloc(1 << 20);
context.write(buffer, 0, new Uint8Array(1 << 20));
running.catch(() => {});
queued.catch(() => {});
setTimeout(() => {
  if (how === "exit") process.exit(42);
  if (how === "uncaught") throw new Error("uncaught on purpose");
  if (how === "reject") Promise.reject(new Error("unhandled on purpose"));
  if (how === "dispose") context.dispose();
}, 30);
if (how === "natural") {
  await Promise.all([running, queued]);
  console.log("done");
}
