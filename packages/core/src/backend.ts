/**
 * What a back end is to the engine. The native loader (any library that speaks tessera.h) and the TypeScript
 * reference both fulfil it; a back end written in TypeScript (WebGPU) needs nothing else.
 *
 * The engine checks options and shapes before it calls (problem.ts), so descriptors here are complete and consistent;
 * a back end answers what *it* can't do. Descriptors mirror the structs of tessera.h, in camel case.
 */
import type { DType } from "./dtype.js";

export type ProbeState =
  | "usable"
  | "package-missing"
  | "wrong-libc"
  | "version-mismatch"
  | "load-failed"
  | "not-a-backend"
  | "abi-mismatch"
  | "driver-missing"
  | "driver-too-old"
  | "runtime-missing"
  | "no-device"
  | "hidden-by-environment"
  | "arch-not-in-build"
  | "out-of-memory"
  | "crashed"
  | "timed-out"
  | "error";

/** One device of a back end. */
export interface DeviceInfo {
  readonly index: number;
  readonly name: string;
  /** "x86-64 avx512", "sm_90", "gfx942", ... */
  readonly arch: string;
  /** PCI address or UUID; empty where there is none. */
  readonly id: string;
  readonly memoryBytes: number;
  readonly computeUnits: number;
  /** Shared memory that a block may use, in bytes; 0 on a CPU. */
  readonly sharedBytes: number;
  readonly state: ProbeState;
  /** Why the device can't be used, and what would mend it; empty if it can. */
  readonly reason: string;
  readonly fix: string;
  readonly caps: {
    /** Work is queued: calls return before it is done. */
    readonly async: boolean;
    /** Host arrays are device memory: they can be passed with no copy. */
    readonly hostMemory: boolean;
    readonly graphs: boolean;
    /** It plays a GPU on the CPU, for tests: "auto" passes it over. */
    readonly emulated?: boolean | undefined;
  };
}

/** What a back end says of itself. */
export interface BackendProbe {
  readonly state: ProbeState;
  readonly reason: string;
  readonly fix: string;
  readonly devices: readonly DeviceInfo[];
}

export interface Backend {
  readonly name: string;
  readonly version: string;
  /** Never throws or rejects: what went wrong is in the result. */
  probe(): BackendProbe | Promise<BackendProbe>;
  /** @throws TesseraError `device-unavailable` */
  open(options: OpenOptions): BackendContext | Promise<BackendContext>;
}

/** Which device, and how. */
export interface OpenOptions {
  readonly device: number;
  readonly threads?: number | undefined;
}

/** A back end that answers at once. Native libraries and the reference do; WebGPU is asked asynchronously. */
export interface PromptBackend extends Backend {
  probe(): BackendProbe;
  open(options: OpenOptions): BackendContext;
}

/** Memory of a device. */
export interface BackendBuffer {
  readonly bytes: number;
  dispose(): void;
}

/** A point in the queue of a device. */
export interface BackendMark {
  dispose(): void;
}

/** A strided view of a buffer, or of host memory where `caps.hostMemory` holds. Strides in elements. */
export interface TensorDesc {
  readonly data: BackendBuffer | ArrayBufferView;
  /** From the start of the buffer or of the array view. */
  readonly byteOffset: number;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
}

/** `tsr_attention_desc`. Absent members take the contract's default. */
export interface AttentionDesc {
  readonly q: TensorDesc;
  readonly k: TensorDesc;
  readonly v: TensorDesc;
  readonly out: TensorDesc;
  readonly lse?: TensorDesc | undefined;
  readonly scale?: number | undefined;
  readonly softcap?: number | undefined;
  readonly causal?: boolean | undefined;
  readonly align?: "bottom-right" | "top-left" | undefined;
  /** [left, right], -1 = unbounded. */
  readonly window?: readonly [number, number] | undefined;
  readonly queryOffset?: TensorDesc | undefined;
  readonly alibiSlopes?: TensorDesc | undefined;
  readonly bias?: TensorDesc | undefined;
  readonly mask?: TensorDesc | undefined;
  readonly sinks?: TensorDesc | undefined;
  readonly seqLensQ?: TensorDesc | undefined;
  readonly seqLensK?: TensorDesc | undefined;
  readonly cuSeqLensQ?: TensorDesc | undefined;
  readonly cuSeqLensK?: TensorDesc | undefined;
  readonly maxSeqLenQ?: number | undefined;
  readonly maxSeqLenK?: number | undefined;
  readonly pageTable?: TensorDesc | undefined;
  readonly kScale?: TensorDesc | undefined;
  readonly vScale?: TensorDesc | undefined;
  readonly kernel?: string | undefined;
  readonly numSplits?: number | undefined;
}

/** `tsr_rope_desc`. */
export interface RopeDesc {
  readonly pairing: "interleaved" | "half";
  readonly theta: number;
  readonly scale?: number | undefined;
  readonly dims?: number | undefined;
  readonly positions?: TensorDesc | undefined;
}

/** `tsr_append_desc`. */
export interface AppendDesc {
  readonly k: TensorDesc;
  readonly v: TensorDesc;
  readonly q?: TensorDesc | undefined;
  readonly qOut?: TensorDesc | undefined;
  readonly cacheK: TensorDesc;
  readonly cacheV: TensorDesc;
  readonly pageTable?: TensorDesc | undefined;
  readonly lengths: TensorDesc;
  readonly newLens?: TensorDesc | undefined;
  readonly cuSeqLens?: TensorDesc | undefined;
  readonly kScale?: TensorDesc | undefined;
  readonly vScale?: TensorDesc | undefined;
  readonly rope?: RopeDesc | undefined;
  /** Add the new tokens to `lengths`, on the device. */
  readonly advance?: boolean | undefined;
}

/** `tsr_decode_desc`: append (if given), then attention over the cache. */
export interface DecodeDesc {
  readonly append?: AppendDesc | undefined;
  readonly attention: AttentionDesc;
}

/** `tsr_merge_desc`. */
export interface MergeDesc {
  readonly outs: readonly TensorDesc[];
  readonly lses: readonly TensorDesc[];
  readonly out: TensorDesc;
  readonly lse?: TensorDesc | undefined;
}

/** One kernel variant of a back end. */
export interface KernelInfo {
  readonly name: string;
  readonly family: "prefill" | "decode";
  /** False if this device can't run it; `reason` says why. */
  readonly usable: boolean;
  readonly reason: string;
  /** Bytes that rows must be aligned to; 1 = any. */
  readonly alignment: number;
  readonly qDTypes: readonly DType[];
  readonly kvDTypes: readonly DType[];
  readonly maxHeadDim: number;
  readonly headDimStep: number;
  /** It rounds q to 8 bits: less exact, never chosen, and run only if asked for by name (`kernel`). */
  readonly roundsQ: boolean;
  /** It takes elements of q, k and v below 2^-126 for 0, and sums too (semantics.md, "Numbers"). */
  readonly flushes: boolean;
  readonly arch: string;
  readonly summary: string;
  /** True if it runs only where a call names it: it is there to be measured, and neither chosen nor tuned. */
  readonly byNameOnly: boolean;
}

/** The kernel that would run, and those passed over. */
export interface Explanation {
  readonly kernel: string;
  readonly family: "prefill" | "decode";
  readonly tile: { readonly q: number; readonly k: number };
  readonly stages: number;
  readonly splits: number;
  readonly threads: number;
  readonly sharedBytes: number;
  readonly workspaceBytes: number;
  /** Approximations, NaN propagation, "never run on this hardware". */
  readonly notes: string;
  readonly passedOver: readonly { readonly kernel: string; readonly reason: string }[];
}

export type Support =
  | { readonly supported: true }
  | { readonly supported: false; readonly code: "unsupported" | "invalid-argument"; readonly reason: string };

/**
 * One device in use. Work is done in call order; a promise resolves when the work is enqueued (`caps.async`) or done
 * (elsewhere, off the event loop). Errors are TesseraErrors; an aborted call rejects with `signal.reason`.
 */
export interface BackendContext {
  readonly device: DeviceInfo;
  /** Bytes of live buffers and workspaces. */
  readonly bytesInUse: number;

  /** @throws TesseraError `out-of-memory` */
  alloc(bytes: number): BackendBuffer;
  /** Ordered with the work before and after it. The source is taken before this returns. */
  write(buffer: BackendBuffer, byteOffset: number, source: Uint8Array): void;
  read(buffer: BackendBuffer, byteOffset: number, target: Uint8Array): Promise<void>;
  /**
   * Between parts of buffers that don't overlap, ordered with the work before and after it. Absent: by way of the host;
   * a back end with graphs has it.
   */
  copy?(from: BackendBuffer, fromOffset: number, to: BackendBuffer, toOffset: number, bytes: number): void;

  kernels(): readonly KernelInfo[];
  /** Agrees with what `attention` does, always. */
  supports(desc: AttentionDesc): Support;
  explain(desc: AttentionDesc): Explanation;

  /** This and the other verbs: `done` (done.ts) tells of a call that has nothing left to wait for. */
  attention(desc: AttentionDesc, signal?: AbortSignal): Promise<void>;
  append(desc: AppendDesc): Promise<void>;
  decode(desc: DecodeDesc, signal?: AbortSignal): Promise<void>;
  merge(desc: MergeDesc): Promise<void>;

  /** Waits for all work and surfaces its faults. */
  synchronize(): Promise<void>;

  /** A point behind the work enqueued so far. Absent where the device has no queue: there a call's promise tells its end. */
  mark?(): BackendMark;
  /** Milliseconds between two points by the device's own clock, once both are reached. */
  elapsed?(start: BackendMark, stop: BackendMark): Promise<number>;

  /** Absent where the device has no graphs. */
  beginCapture?(): void;
  endCapture?(): BackendGraph;

  /** Frees everything; later calls throw. Pending work finishes first, on its own. */
  dispose(): void;
}

export interface BackendGraph {
  launch(): Promise<void>;
  dispose(): void;
}
