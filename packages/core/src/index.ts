/**
 * Tessera: fused attention for every device.
 *
 * @packageDocumentation
 */
export type * from "./attention-options.js";
export { decode, encode } from "./codec.js";
export type { CacheDType, DType, FloatDType } from "./dtype.js";
export { TesseraError, type TesseraErrorCode } from "./error.js";
export type * from "./host-tensor.js";
export { type LongRun, type OracleOptions, type OracleResult, oracle, oracleAsync } from "./oracle.js";
export {
  checkAgainstOracle,
  checkAgainstOracleAsync,
  type Deviation,
  type OracleCheck,
  type ResultToCheck,
} from "./tolerance.js";
