/** What a result file says. schema/result-1.json is its definition; `validate.ts` holds files to it. */

/** "complete", or why a run ended before its last case. */
export type RunState = "complete" | "interrupted" | "time-limit" | "device-error";

/** A limit of a device, measured in the same run. */
export interface Ceiling {
  /** Median. */
  readonly value: number;
  readonly unit: "GB/s" | "TFLOP/s";
  /** How it was measured, in words. */
  readonly method: string;
  /** Interquartile range over median. */
  readonly spread: number;
  /** Milliseconds. */
  readonly samples: readonly number[];
}

export interface Ceilings {
  /** Bytes read plus bytes written. */
  readonly copy?: Ceiling | undefined;
  readonly read?: Ceiling | undefined;
  /** 16-bit inputs, 32-bit sums. */
  readonly matmul16?: Ceiling | undefined;
  readonly matmul32?: Ceiling | undefined;
}

/** A device, and what was found out about it. */
export interface DeviceResult {
  /** "cuda:0"; measurements name their device by it. */
  readonly key: string;
  readonly backend: string;
  readonly index: number;
  readonly name: string;
  readonly arch: string;
  readonly id: string;
  readonly memoryBytes: number;
  readonly computeUnits: number;
  readonly threads?: number | undefined;
  /** What the vendor's own tool says: driver, runtime, clocks, power. Absent where there is no such tool. */
  readonly vendor?: { readonly [name: string]: string } | undefined;
  /** The same after the last case. */
  readonly vendorAfter?: { readonly [name: string]: string } | undefined;
  /** Bytes that successive calls cycle through. */
  readonly rotateBytes: number;
  readonly ceilings: Ceilings;
  readonly state: RunState;
  /** Of a device that broke. */
  readonly error?: string | undefined;
}

export interface Shape {
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly queries: number;
  readonly keys: number;
  readonly dim: number;
}

/** Of a few rows, against the float64 oracle. */
export interface Check {
  readonly ok: boolean;
  readonly rows: number;
  readonly maxError: number;
  readonly bound: number;
}

export interface Measurement {
  /** Key of its device. */
  readonly device: string;
  readonly suite: string;
  /** Unique in its suite: results of two files with the same suite, case and kernel stand side by side. */
  readonly case: string;
  readonly kind: "prefill" | "decode" | "overhead" | "memory";
  readonly shape?: Shape | undefined;
  readonly dtype?: { readonly q: string; readonly kv: string } | undefined;
  readonly causal?: boolean | undefined;
  /** The option whose cost is measured, in the suite `features`. */
  readonly feature?: string | undefined;
  /** The step, in the suite `ladder`. */
  readonly step?: string | undefined;
  readonly kernel?: string | undefined;
  readonly splits?: number | undefined;
  /** The choice comes from the tuning cache. */
  readonly tuned?: boolean | undefined;
  /** Whose clock: the device's own events, or the host's around awaited calls. */
  readonly clock: "device" | "host";
  /** Calls, back to back, that one sample is the mean of. */
  readonly callsPerSample: number;
  /** Inputs that calls cycle through. */
  readonly sets: number;
  /** Milliseconds a call, in order. Empty for kind "memory". */
  readonly samples: readonly number[];
  readonly median: number;
  /** Interquartile range over median. */
  readonly spread: number;
  /** Multiplications and additions of the definition; causal counts what is visible. */
  readonly flops?: number | undefined;
  /** Of decoding: bytes of keys and values. */
  readonly bytes?: number | undefined;
  readonly check?: Check | undefined;
  /** Of unfused attention: each stage's share of one call, from the host's start to its end. */
  readonly stages?: { readonly [name: string]: number } | undefined;
  /**
   * Of kind "memory": bytes. `workspace`: what the kernel asks for beside inputs and results. `allocated`: what the engine took from
   * the device while it ran, at most, by its own count; what the driver takes for itself no call tells.
   */
  readonly memory?:
    | { readonly workspace: number; readonly allocated?: number | undefined; readonly unfused: number }
    | undefined;
}

export interface Skipped {
  readonly device: string;
  readonly suite: string;
  readonly case: string;
  readonly reason: string;
}

/** One function of a kernel under Nsight Compute. */
export interface Profile {
  readonly device: string;
  readonly kernel: string;
  readonly case: string;
  /** Its name in the binary. */
  readonly function: string;
  /** Under the profiler, which slows it down. */
  readonly microseconds?: number | undefined;
  /** By name, each from 0 to 1 or a little above. */
  readonly shares: { readonly [name: string]: number };
}

export interface ResultFile {
  readonly format: "tessera-bench";
  readonly version: 1;
  /** ISO 8601. */
  readonly created: string;
  readonly seconds: number;
  readonly state: RunState;
  readonly suites: readonly string[];
  readonly tool: { readonly version: string; readonly commit: string | null; readonly node: string };
  readonly host: {
    readonly os: string;
    readonly kernel: string;
    readonly arch: string;
    readonly cpu: string;
    readonly cores: number;
    readonly memoryBytes: number;
  };
  /** Whoever sends a file may say what should be known of the machine. */
  readonly note?: string | undefined;
  readonly devices: readonly DeviceResult[];
  readonly measurements: readonly Measurement[];
  readonly skipped: readonly Skipped[];
  readonly profiles?: readonly Profile[] | undefined;
}

export const resultVersion = 1;
