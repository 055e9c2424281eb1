/**
 * Tessera: fused attention for every device.
 *
 * @packageDocumentation
 */
export type { Explained } from "./answers.js";
export type * from "./attention-options.js";
export type * from "./backend.js";
export { type BackendName, backendNames, loadBackend } from "./backends.js";
export type { AppendOptions, DecodeOptions, KvCacheOptions, NewTokens, RopeOptions } from "./cache-options.js";
export type { Graph } from "./capture-call.js";
export { decode, encode, type HostArray } from "./codec.js";
export type { CacheDType, DType, FloatDType } from "./dtype.js";
export type { Engine, MergePart } from "./engine.js";
export { TesseraError, type TesseraErrorCode } from "./error.js";
export type {
  Float16ArrayLike,
  HostBool,
  HostBytes,
  HostF16,
  HostF32,
  HostHalf,
  HostInts,
  HostKv,
  HostTensor,
} from "./host-tensor.js";
export type { AppendResult, KvCache } from "./kv-cache.js";
export type { Mark } from "./mark.js";
export type { LocateAttempt } from "./native/locate.js";
export { type AddonAttempt, type NativeLibrary, nativeLibrary } from "./native/native-library.js";
export { attention, openEngine } from "./open-engine.js";
export { type LongRun, type OracleOptions, type OracleResult, oracle, oracleAsync } from "./oracle.js";
export { type ProbeOptions, type ProbeReport, probe } from "./probe.js";
export type { BackendChoice, EngineOptions, Selection, Tried } from "./select-backend.js";
export { type ReadArray, Tensor, type TensorOptions } from "./tensor.js";
export {
  checkAgainstOracle,
  checkAgainstOracleAsync,
  type Deviation,
  type OracleCheck,
  type ResultToCheck,
} from "./tolerance.js";
export type { TunedVariant } from "./tune-call.js";
