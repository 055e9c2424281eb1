/** Engines in scopes, in workers and at the end of a process, with the real CPU back end. */
import ts from "typescript";
import { expect, it } from "vitest";
import { runNode } from "./run-node.js";

it("`using` and `await using`, compiled by TypeScript, dispose what they hold", () => {
  const source = `
    import { openEngine, Tensor } from "@tessera/core";
    let inside = 0;
    let tensor: Tensor | undefined;
    {
      await using engine = await openEngine({ backend: "cpu" });
      {
        using q = engine.tensor(new Float32Array(1024), { shape: [1, 4, 4, 64] });
        tensor = q;
        const { out } = await engine.attention({ q, k: q, v: q });
        out.dispose();
        inside = engine.bytesInUse;
      }
      console.log(inside - engine.bytesInUse); // q's bytes; a workspace may stay with the engine
    }
    const error = await tensor!.read().catch((e: Error) => e);
    console.log(error instanceof Error && error.constructor.name);
  `;
  const { outputText } = ts.transpileModule(source, {
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
  });
  const { stdout, stderr, status } = runNode(outputText, "mjs");
  expect(stderr).toBe("");
  expect(stdout.trim().split("\n")).toEqual(["4096", "TesseraError"]);
  expect(status).toBe(0);
});

it("50 workers load, compute and end (node #43534)", { timeout: 200_000 }, () => {
  const source = `
    import { Worker, isMainThread, parentPort, threadId } from "node:worker_threads";
    import { openEngine } from "@tessera/core";
    if (isMainThread) {
      let good = 0;
      const one = (end) => new Promise((resolve, reject) => {
        const worker = new Worker(new URL(import.meta.url));
        worker.once("error", reject);
        worker.once("message", async (x) => {
          if (x === 3) good++;
          if (end) await worker.terminate();
          resolve();
        });
      });
      for (let i = 0; i < 50; i += 5) await Promise.all([0, 1, 2, 3, 4].map((n) => one((i + n) % 2)));
      console.log(good);
    } else {
      const engine = await openEngine({ backend: "cpu" });
      const q = engine.tensor(new Float32Array(8).fill(1), { shape: [1, 1, 1, 8] });
      const v = engine.tensor(new Float32Array(8).fill(3), { shape: [1, 1, 1, 8] });
      const { out } = await engine.attention({ q, k: q, v });
      const value = (await out.read())[0];
      if (threadId % 2) engine.dispose();
      parentPort.postMessage(value);
    }`;
  const { status, signal, stdout, stderr } = runNode(source, "mjs", { minutes: 3 });
  expect(stderr).toBe("");
  expect(stdout.trim()).toBe("50");
  expect([status, signal]).toEqual([0, null]);
});

it("process.exit in the middle of a computation keeps its code", () => {
  const source = `
    import { openEngine } from "@tessera/core";
    const engine = await openEngine({ backend: "cpu" });
    const x = engine.tensor(new Float32Array(1024 * 16 * 64), { shape: [1, 1024, 16, 64] });
    void engine.attention({ q: x, k: x, v: x });
    void engine.attention({ q: x, k: x, v: x });
    setTimeout(() => process.exit(7), 5);`;
  const { status, signal, stderr } = runNode(source, "mjs");
  expect([status, signal, stderr]).toEqual([7, null, ""]);
});
