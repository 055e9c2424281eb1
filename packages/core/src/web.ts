/**
 * The engine where there is no Node: pages and workers. Nothing here looks for back ends; the caller brings one.
 *
 * @packageDocumentation
 */
import type { Backend } from "./backend.js";
import { Engine } from "./engine.js";
import { type EngineOptions, selectBackend, type World } from "./select-backend.js";
import { unkept } from "./tuning.js";

export type { Explained } from "./answers.js";
export type * from "./attention-options.js";
export type * from "./backend.js";
export type { AppendOptions, DecodeOptions, KvCacheOptions, NewTokens, RopeOptions } from "./cache-options.js";
export { decode, encode, type HostArray } from "./codec.js";
export { bytesOf, type CacheDType, type DType, dtypes, type FloatDType } from "./dtype.js";
export type { Engine, MergePart } from "./engine.js";
export { TesseraError, type TesseraErrorCode } from "./error.js";
export type { HostTensor } from "./host-tensor.js";
export type { AppendResult, KvCache } from "./kv-cache.js";
export { type LongRun, type OracleOptions, type OracleResult, oracle, oracleAsync } from "./oracle.js";
export { type ReadArray, Tensor, type TensorOptions } from "./tensor.js";
export { checkAgainstOracle, checkAgainstOracleAsync, type OracleCheck, type ResultToCheck } from "./tolerance.js";
export { version } from "./version.js";

const nowhere: World = {
  names: [],
  environment: {},
  probe: async () => [],
  load: async (which) => {
    throw new TypeError(`nothing loads ${String(which)} here`);
  },
};

/**
 * Opens a device of a back end.
 *
 * @param options `backend`: what `webgpu()` of @tessera/webgpu gives; `device`: its first usable one by default
 * @throws TesseraError `device-unavailable`, `invalid-argument`
 */
export async function openEngine(options: EngineOptions & { readonly backend: Backend }): Promise<Engine> {
  const { backend, device, selection } = await selectBackend(options, nowhere);
  const context = await backend.open({ device, threads: options.threads });
  return new Engine(backend.name, context, selection, unkept);
}
