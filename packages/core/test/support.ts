import { readFileSync } from "node:fs";
import type { Backend } from "../src/backend.js";
import { encode } from "../src/codec.js";
import type { CacheDType } from "../src/dtype.js";
import type { Engine } from "../src/engine.js";
import type { HostKv, HostTensor } from "../src/host-tensor.js";
import { openEngineIn } from "../src/open-engine.js";
import { referenceBackend } from "../src/reference/index.js";
import type { Report, World } from "../src/select-backend.js";
import { countOf } from "../src/strides.js";

/** Repeatable numbers in [-1, 1). */
export function random(seed: number): () => number {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 31 - 1;
  };
}

export function numbers(count: number, next: () => number, size = 1): Float32Array {
  return Float32Array.from({ length: count }, () => next() * size);
}

/** Random values of a shape in a type. */
export function tensor(
  shape: readonly number[],
  next: () => number,
  dtype: "f32" | "f16" | "bf16" = "f32",
  size = 1,
): HostTensor {
  const data = encode(numbers(countOf(shape), next, size), dtype);
  return { data, shape, dtype } as HostTensor;
}

export function stored(shape: readonly number[], next: () => number, dtype: CacheDType): HostKv {
  return { data: encode(numbers(countOf(shape), next), dtype), shape, dtype } as HostKv;
}

export interface FileTensor {
  readonly dtype: string;
  readonly shape: number[];
  readonly bytes: Uint8Array;
}

/** The least reader of safetensors that the repository's own file needs. */
export function readSafetensors(url: URL): Map<string, FileTensor> {
  const file = readFileSync(url);
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, 8 + length).toString()) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const tensors = new Map<string, FileTensor>();
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const bytes = Uint8Array.from(file.subarray(8 + length + data_offsets[0], 8 + length + data_offsets[1]));
    tensors.set(name, { dtype, shape, bytes });
  }
  return tensors;
}

/** A world with these back ends and no machine. */
export function worldOf(
  backends: Record<string, Backend | Partial<Report>>,
  environment: World["environment"] = {},
): World {
  const report = async (name: string): Promise<Report> => {
    const entry = backends[name]!;
    if ("open" in entry) return { backend: name, ...(await entry.probe()) };
    return { backend: name, state: "no-device", reason: "there is none", fix: "", devices: [], ...entry };
  };
  return {
    names: Object.keys(backends),
    environment,
    probe: async ({ backends: names = Object.keys(backends) }) => Promise.all(names.map(report)),
    load: async (name) => backends[name as string] as Backend,
  };
}

/** An engine on the reference back end. */
export function reference(): Promise<Engine> {
  return openEngineIn(worldOf({ reference: referenceBackend }));
}
