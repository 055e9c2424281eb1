/** Keys and values of sequences that grow, in device memory. */
import { floats, ints, rotatedQueries, stagedAppend } from "./append-parts.js";
import type { DTypeOf, HostResult, Operand } from "./attention-options.js";
import type { AppendDesc, TensorDesc } from "./backend.js";
import type { AppendOptions, CacheShape } from "./cache-options.js";
import type { CacheState, Reservation } from "./cache-state.js";
import { type CheckedTokens, checkAppend } from "./check-append.js";
import type { CacheDType } from "./dtype.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import type { HostTensor } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { int32 } from "./operands.js";
import { Staging } from "./staging.js";
import type { Tensor } from "./tensor.js";

/** What `append` gives: the rotated q if one was given. */
export interface AppendResult<Q extends Operand> {
  readonly q: Q extends HostTensor ? HostResult<Q> : Tensor<DTypeOf<Q>>;
}

const forgotten = new FinalizationRegistry<CacheState>((state) => state.release());

/** An append that is certain to fit: what to send, and how it ends. */
export interface PreparedAppend {
  readonly desc: AppendDesc;
  /** Lengths after it. */
  readonly lengths: Int32Array;
  /** Pages after it; undefined if not paged. */
  readonly table: TensorDesc | undefined;
  /** The call was handed over: later calls build on it. */
  handedOver(): void;
  /** It failed: take it back, or if later calls built on it already, refuse to go on. */
  failed(reason: unknown): void;
}

/**
 * A KV cache. Keys are stored after rotation, both converted to the cache's types. Everything that can be wrong with an
 * append is found before a byte is written. A cache belongs to the engine that made it.
 */
export class KvCache {
  readonly batch: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  /** Tokens that each sequence may hold. */
  readonly capacity: number;
  readonly dtype: { readonly k: CacheDType; readonly v: CacheDType };
  /** Tokens of a page; undefined if the cache isn't paged. */
  readonly pageSize: number | undefined;
  /** @internal */
  readonly owner: EngineCore;
  readonly #state: CacheState;
  readonly #kScale: Float32Array | undefined;
  readonly #vScale: Float32Array | undefined;
  #busy: Promise<void> | undefined;
  #version = 0;
  #broken: unknown;
  #disposed = false;

  /** @internal Users call `engine.kvCache`. */
  constructor(
    core: EngineCore,
    state: CacheState,
    scales: readonly [Float32Array | undefined, Float32Array | undefined],
  ) {
    const { batch, kvHeads, headDim, valueDim, capacity, k, v, pageSize } = state.shape;
    this.owner = core;
    this.#state = state;
    [this.#kScale, this.#vScale] = scales;
    this.batch = batch;
    this.kvHeads = kvHeads;
    this.headDim = headDim;
    this.valueDim = valueDim;
    this.capacity = capacity;
    this.dtype = { k, v };
    this.pageSize = pageSize > 0 ? pageSize : undefined;
    forgotten.register(this, state, this);
  }

  /** Tokens that each sequence holds; a copy. Counts appends as soon as they are called. */
  get lengths(): Int32Array {
    return this.#state.lengths.slice();
  }

  /** Pages of the pool that nobody holds; undefined if the cache isn't paged. */
  get freePages(): number | undefined {
    return this.#state.pool?.free;
  }

  get disposed(): boolean {
    return this.#disposed;
  }

  /**
   * Puts new tokens at the end of each sequence.
   *
   * @returns `{ q }` rotated, if a q was given
   * @throws TesseraError `invalid-argument` (a wrong option, or a sequence beyond its capacity), `out-of-memory` (no
   *   page is free). Nothing has changed then
   */
  append<Q extends Operand>(options: AppendOptions<Q> & { readonly q: Q }): Promise<AppendResult<Q>>;
  append(options: AppendOptions & { readonly q?: undefined }): Promise<{ readonly q?: undefined }>;
  append(options: AppendOptions): Promise<{ readonly q?: unknown }> {
    try {
      const tokens = checkAppend(options, this.#shape(), this.owner);
      return this.whenWritable(tokens, () => this.#appendNow(options, tokens));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Forgets what is beyond these lengths.
   *
   * @param lengths one per sequence, at most what it holds
   */
  truncate(lengths: readonly number[] | Int32Array): Promise<void> {
    try {
      this.#shape();
      if (this.#busy) return this.#busy.then(() => this.truncate(lengths));
      const shorter = int32(lengths, "lengths").slice();
      if (shorter.length !== this.batch) throw invalid(`lengths has ${shorter.length} values; allowed: ${this.batch}`);
      for (const [b, length] of shorter.entries()) {
        const held = this.#state.lengths[b]!;
        if (length < 0 || length > held)
          throw invalid(`lengths[${b}] is ${length}; allowed: 0 to ${held}, what the sequence holds`);
      }
      this.#state.truncate(shorter);
      this.#version++;
      return Promise.resolve();
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * A second cache with the same tokens. Paged: it shares the pages, and a page that both hold is copied when one of
   * them writes into it. Otherwise: a copy.
   */
  async fork(): Promise<KvCache> {
    this.#shape();
    while (this.#busy) await this.#busy;
    return new KvCache(this.owner, await this.#state.fork(), [this.#kScale, this.#vScale]);
  }

  /** Frees the memory, or gives back the pages that forks don't hold. Doing it twice does nothing. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    this.#state.release();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
  }

  /** @internal Waits for shared pages to be copied, if any has to be; else acts before it returns. */
  whenWritable<T>(tokens: CheckedTokens | undefined, act: () => Promise<T>): Promise<T> {
    if (this.#busy) return this.#busy.then(() => this.whenWritable(tokens, act));
    this.#shape();
    if (!tokens) return act();
    this.#state.checkRoom(tokens.counts);
    const targets = this.#state.sharedTargets(tokens.counts);
    if (targets.length === 0) return act();
    const copied = this.#state.copyOnWrite(targets);
    this.#busy = copied.then(
      () => {
        this.#busy = undefined;
      },
      () => {
        this.#busy = undefined;
      },
    );
    return copied.then(() => this.whenWritable(tokens, act));
  }

  /** @internal */
  checkTokens(options: unknown, call: string): CheckedTokens {
    return checkAppend(options, this.#shape(), this.owner, call);
  }

  /** @internal What attention reads: tensors, lengths and pages as they are now. */
  view(): {
    k: Tensor;
    v: Tensor;
    lengths: Int32Array;
    table: TensorDesc | undefined;
    kScale?: Float32Array;
    vScale?: Float32Array;
  } {
    this.#shape();
    const { k, v, lengths } = this.#state;
    return {
      k,
      v,
      lengths: lengths.slice(),
      table: this.#table(),
      ...(this.#kScale && { kScale: this.#kScale }),
      ...(this.#vScale && { vScale: this.#vScale }),
    };
  }

  /** @internal Takes pages and describes the append. `qOut`: where the rotated q goes, in the contract's order. */
  prepare(tokens: CheckedTokens, qOut: TensorDesc | undefined): PreparedAppend {
    const state = this.#state;
    const before = state.lengths;
    const reservation = state.reserve(tokens.counts);
    const table = this.#table();
    const desc: AppendDesc = {
      k: tokens.k,
      v: tokens.v,
      q: tokens.q,
      qOut,
      cacheK: state.k.desc,
      cacheV: state.v.desc,
      pageTable: table,
      lengths: ints(before.slice()),
      newLens: tokens.newLens && ints(tokens.newLens),
      cuSeqLens: tokens.cuSeqLens && ints(tokens.cuSeqLens),
      kScale: this.#kScale && floats(this.#kScale),
      vScale: this.#vScale && floats(this.#vScale),
      rope: tokens.rope,
    };
    let version: number | undefined;
    return {
      desc,
      lengths: reservation.lengths,
      table,
      handedOver: () => {
        state.lengths = reservation.lengths;
        version = ++this.#version;
      },
      failed: (reason) => this.#takeBack(reservation, before, version, reason),
    };
  }

  #takeBack(reservation: Reservation, before: Int32Array, version: number | undefined, reason: unknown): void {
    if (this.#disposed) return;
    if (version !== undefined && version !== this.#version) {
      this.#broken = reason;
      return;
    }
    this.#state.lengths = before;
    this.#state.cancel(reservation);
  }

  #appendNow(options: AppendOptions, tokens: CheckedTokens): Promise<{ readonly q?: unknown }> {
    const staging = new Staging(this.owner);
    const rotated = tokens.q && rotatedQueries(this.owner, options.q, tokens, staging);
    let prepared: PreparedAppend | undefined;
    const giveUp = (reason: unknown) => {
      prepared?.failed(reason);
      rotated?.dispose();
      staging.finish();
    };
    try {
      prepared = this.prepare(tokens, rotated?.desc);
      const work = this.owner.context.append(stagedAppend(prepared.desc, staging));
      prepared.handedOver();
      return work.then(
        async () => {
          await staging.collect();
          staging.finish();
          return rotated ? { q: rotated.result } : {};
        },
        (reason: unknown) => {
          giveUp(reason);
          throw reason;
        },
      );
    } catch (error) {
      giveUp(error);
      throw error;
    }
  }

  #table(): TensorDesc | undefined {
    const { pool, width } = this.#state;
    if (!pool) return undefined;
    return { data: this.#state.table(), byteOffset: 0, dtype: "i32", shape: [this.batch, width], strides: [width, 1] };
  }

  #shape(): CacheShape {
    if (this.#disposed) throw invalid("the cache was disposed");
    if (this.#broken !== undefined) {
      const why = this.#broken instanceof Error ? this.#broken.message : String(this.#broken);
      throw new TesseraError(
        "device-error",
        `the cache lost an append that later calls built on (${why}); make another`,
        {
          cause: this.#broken,
        },
      );
    }
    this.owner.alive();
    return this.#state.shape;
  }
}
