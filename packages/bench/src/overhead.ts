/** Host time of calls that return before their work is done: what a step costs besides its arithmetic. */
import type { Engine } from "@tessera/core";
import type { OverheadCase } from "./case.js";

const dim = 64;

interface Parts {
  readonly call: () => unknown;
  readonly owned: readonly { dispose(): void }[];
  readonly kernel?: string;
}

function overheadCase(suite: string, name: string, make: (engine: Engine) => Promise<Parts> | Parts): OverheadCase {
  return {
    kind: "overhead",
    suite,
    name,
    async prepare(engine) {
      const { call, owned, kernel } = await make(engine);
      const waiting: Promise<unknown>[] = [];
      return {
        call: () => {
          const result = call();
          if (result instanceof Promise) waiting.push(result);
        },
        end: async () => {
          await Promise.all(waiting.splice(0));
          await engine.synchronize();
        },
        dispose: () => {
          for (const one of owned) one.dispose();
        },
        ...(kernel !== undefined && { kernel }),
      };
    },
  };
}

const half = (engine: Engine, rows: number, heads: number) =>
  engine.tensor(new Uint16Array(rows * heads * dim), { shape: [1, rows, heads, dim], dtype: "f16" });

function attentionParts(engine: Engine, rows: number) {
  const [q, out] = [half(engine, rows, 8), half(engine, rows, 8)];
  const [k, v] = [half(engine, 64, 2), half(engine, 64, 2)];
  return { options: { q, k, v, out, causal: true }, owned: [q, k, v, out] };
}

async function step(engine: Engine, appends: boolean) {
  const cache = engine.kvCache({ batch: 1, kvHeads: 2, headDim: dim, capacity: 65536, dtype: "f16" });
  const [k, v] = [half(engine, 1024, 2), half(engine, 1024, 2)];
  await cache.append({ k, v });
  await engine.synchronize();
  const [q, out] = [half(engine, 1, 8), half(engine, 1, 8)];
  const token = appends ? { k: half(engine, 1, 2), v: half(engine, 1, 2) } : {};
  return { options: { q, out, cache, causal: true, ...token }, owned: [cache, k, v, q, out, ...Object.values(token)] };
}

/** From the least that a call can do to a whole step. */
export function overhead(suite: string): OverheadCase[] {
  return [
    overheadCase(suite, "supports: JavaScript to C and back", (engine) => {
      const { options, owned } = attentionParts(engine, 64);
      return { call: () => engine.supports(options), owned };
    }),
    overheadCase(suite, "attention on nothing: enqueue, no launch", (engine) => {
      const { options, owned } = attentionParts(engine, 0);
      return { call: () => engine.attention(options), owned };
    }),
    overheadCase(suite, "attention on 64 tokens: enqueue and launch", (engine) => {
      const { options, owned } = attentionParts(engine, 64);
      return { call: () => engine.attention(options), owned, kernel: engine.explain(options).kernel };
    }),
    overheadCase(suite, "decode over 1,024 tokens", async (engine) => {
      const { options, owned } = await step(engine, false);
      return { call: () => engine.decode(options), owned };
    }),
    overheadCase(suite, "decode that appends its token", async (engine) => {
      const { options, owned } = await step(engine, true);
      return { call: () => engine.decode(options), owned };
    }),
    overheadCase(suite, "launch of a recorded decode", async (engine) => {
      const { options, owned } = await step(engine, false);
      const graph = await engine.capture(() => engine.decode(options));
      return { call: () => graph.launch(), owned: [graph, ...owned] };
    }),
  ];
}
