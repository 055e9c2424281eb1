import type { Engine, FloatDType, Tensor } from "@tessera/core";
import type { FileDType } from "../safetensors/dtypes.js";
import { throughCache } from "./cache.js";
import type { FloatTensor, Inputs } from "./inputs.js";
import { optionsOf } from "./options.js";
import type { Settings } from "./settings.js";

/** What goes into a file. */
export interface Stored {
  readonly dtype: FileDType;
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

export interface Computed {
  /** In the shapes of the file's input. */
  readonly out: Stored;
  readonly lse: Stored;
  /** In the shapes of the call. */
  readonly outTensor: FloatTensor;
  readonly lseTensor: FloatTensor & { readonly dtype: "f32" };
  readonly kernel: string;
  readonly splits: number;
  readonly notes: string;
  readonly milliseconds: number;
  readonly kvCache?: { readonly dtype: string; readonly bytes: number };
}

/** What a run gives, still on the device. */
export interface Raw {
  readonly out: DeviceTensor;
  readonly lse: DeviceTensor;
  readonly kernel: string;
  readonly splits: number;
  readonly notes: string;
  readonly milliseconds: number;
  readonly kvCache?: { readonly dtype: string; readonly bytes: number };
}

export type DeviceTensor = Tensor<FloatDType>;

/** What `attention` and `decode` give for tensors. */
export interface Results {
  readonly out: DeviceTensor;
  readonly lse: DeviceTensor;
}

/** @throws TesseraError */
export async function compute(engine: Engine, inputs: Inputs, settings: Settings): Promise<Computed> {
  const raw =
    settings.kvDtype === undefined
      ? await direct(engine, inputs, settings)
      : await throughCache(engine, inputs, settings);
  const { out, lse, ...rest } = raw;
  const outTensor = (await onHost(out)) as FloatTensor;
  const lseTensor = (await onHost(lse)) as Computed["lseTensor"];
  for (const tensor of [out, lse]) tensor.dispose();
  const drop = inputs.unbatched ? 1 : 0;
  return { ...rest, outTensor, lseTensor, out: stored(outTensor, drop), lse: stored(lseTensor, drop) };
}

async function direct(engine: Engine, inputs: Inputs, settings: Settings): Promise<Raw> {
  const host = optionsOf(inputs, settings);
  const [q, k, v] = [inputs.q, inputs.k, inputs.v].map((tensor) => upload(engine, tensor)) as [
    DeviceTensor,
    DeviceTensor,
    DeviceTensor,
  ];
  try {
    const options = { ...host, q, k, v, out: undefined, returnLse: true } as never;
    const { kernel, splits, notes } = engine.explain(options);
    await engine.synchronize(); // uploads are not the kernel's time
    const start = performance.now();
    const { out, lse } = (await engine.attention(options)) as unknown as Results;
    await engine.synchronize();
    return { out, lse, kernel, splits, notes, milliseconds: performance.now() - start };
  } finally {
    for (const tensor of [q, k, v]) tensor.dispose();
  }
}

/** The overloads of `tensor` want to know the type beforehand; the pair of array and type is right by construction. */
export function upload(engine: Engine, { data, shape, dtype }: FloatTensor): DeviceTensor {
  return engine.tensor(data as Uint16Array, { shape, dtype: dtype as "f16" });
}

async function onHost(tensor: DeviceTensor): Promise<unknown> {
  return { dtype: tensor.dtype, shape: tensor.shape, data: await tensor.read() };
}

const fileType = { f32: "F32", f16: "F16", bf16: "BF16" } as const;

function stored({ dtype, shape, data }: FloatTensor, drop: number): Stored {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { dtype: fileType[dtype], shape: shape.slice(drop), data: bytes };
}
