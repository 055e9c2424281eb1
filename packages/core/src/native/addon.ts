/** Types of tessera.node (native/src/addon.cc), and its errors turned into TesseraErrors. */
import type { ProbeState } from "../backend.js";
import { TesseraError, type TesseraErrorCode } from "../error.js";

export interface Addon {
  /** Version of the contract that it speaks. */
  readonly abi: number;
  /** Where calls are packed; memory that the addon reads. */
  readonly scratch: Float64Array;
  /** A larger scratch array, which takes the place of the first. */
  reserve(slots: number): Float64Array;
  /** Loads a library once for the whole process. Errors have `code` and `state`. */
  load(path: string): AddonLibrary;
}

export interface AddonLibrary {
  readonly name: string;
  readonly version: string;
  readonly path: string;
  probe(): RawProbe;
  deviceInfo(device: number): RawDevice;
  open(device: number, threads: number, settle: Settle): AddonContext;
}

/** Called once for every call that returned n (or -n), with that n. */
export type Settle = (id: number, status: number, text: string) => void;

/**
 * What a call returns: 0 = done, or handed to a device with queues; n > 0 = `settle(n, ...)` tells when it is done;
 * -n = handed over, but the host arrays that it uses must be kept until `settle(n, ...)`.
 */
export type CallId = number;

export interface AddonContext {
  readonly device: RawDevice;
  readonly bytesInUse: number;
  alloc(bytes: number): number;
  free(buffer: number): void;
  write(buffer: number, byteOffset: number, source: Uint8Array): void;
  fill(buffer: number, byteOffset: number, value: number, bytes: number): void;
  read(buffer: number, byteOffset: number, target: Uint8Array): CallId;
  copy(from: number, fromOffset: number, to: number, toOffset: number, bytes: number): void;
  mark(): number;
  forget(mark: number): void;
  /** Milliseconds go to target[0]. */
  elapsed(start: number, stop: number, target: Float64Array): CallId;
  kernels(): RawKernel[];
  supports(slots: number, views: Views, kernel: string | undefined): [TesseraErrorCode, string] | undefined;
  explain(slots: number, views: Views, kernel: string | undefined): RawExplanation;
  attention(slots: number, views: Views, kernel: string | undefined): CallId;
  append(slots: number, views: Views): CallId;
  decode(slots: number, views: Views, kernel: string | undefined): CallId;
  merge(slots: number, views: Views): CallId;
  synchronize(): CallId;
  /** True if the call hadn't started: it never will, and isn't settled. */
  cancel(id: number): boolean;
  beginCapture(): void;
  endCapture(): AddonGraph;
  dispose(): void;
}

export type Views = readonly ArrayBufferView[] | undefined;

export interface AddonGraph {
  launch(): CallId;
  dispose(): void;
}

export interface RawProbe {
  state: number;
  deviceCount: number;
  reason: string;
  fix: string;
}

export interface RawDevice {
  index: number;
  state: number;
  caps: number;
  name: string;
  arch: string;
  id: string;
  memoryBytes: number;
  computeUnits: number;
  sharedBytes: number;
  reason: string;
  fix: string;
}

export interface RawKernel {
  family: number;
  name: string;
  usable: boolean;
  alignment: number;
  qDTypes: number;
  kvDTypes: number;
  maxHeadDim: number;
  headDimStep: number;
  roundsQ: boolean;
  flushes: boolean;
  arch: string;
  summary: string;
  reason: string;
  byNameOnly: boolean;
}

export interface RawExplanation {
  family: number;
  kernel: string;
  tileQ: number;
  tileK: number;
  stages: number;
  splits: number;
  threads: number;
  sharedBytes: number;
  workspaceBytes: number;
  notes: string;
  passedOver: { kernel: string; reason: string }[];
}

/** `tsr_status` of a call that was cancelled. */
export const aborted = 7;

const codes: readonly TesseraErrorCode[] = [
  "device-error", // 0 is no failure
  "unsupported",
  "invalid-argument",
  "out-of-memory",
  "device-unavailable",
  "device-error",
  "abi-mismatch",
  "device-error",
  "device-error",
];

/** The error of a `tsr_status`. */
export function errorOfStatus(status: number, text: string): TesseraError {
  return new TesseraError(codes[status] ?? "device-error", text);
}

/** What the addon threw, as a TesseraError. */
export function toTesseraError(thrown: unknown): TesseraError {
  if (thrown instanceof TesseraError) return thrown;
  const { code, message } = thrown as { code?: unknown; message?: unknown };
  const known = codes.find((one) => one === code) ?? (code === "backend-missing" ? code : "device-error");
  return new TesseraError(known, String(message ?? thrown), { cause: thrown });
}

/** Runs `call`; what the addon throws in it becomes a TesseraError. */
export function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw toTesseraError(thrown);
  }
}

/** An error of `Addon.load`. */
export interface LoadError extends Error {
  readonly code: TesseraErrorCode;
  readonly state: ProbeState;
}
