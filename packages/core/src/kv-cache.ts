/** Keys and values of sequences that grow, in device memory. */

import { floats, ints, rotatedQueries, stagedAppend } from "./append-parts.js";
import type { DTypeOf, HostResult, Operand } from "./attention-options.js";
import type { AppendDesc, TensorDesc } from "./backend.js";
import type { AppendOptions, CacheShape } from "./cache-options.js";
import type { CacheState, Reservation } from "./cache-state.js";
import { type CheckedTokens, checkAppend, checkedTokens } from "./check-append.js";
import { brandCopy } from "./copies.js";
import { done } from "./done.js";
import type { CacheDType, FloatDType } from "./dtype.js";
import type { EngineCore, GrowingCache } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { holdTensors } from "./hold-tensors.js";
import type { HostTensor } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { int32 } from "./operands.js";
import { Staging } from "./staging.js";
import { allocateTensor, type Tensor } from "./tensor.js";
import { isTensor } from "./tensor-brand.js";

/** What `append` gives: the rotated q if one was given. */
export interface AppendResult<Q extends Operand> {
  readonly q: Q extends HostTensor ? HostResult<Q> : Tensor<DTypeOf<Q>>;
}

const forgotten = new FinalizationRegistry<CacheState>((state) => state.release());

/** Room for new tokens is taken: how that ends. */
interface Growth {
  /**
   * The call was handed over: later calls build on it. Gives its work, which fails if an append before it does.
   *
   * @param more the call may fail though its work is done
   */
  handedOver(work: Promise<void>, more?: boolean): Promise<void>;
  /** Its tokens are there. */
  succeeded(): void;
  /** It failed: it is taken back, and so is all that was built on it. */
  failed(reason: unknown): void;
}

/** An append that is certain to fit: what to send, and how it ends. */
export interface PreparedAppend {
  readonly growth: Growth;
  readonly desc: AppendDesc;
  /** What attention in the same call reads. */
  readonly view: CacheView;
}

/** What attention reads of a cache. */
export interface CacheView {
  readonly k: Tensor;
  readonly v: Tensor;
  /** As options of `attention` have them. */
  readonly seqLensK: Int32Array | Tensor;
  readonly pageTable: TensorDesc | Tensor | undefined;
  readonly kScale: Float32Array | Tensor | undefined;
  readonly vScale: Float32Array | Tensor | undefined;
  /** Where the values of `seqLensK` are to be read, if they share an array with others. */
  readonly placedLengths?: TensorDesc;
}

/** An append that was handed over and may still fail. */
interface Uncertain {
  /** What is left of each sequence if it does. */
  readonly rest: Int32Array;
  /** It and all before it are there; rejects if one of them fails. */
  readonly certain: Promise<void>;
  lost?: { readonly reason: unknown };
}

/** A call that waits for its turn. */
interface Waiting {
  /** What becomes of the lengths in its turn. */
  readonly after: (lengths: Int32Array) => Int32Array;
  readonly start: () => void;
}

function lostError(reason: unknown): TesseraError {
  const why = reason instanceof Error ? reason.message : String(reason);
  return new TesseraError(
    "device-error",
    `an append before this call failed (${why}), and this call built on its tokens; the cache has dropped them and goes on`,
    { cause: reason },
  );
}

/** When an append is certain: `before` is, and it has settled well. */
function follow(before: Uncertain | undefined, settled: Promise<void>, own: () => Uncertain): Promise<void> {
  const check = () => {
    const { lost } = own();
    if (lost) throw lostError(lost.reason);
  };
  const certain = before ? before.certain.then(() => settled).then(check) : settled.then(check);
  certain.catch(() => {}); // whoever builds on it hears of it
  return certain;
}

/** Two lists of lengths in one array, which travels once. */
function beside(one: Int32Array, other: Int32Array): { first: TensorDesc; second: TensorDesc } {
  const both = new Int32Array(2 * one.length);
  both.set(one);
  both.set(other, one.length);
  const first = { ...ints(both), shape: [one.length] };
  return { first, second: { ...first, byteOffset: one.byteLength } };
}

function scaleDesc(scale: Float32Array | Tensor | undefined): TensorDesc | undefined {
  return scale instanceof Float32Array ? floats(scale) : scale?.desc;
}

/** Of k and of v: in the device's memory, or where the host's will do. */
type PlacedScales = readonly [Float32Array | Tensor | undefined, Float32Array | Tensor | undefined];

function disposeScales(scales: PlacedScales): void {
  for (const scale of scales) if (isTensor(scale)) (scale as Tensor).dispose();
}

const unchanged = (lengths: Int32Array) => lengths;

/**
 * A KV cache. Keys are stored after rotation, both converted to the cache's types. Everything that can be wrong with an
 * append is found before a byte is written. A cache belongs to the engine that made it.
 */
export class KvCache implements GrowingCache {
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
  /** Where calls read them. */
  readonly #kScale: Float32Array | Tensor | undefined;
  readonly #vScale: Float32Array | Tensor | undefined;
  /** The rotated queries of a step, which live no longer than it: one step after the other. */
  #rotated: Tensor | undefined;
  /** Lengths before the first append of a capture that goes on. */
  #beforeRecorded: Int32Array | undefined;
  /** Shared pages are being copied: calls wait, in order. */
  #copying = false;
  readonly #waiting: Waiting[] = [];
  /** Oldest first; each builds on those before it. */
  readonly #uncertain: Uncertain[] = [];
  #disposed = false;

  /** @internal Users call `engine.kvCache`. */
  constructor(core: EngineCore, state: CacheState, scales: PlacedScales) {
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
    return this.#waiting.reduce<Int32Array>((lengths, { after }) => after(lengths), this.#state.lengths.slice());
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
      return this.whenWritable(tokens, options, () => this.#appendNow(options, tokens));
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
      const shorter = int32(lengths, "lengths").slice();
      if (shorter.length !== this.batch) throw invalid(`lengths has ${shorter.length} values; allowed: ${this.batch}`);
      const after = (before: Int32Array) => before.map((length, b) => Math.min(length, shorter[b]!));
      this.#notRecorded("truncate");
      return this.#inTurn({}, after, async () => this.#truncateNow(shorter));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * A second cache with the same tokens. Paged: it shares the pages, and a page that both hold is copied when one of
   * them writes into it. Otherwise: a copy.
   *
   * @throws TesseraError `device-error` if an append before it fails: call it again
   */
  fork(): Promise<KvCache> {
    try {
      this.#shape();
      this.#notRecorded("fork");
      return this.#inTurn({}, unchanged, () => this.#forkNow());
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** Frees the memory, or gives back the pages that forks don't hold. Doing it twice does nothing. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    this.#state.release();
    this.#rotated?.dispose();
    disposeScales([this.#kScale, this.#vScale]);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
  }

  /**
   * @internal Waits for shared pages to be copied, if any has to be; else acts before it returns. `act` gets the options
   * with tensors that live until then, whatever their owner does meanwhile.
   */
  whenWritable<R, O extends object>(
    tokens: Pick<CheckedTokens, "counts"> | undefined,
    options: O,
    act: (options: O) => R,
  ): R | Promise<Awaited<R>> {
    this.#shape();
    if (!tokens) return this.#inTurn(options, unchanged, act);
    const { counts } = tokens;
    const after = (before: Int32Array) => before.map((length, b) => length + counts[b]!);
    return this.#inTurn(options, after, (held) => {
      this.#state.checkRoom(counts);
      // A capture writes nothing; each launch of its graph comes by here again.
      if (this.owner.recorded) return act(held);
      const targets = this.#state.sharedTargets(counts);
      if (targets.length === 0) return act(held);
      const copying = this.#state.copyOnWrite(targets);
      if (!copying) return act(held);
      this.#copying = true;
      let failure: { readonly reason: unknown } | undefined;
      const writing = (mine: O) => {
        if (failure) throw failure.reason;
        return act(mine);
      };
      const turn = this.#wait(held, after, writing, "first");
      const copied = copying.catch((reason: unknown) => {
        failure = { reason };
      });
      void copied.then(() => {
        this.#copying = false;
        while (!this.#copying && this.#waiting.length > 0) this.#waiting.shift()!.start();
      });
      return turn;
    });
  }

  /** @internal Work that reads what the cache holds now: fails if an append that put some of it there does. */
  reading(work: Promise<void>): Promise<void> {
    const last = this.#uncertain.at(-1);
    return last === undefined ? work : work.then(() => last.certain);
  }

  /** @internal */
  checkTokens(options: Record<string, unknown>): CheckedTokens {
    return checkedTokens(options, this.#shape(), this.owner);
  }

  /** @internal What attention reads now. */
  view(): CacheView {
    this.#shape();
    this.#record();
    if (this.#state.bringResident()) return this.#viewOf(undefined);
    return this.#viewOf({ lengths: this.#state.lengths.slice(), table: this.#table() });
  }

  /** @internal Takes pages and describes the append. `qOut`: where the rotated q goes, in the contract's order. */
  prepare(tokens: CheckedTokens, qOut: TensorDesc | undefined): PreparedAppend {
    const state = this.#state;
    const before = state.lengths;
    const reservation = state.reserve(tokens.counts);
    this.#record(tokens.counts);
    const resident = state.bringResident();
    const table = resident ? undefined : this.#table();
    const both = resident ? undefined : beside(before, reservation.lengths);
    const desc: AppendDesc = {
      k: tokens.k,
      v: tokens.v,
      q: tokens.q,
      qOut,
      cacheK: state.k.desc,
      cacheV: state.v.desc,
      pageTable: resident ? resident.table?.desc : table,
      lengths: resident ? resident.lengths.desc : both!.first,
      advance: resident !== undefined,
      newLens: tokens.newLens && ints(tokens.newLens),
      cuSeqLens: tokens.cuSeqLens && ints(tokens.cuSeqLens),
      kScale: scaleDesc(this.#kScale),
      vScale: scaleDesc(this.#vScale),
      rope: tokens.rope,
    };
    const view = this.#viewOf(both && { lengths: reservation.lengths, table, placed: both.second });
    return { growth: this.#growth(reservation), desc, view };
  }

  /** @internal See GrowingCache. */
  forgetRecorded(): void {
    const before = this.#beforeRecorded;
    this.#beforeRecorded = undefined;
    if (before && !this.#disposed) this.#state.truncate(before);
  }

  /** @internal See GrowingCache. */
  grow(counts: Int32Array, launch: () => Promise<void>): Promise<void> {
    const grows = counts.some((count) => count > 0);
    return this.whenWritable(grows ? { counts } : undefined, {}, () => {
      const growth = this.#growth(this.#state.reserve(counts));
      try {
        this.#state.bringResident();
        const work = growth.handedOver(launch());
        if (work === done) return work;
        return work.then(growth.succeeded, (reason: unknown) => {
          growth.failed(reason);
          throw reason;
        });
      } catch (error) {
        growth.failed(error);
        throw error;
      }
    });
  }

  /** @internal Memory for rotated queries that nobody sees after the step. */
  rotatedQueries(dtype: FloatDType, shape: readonly number[]): Tensor {
    const kept = this.#rotated;
    if (kept?.dtype === dtype && kept.shape.length === shape.length && kept.shape.every((n, i) => n === shape[i]))
      return kept;
    kept?.dispose();
    this.#rotated = undefined;
    this.#rotated = allocateTensor(this.owner, dtype, shape);
    return this.#rotated;
  }

  /** `host`: what the host brings along, where the device keeps no lengths of its own. */
  #viewOf(host: { lengths: Int32Array; table: TensorDesc | undefined; placed?: TensorDesc } | undefined): CacheView {
    const { k, v, resident } = this.#state;
    return {
      k,
      v,
      seqLensK: host ? host.lengths : resident!.lengths,
      pageTable: host ? host.table : resident!.table,
      kScale: this.#kScale,
      vScale: this.#vScale,
      ...(host?.placed && { placedLengths: host.placed }),
    };
  }

  /** How taking room ends. */
  #growth(reservation: Reservation): Growth {
    const state = this.#state;
    const before = state.lengths;
    const sum = this.owner.recorded?.get(this);
    let entry: Uncertain | undefined;
    let handed = false;
    // A call that failed is no part of the graph, though the capture may go on.
    const unrecord = () => {
      const counts = reservation.lengths.map((length, b) => length - before[b]!);
      for (const [b, count] of counts.entries()) sum![b]! -= count;
      if (handed && this.#beforeRecorded) state.lengths = state.lengths.map((length, b) => length - counts[b]!);
    };
    let settle = () => {};
    return {
      handedOver: (work, more = false) => {
        const reading = this.reading(work);
        state.lengths = reservation.lengths;
        state.resident?.advanced(reservation.lengths);
        handed = true;
        if (reading === done && !more) return done;
        if (sum) {
          work.catch(unrecord);
          return reading;
        }
        const settled = new Promise<void>((resolve) => {
          settle = resolve;
        });
        const uncertain: Uncertain = {
          rest: before.slice(),
          certain: follow(this.#uncertain.at(-1), settled, () => uncertain),
        };
        entry = uncertain;
        this.#uncertain.push(uncertain);
        return reading;
      },
      succeeded: () => {
        const at = entry ? this.#uncertain.indexOf(entry) : -1;
        if (at >= 0) this.#uncertain.splice(at, 1);
        settle();
      },
      failed: (reason) => {
        state.resident?.forget();
        if (entry) this.#lose(entry, reason);
        else if (handed) return;
        else if (sum) unrecord();
        else if (!this.#disposed) state.cancel(reservation);
        settle();
      },
    };
  }

  /** In a capture: takes down that each launch reads this cache, and adds these tokens. */
  #record(counts?: Int32Array): void {
    const recorded = this.owner.recorded;
    if (!recorded) return;
    this.#beforeRecorded ??= this.#state.lengths;
    const sum = recorded.get(this) ?? new Int32Array(this.batch);
    recorded.set(this, sum);
    if (counts) for (const [b, count] of counts.entries()) sum[b]! += count;
  }

  #notRecorded(call: string): void {
    if (this.owner.recorded) throw invalid(`${call} is called inside a capture; allowed: before or after it`);
  }

  #lose(entry: Uncertain, reason: unknown): void {
    entry.lost = { reason };
    const at = this.#uncertain.indexOf(entry);
    // Not there: a truncate, or the loss of an append before it, has taken its tokens away already.
    if (at < 0) return;
    this.#uncertain.splice(at);
    const shorter = (lengths: Int32Array) => lengths.map((length, b) => Math.min(length, entry.rest[b]!));
    // A capture that goes on must not bring them back at its end.
    if (this.#beforeRecorded) this.#beforeRecorded = shorter(this.#beforeRecorded);
    if (!this.#disposed) this.#state.truncate(entry.rest);
  }

  #truncateNow(shorter: Int32Array): void {
    this.#shape();
    const { lengths } = this.#state;
    for (const [b, length] of shorter.entries()) {
      if (length < 0 || length > lengths[b]!)
        throw invalid(`lengths[${b}] is ${length}; allowed: 0 to ${lengths[b]}, what the sequence holds`);
    }
    this.#state.truncate(shorter);
    for (const { rest } of this.#uncertain)
      for (const [b, length] of shorter.entries()) rest[b] = Math.min(rest[b]!, length);
    // What comes after doesn't build on appends of which nothing is left.
    const first = this.#uncertain.findIndex(({ rest }) => rest.every((length, b) => length === shorter[b]));
    if (first >= 0) this.#uncertain.splice(first);
  }

  async #forkNow(): Promise<KvCache> {
    const copied = this.#state.fork();
    const last = this.#uncertain.at(-1);
    // Taken now: this cache may be gone, or a capture begun, by the time that the fork is there.
    const view = (scale: PlacedScales[number]) => (isTensor(scale) ? (scale as Tensor).slice(0, 0) : scale);
    const scales = [view(this.#kScale), view(this.#vScale)] as const;
    let state: CacheState | undefined;
    try {
      state = await copied;
      await last?.certain;
      this.owner.alive();
    } catch (error) {
      state?.release();
      disposeScales(scales);
      throw error;
    }
    return new KvCache(this.owner, state, scales);
  }

  /** Acts at once, or after the calls that wait already. */
  #inTurn<R, O extends object>(options: O, after: Waiting["after"], act: (options: O) => R): R | Promise<Awaited<R>> {
    return this.#copying ? this.#wait(options, after, act, "last") : act(options);
  }

  #wait<R, O extends object>(
    options: O,
    after: Waiting["after"],
    act: (options: O) => R,
    place: "first" | "last",
  ): Promise<Awaited<R>> {
    const before = this.#uncertain.slice();
    const held = holdTensors(options);
    return new Promise((resolve, reject) => {
      const start = () => {
        try {
          this.#shape();
          const lost = before.find((append) => append.lost);
          if (lost) throw lostError(lost.lost!.reason);
          resolve(act(held.options) as Awaited<R>);
        } catch (error) {
          reject(error);
        } finally {
          held.release();
        }
      };
      if (place === "first") this.#waiting.unshift({ after, start });
      else this.#waiting.push({ after, start });
    });
  }

  #appendNow(options: AppendOptions, tokens: CheckedTokens): Promise<{ readonly q?: unknown }> {
    const staging = new Staging(this.owner);
    const rotated = tokens.q && rotatedQueries(this.owner, options.q, tokens, staging);
    let prepared: PreparedAppend | undefined;
    const giveUp = (reason: unknown) => {
      prepared?.growth.failed(reason);
      rotated?.dispose();
      staging.finish();
    };
    try {
      prepared = this.prepare(tokens, rotated?.desc);
      const ready = prepared;
      const work = ready.growth.handedOver(this.owner.context.append(stagedAppend(ready.desc, staging)));
      return work.then(
        async () => {
          ready.growth.succeeded();
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
    this.owner.alive();
    return this.#state.shape;
  }
}

brandCopy(KvCache.prototype);
