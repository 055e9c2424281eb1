/** --kv-dtype: the same attention, with keys and values first put into a KV cache of that type. */
import { type Engine, encode } from "@tessera/core";
import type { FloatTensor, Inputs } from "./inputs.js";
import { optionsOf } from "./options.js";
import { type Raw, type Results, upload } from "./run.js";
import type { Settings } from "./settings.js";

/** @throws TesseraError */
export async function throughCache(engine: Engine, inputs: Inputs, settings: Settings): Promise<Raw> {
  const dtype = settings.kvDtype!;
  const { cuSeqLensK, seqLensK } = inputs;
  const [rows, kvHeads, headDim] = inputs.k.shape.slice(-3) as [number, number, number];
  const valueDim = inputs.v.shape.at(-1)!;
  const batch = cuSeqLensK === undefined ? inputs.k.shape[0]! : cuSeqLensK.length - 1;
  const lengths = Int32Array.from({ length: batch }, (_, b) =>
    cuSeqLensK === undefined ? (seqLensK?.[b] ?? rows) : cuSeqLensK[b + 1]! - cuSeqLensK[b]!,
  );
  const capacity = cuSeqLensK === undefined ? rows : Math.max(0, ...lengths);

  const cache = engine.kvCache({ batch, kvHeads, headDim, valueDim, capacity, dtype });
  const q = upload(engine, inputs.q);
  const k = upload(engine, inputs.k);
  const v = upload(engine, inputs.v);
  try {
    await cache.append({ k, v, ...(cuSeqLensK ? { cuSeqLens: cuSeqLensK } : { newLens: seqLensK }) });
    const {
      k: _k,
      v: _v,
      cuSeqLensK: _cu,
      seqLensK: _lens,
      ...score
    } = optionsOf(inputs, settings) as unknown as Options;
    // What a cache of this shape would run on: contents don't matter to the answer, so zeros will do.
    const stored = (dim: number) => ({
      data: encode(new Float32Array(batch * capacity * kvHeads * dim), dtype),
      shape: [batch, capacity, kvHeads, dim],
      dtype,
    });
    const [storedK, storedV] = [stored(headDim), stored(valueDim)];
    const explained = engine.explain({ ...score, k: storedK, v: storedV, seqLensK: lengths } as never);
    await engine.synchronize(); // filling the cache is not the kernel's time
    const start = performance.now();
    const { out, lse } = (await engine.decode({ ...score, q, cache } as never)) as unknown as Results;
    await engine.synchronize();
    const milliseconds = performance.now() - start;
    const { kernel, splits, notes } = explained;
    const bytes = storedK.data.byteLength + storedV.data.byteLength;
    return { out, lse, kernel, splits, notes, milliseconds, kvCache: { dtype, bytes } };
  } finally {
    for (const used of [q, k, v, cache]) used.dispose();
  }
}

type Options = { readonly [name: string]: unknown } & { readonly q: FloatTensor };
