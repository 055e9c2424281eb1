/** One device in use, and everything that can be done with it. */
import { type Explained, explainCall, supportsCall } from "./answers.js";
import { attentionCall } from "./attention-call.js";
import type {
  AttentionOptions,
  AttentionResult,
  AttentionResultWithLse,
  KvOperand,
  Layout,
  Operand,
} from "./attention-options.js";
import type { BackendContext, DeviceInfo, KernelInfo, Support } from "./backend.js";
import type { DecodeOptions, KvCacheOptions } from "./cache-options.js";
import { captureCall, type Graph } from "./capture-call.js";
import { createCache } from "./create-cache.js";
import { decodeCall } from "./decode-call.js";
import type { DType } from "./dtype.js";
import { EngineCore } from "./engine-core.js";
import type { Float16ArrayLike, HostData } from "./host-tensor.js";
import type { KvCache } from "./kv-cache.js";
import { type Mark, markCall } from "./mark.js";
import { mergeCall } from "./merge-call.js";
import type { Selection } from "./select-backend.js";
import { createTensor, emptyTensor, type Tensor, type TensorOptions } from "./tensor.js";
import { type TunedVariant, tuneCall } from "./tune-call.js";
import type { Tuning } from "./tuning.js";

/** A partial result over some of the keys. */
export interface MergePart<T extends Operand> {
  readonly out: T;
  /** [B,Hq,Sq] or [Hq,T], float32, natural logarithm. */
  readonly lse: Operand;
}

type NeedsDType<D extends DType> = TensorOptions<D> & { readonly dtype: D };

/**
 * An engine. Calls are ordered as they are made. On a device with queues a promise resolves when the work is enqueued,
 * and a later fault surfaces at `read()` or `synchronize()`; on a CPU it resolves when the work is done, off the event
 * loop. Errors are TesseraErrors; an aborted call rejects with its signal's reason.
 */
export class Engine {
  /** "cuda", "hip", "webgpu", "cpu", "reference", or what a library calls itself. */
  readonly backend: string;
  readonly device: DeviceInfo;
  /** What was tried, what was chosen and why. */
  readonly selection: Selection;
  readonly #core: EngineCore;

  /** @internal Users call `openEngine`. */
  constructor(backend: string, context: BackendContext, selection: Selection, tuning: Tuning) {
    this.#core = new EngineCore(backend, context, tuning);
    this.backend = backend;
    this.device = context.device;
    this.selection = selection;
  }

  /** Bytes of device memory that tensors, caches and workspaces hold. */
  get bytesInUse(): number {
    return this.#core.disposed ? 0 : this.#core.context.bytesInUse;
  }

  get disposed(): boolean {
    return this.#core.disposed;
  }

  /**
   * A tensor on the device with a copy of `data`; `data` may change once this returns.
   *
   * @param options `shape`; `dtype` where the array doesn't tell (Uint16Array, Uint8Array); `strides` in elements
   * @throws TesseraError `invalid-argument` (type, shape, strides or length), `out-of-memory`
   */
  tensor(data: Float32Array, options: TensorOptions<"f32">): Tensor<"f32">;
  tensor(data: Float16ArrayLike, options: TensorOptions<"f16">): Tensor<"f16">;
  tensor<D extends "f16" | "bf16">(data: Uint16Array, options: NeedsDType<D>): Tensor<D>;
  tensor<D extends "f8_e4m3" | "q8_0" | "q4_0" | "bool">(data: Uint8Array, options: NeedsDType<D>): Tensor<D>;
  tensor(data: Int32Array, options: TensorOptions<"i32">): Tensor<"i32">;
  tensor(data: readonly boolean[], options: TensorOptions<"bool">): Tensor<"bool">;
  tensor(data: HostData | readonly boolean[], options: TensorOptions): Tensor {
    return createTensor(this.#core, data, options);
  }

  /**
   * A tensor with whatever was in the device's memory, for results.
   *
   * @param options `shape` and `dtype`
   * @throws TesseraError `invalid-argument`, `out-of-memory`
   */
  empty<D extends DType>(options: { readonly shape: readonly number[]; readonly dtype: D }): Tensor<D> {
    return emptyTensor(this.#core, options);
  }

  /**
   * Fused attention: out = softmax(mask(softcap(scale · q kᵀ) + bias - alibi)) v.
   *
   * @param options see {@link AttentionOptions}: q, k and v are tensors of this engine or host arrays; a host q gives
   *   host results
   * @returns `out`, and with `returnLse` `lse`
   * @throws TesseraError `invalid-argument`, `unsupported` (with the reason), `out-of-memory`, `device-error`
   */
  attention<
    Q extends Operand,
    Out extends Operand = Q,
    K extends KvOperand = KvOperand,
    V extends KvOperand = KvOperand,
  >(options: AttentionOptions<Q, Out, K, V> & { readonly returnLse: true }): Promise<AttentionResultWithLse<Out>>;
  attention<
    Q extends Operand,
    Out extends Operand = Q,
    K extends KvOperand = KvOperand,
    V extends KvOperand = KvOperand,
  >(options: AttentionOptions<Q, Out, K, V>): Promise<AttentionResult<Out>>;
  attention(options: object): Promise<unknown> {
    return attentionCall(this.#core, options);
  }

  /**
   * A cache for keys and values of sequences that grow.
   *
   * @throws TesseraError `invalid-argument`, `out-of-memory`
   */
  kvCache(options: KvCacheOptions): KvCache {
    return createCache(this.#core, options);
  }

  /**
   * Attention over a cache; with k and v they are appended first, in the same call. Options mean what they mean in
   * `attention`: `causal` is off unless given.
   *
   * @throws TesseraError as `attention` and `append` do; then nothing was appended
   */
  decode<Q extends Operand, Out extends Operand = Q>(
    options: DecodeOptions<Q, Out> & { readonly returnLse: true },
  ): Promise<AttentionResultWithLse<Out>>;
  decode<Q extends Operand, Out extends Operand = Q>(options: DecodeOptions<Q, Out>): Promise<AttentionResult<Out>>;
  decode(options: object): Promise<unknown> {
    return decodeCall(this.#core, options);
  }

  /**
   * Combines results over disjoint sets of keys. A part that saw nothing (lse -∞) changes nothing.
   *
   * @param parts `{ out, lse }` as `attention` gives them with `returnLse`, all of one shape
   * @param options `layout` of the outs, default "bshd"
   */
  merge<T extends Operand>(
    parts: readonly MergePart<T>[],
    options: { readonly layout?: Layout | undefined } = {},
  ): Promise<AttentionResultWithLse<T>> {
    return mergeCall(this.#core, parts, options) as Promise<AttentionResultWithLse<T>>;
  }

  /**
   * The kernel that `attention` would run, whether `tune` chose it, and why others would not.
   *
   * @throws TesseraError as `attention` would
   */
  explain<K extends KvOperand, V extends KvOperand>(options: AttentionOptions<Operand, Operand, K, V>): Explained {
    return explainCall(this.#core, options);
  }

  /** Whether `attention` would do this; if not, its error's code and reason. */
  supports<K extends KvOperand, V extends KvOperand>(options: AttentionOptions<Operand, Operand, K, V>): Support {
    return supportsCall(this.#core, options);
  }

  /** The variants of this back end; `usable` says which of them this device can run. */
  kernels(): readonly KernelInfo[] {
    this.#core.alive();
    return this.#core.kernels();
  }

  /**
   * Times every variant, and numbers of splits, that can do this problem. Later calls of the same types, sizes (up to the
   * next power of two) and features use the fastest unless they force another; so do later processes, by way of the
   * user's cache directory (TESSERA_CACHE_DIR, else XDG_CACHE_HOME/tessera, else ~/.cache/tessera).
   *
   * @returns all of them, fastest first; the engine's own choice comes first unless another is faster by 2 % or more
   */
  tune<K extends KvOperand, V extends KvOperand>(
    options: AttentionOptions<Operand, Operand, K, V>,
  ): Promise<TunedVariant[]> {
    return tuneCall(this.#core, options);
  }

  /**
   * Records the calls that `calls` makes, without running them. Use tensors, not host arrays.
   *
   * @throws TesseraError `unsupported` where the device has no graphs
   */
  capture(calls: () => unknown): Promise<Graph> {
    return captureCall(this.#core, calls);
  }

  /**
   * A point behind the calls made so far, for timing by the device's own clock: `await stop.since(start)`.
   *
   * @throws TesseraError `unsupported` where the device has no queue: there an awaited call has ended
   */
  mark(): Mark {
    return markCall(this.#core);
  }

  /** Forgets what was tuned on this device, here and in the user's cache directory. */
  clearTuning(): void {
    this.#core.alive();
    this.#core.tuned.clear();
    this.#core.store.clear();
  }

  /** Waits for all work. A fault of work that was only enqueued surfaces here. */
  async synchronize(): Promise<void> {
    this.#core.alive();
    await this.#core.context.synchronize();
  }

  /** Frees the device's memory; tensors and caches of this engine are of no use any more. Pending work ends on its own. */
  dispose(): void {
    this.#core.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Waits for pending work first. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.disposed) return;
    try {
      await this.synchronize();
    } finally {
      this.dispose();
    }
  }
}
