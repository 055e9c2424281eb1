/** Programs of users. Each prints the back end and two numbers of a causal attention that can be done in the head. */
const body = `
  const engine = await openEngine();
  const shape = [1, 2, 1, 2];
  const x = engine.tensor(new Float32Array([0, 0, 0, 0]), { shape });
  const v = engine.tensor(new Float32Array([1, 2, 3, 4]), { shape });
  const { out } = await engine.attention({ q: x, k: x, v, causal: true });
  console.log(engine.backend, ...(await out.read()));
  engine.dispose();
`;

/** Zero scores: the second query sees the mean of both values. */
export const answer = (backend: string) => `${backend} 1 2 2 3\n`;

export const esm = `import { openEngine } from "@tessera/core";\n${body}`;
export const cjs = `const { openEngine } = require("@tessera/core");\n(async () => {${body}})();\n`;

/** Without top-level await, as a bundle in CommonJS wants it. */
export const bundled = `import { openEngine } from "@tessera/core";\n(async () => {${body}})();\n`;

export const typed = `
import { type Engine, openEngine, TesseraError, type TesseraErrorCode } from "@tessera/core";
import { library } from "@tessera/cpu";
import { include } from "@tessera/core/include";

export async function run(): Promise<number> {
  const engine: Engine = await openEngine({ backend: "cpu" });
  try {
    const x = engine.tensor(new Float32Array(4), { shape: [1, 2, 1, 2] });
    const { out } = await engine.attention({ q: x, k: x, v: x, causal: true });
    return (await out.read()).length;
  } catch (error) {
    const code: TesseraErrorCode | undefined = error instanceof TesseraError ? error.code : undefined;
    throw new Error(\`\${code} \${library satisfies string | undefined} \${include satisfies string}\`);
  } finally {
    engine.dispose();
  }
}
// @ts-expect-error: no such back end
void openEngine({ backend: "metal" });
`;

export const workers = `
import { openEngine } from "@tessera/core";
import { isMainThread, parentPort, threadId, Worker } from "node:worker_threads";
if (isMainThread) {
  let good = 0;
  const one = (n) => new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url));
    worker.once("error", reject);
    worker.once("message", async (value) => {
      if (value === 3) good++;
      await worker.terminate();
      resolve();
    });
  });
  for (let i = 0; i < 50; i += 10) await Promise.all(Array.from({ length: 10 }, (_, n) => one(n)));
  console.log(good);
} else {
  const engine = await openEngine({ backend: "cpu" });
  const q = engine.tensor(new Float32Array(8).fill(1), { shape: [1, 1, 1, 8] });
  const v = engine.tensor(new Float32Array(8).fill(3), { shape: [1, 1, 1, 8] });
  const { out } = await engine.attention({ q, k: q, v });
  parentPort.postMessage((await out.read())[0]);
  if (threadId % 2) engine.dispose();
}
`;

const busy = `
import { openEngine } from "@tessera/core";
const engine = await openEngine({ backend: "cpu" });
const x = engine.tensor(new Float32Array(2048 * 16 * 64), { shape: [1, 2048, 16, 64] });
void engine.attention({ q: x, k: x, v: x });
void engine.attention({ q: x, k: x, v: x });
`;

/** Ends in the middle of work, and the exit code that must be kept. */
export const ends: readonly (readonly [string, string, number])[] = [
  ["process.exit(7)", `${busy}setTimeout(() => process.exit(7), 5);`, 7],
  ["an uncaught exception", `${busy}setTimeout(() => { throw new Error("on purpose"); }, 5);`, 1],
  ["an unhandled rejection", `${busy}setTimeout(() => void Promise.reject(new Error("on purpose")), 5);`, 1],
  ["process.exitCode and the end of the file", `${busy}process.exitCode = 5;`, 5],
];
