/** Memory that runs out at the n-th call of the back end, for every n until an engine gets through all that it does. */
import { afterEach, describe, expect, it } from "vitest";
import { openEngine } from "../../src/open-engine.js";
import { counts, mock, mockBackend } from "./support.js";

afterEach(() => {
  delete process.env.MOCK_OUT_OF_MEMORY;
});

const f32 = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)).fill(1), shape });

/** Everything an engine does, until something fails. Whatever happens, all of it is given back. */
async function useEverything(library: string): Promise<unknown> {
  const disposables: { dispose(): void }[] = [];
  const keep = <T extends { dispose(): void }>(made: T): T => {
    disposables.push(made);
    return made;
  };
  try {
    const engine = keep(await openEngine({ library }));
    const q = keep(engine.tensor(f32(1, 2, 1, 8).data, { shape: [1, 2, 1, 8] }));
    keep((await engine.attention({ q, k: q, v: q })).out);
    await engine.attention({ q: f32(1, 64, 2, 8), k: f32(1, 64, 2, 8), v: f32(1, 64, 2, 8), returnLse: true });
    const cache = keep(engine.kvCache({ batch: 1, capacity: 16, kvHeads: 1, headDim: 8, dtype: "f32", pageSize: 4 }));
    await cache.append({ k: f32(1, 5, 1, 8), v: f32(1, 5, 1, 8) });
    await engine.decode({ q: f32(1, 1, 1, 8), cache, k: f32(1, 1, 1, 8), v: f32(1, 1, 1, 8) });
    const fork = keep(await cache.fork());
    await fork.append({ k: f32(1, 1, 1, 8), v: f32(1, 1, 1, 8) });
    if (engine.device.caps.graphs) {
      const out = keep(engine.empty({ shape: [1, 2, 1, 8], dtype: "f32" }));
      const graph = keep(await engine.capture(() => engine.attention({ q, k: q, v: q, out })));
      await graph.launch();
      await out.read();
    }
    await engine.synchronize();
    return undefined;
  } catch (error) {
    return error;
  } finally {
    for (const made of disposables.reverse()) made.dispose();
  }
}

describe.each([
  ["computing in the call", [] as string[]],
  ["with queues", ["-DMOCK_ASYNC"]],
])("memory runs out at the n-th call of a device %s", (_, flags) => {
  it("each time it is told, everything is freed, and the next engine works", { timeout: 120_000 }, async () => {
    const library = mock(...flags);
    const watch = (await mockBackend(...flags)).open({ device: 0 });
    expect(await useEverything(library)).toBeUndefined();
    await watch.synchronize();
    const { events } = counts(watch); // its own
    let told = 0;
    let n = 1;
    for (; n < 500; n++) {
      process.env.MOCK_OUT_OF_MEMORY = `${n}`;
      const error = await useEverything(library);
      const spent = process.env.MOCK_OUT_OF_MEMORY;
      delete process.env.MOCK_OUT_OF_MEMORY;
      if (error !== undefined) {
        expect(error, `n ${spent}`).toMatchObject({ name: "TesseraError", code: "out-of-memory" });
        expect((error as Error).message).toContain("memory ran out as ordered");
        told++;
      }
      await watch.synchronize();
      await expect
        .poll(() => counts(watch), { timeout: 5000, message: `n ${n}` })
        .toMatchObject({
          contexts: 1,
          buffers: 0,
          graphs: 0,
          events,
        });
      if (error === undefined && told > 0 && n > told + 20) break; // through: no call is left to fail
    }
    console.log(`${told} of ${n} calls failed in turn and were told`);
    expect(told).toBeGreaterThan(20);
    expect(n).toBeLessThan(500);
    expect(await useEverything(library)).toBeUndefined();
    watch.dispose();
  });
});
