/** The real CPU back end through the addon, held to the reference; skipped where it isn't built. */
import { describe, expect, it } from "vitest";
import type { AttentionDesc, PromptBackend } from "../../src/backend.js";
import { loadBackend } from "../../src/backends.js";
import { referenceBackend } from "../../src/reference/index.js";
import { sleep, tensor } from "./support.js";

const backend: PromptBackend | Error = await loadBackend("cpu").catch((error) => error);

function problem(
  queries: number,
  keys: number,
  heads = 2,
  dim = 16,
): AttentionDesc & { readonly result: Float32Array } {
  let seed = queries * 31 + keys;
  const random = (count: number) =>
    Float32Array.from({ length: count }, () => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed / 1073741824 - 1;
    });
  const input = (length: number) => tensor(random(length * heads * dim), [1, length, heads, dim]);
  const result = new Float32Array(queries * heads * dim);
  const out = tensor(result, [1, queries, heads, dim]);
  return { q: input(queries), k: input(keys), v: input(keys), out, causal: true, result };
}

describe("the CPU back end", () => {
  it.for([
    [1, 7],
    [5, 5],
    [64, 96],
    [3, 0],
    [0, 3],
  ])("%d queries, %d keys: as the reference", async ([queries, keys]) => {
    if (backend instanceof Error) throw backend;
    const results: Float32Array[] = [];
    for (const one of [backend, referenceBackend]) {
      const context = one.open({ device: 0, threads: 2 });
      const given = problem(queries!, keys!);
      await context.attention(given);
      results.push(given.result);
      context.dispose();
    }
    for (const [i, value] of results[1]!.entries()) expect(results[0]![i]).toBeCloseTo(value, 5);
  });
  it("its own refusals keep their code and text", async () => {
    if (backend instanceof Error) throw backend;
    const context = backend.open({ device: 0 });
    const given = { ...problem(4, 4), softcap: -1 };
    const support = context.supports(given);
    expect(support).toMatchObject({
      supported: false,
      code: "invalid-argument",
      reason: expect.stringContaining("softcap"),
    });
    await expect(context.attention(given)).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringContaining("softcap"),
    });
    expect(() => backend.open({ device: 99 })).toThrowError(expect.objectContaining({ code: "device-unavailable" }));
    context.dispose();
  });
  it("a long call leaves the event loop free, and stops when told", async () => {
    if (backend instanceof Error) throw backend;
    const context = backend.open({ device: 0, threads: 1 });
    const controller = new AbortController();
    const running = context.attention(problem(8192, 8192, 8, 128), controller.signal);
    await sleep(50);
    controller.abort(new Error("enough"));
    const started = performance.now();
    await expect(running).rejects.toThrowError("enough");
    expect(performance.now() - started).toBeLessThan(2000);
    context.dispose();
  });
});
