/** What tensors, caches and verbs share of an engine: the device in use, its liveness, its memory. */

import type { BackendContext, KernelInfo } from "./backend.js";
import { brandCopy } from "./copies.js";
import { bytesOf, type DType } from "./dtype.js";
import { TesseraError } from "./error.js";
import { Storage } from "./storage.js";
import type { Tuned, Tuning } from "./tuning.js";

// Tensors and caches hold their core, so this comes after the last of them. A backstop: dispose() is the plan.
const forgotten = new FinalizationRegistry<BackendContext>((context) => context.dispose());

/** A cache, as a graph that was captured over it knows it. */
export interface GrowingCache {
  /** The capture ended: what it recorded has not happened. */
  forgetRecorded(): void;
  /** Makes room for `counts` more tokens, calls `launch`, and holds them then. */
  grow(counts: Int32Array, launch: () => Promise<void>): Promise<void>;
}

export class EngineCore {
  readonly backend: string;
  readonly context: BackendContext;
  readonly hostMemory: boolean;
  /** What `tune` found on this device, now or in a process before. */
  readonly store: Tuning;
  /** During a capture: what each of its launches does to caches. */
  recorded: Map<GrowingCache, Int32Array> | undefined;
  #disposed = false;
  #empty: Storage | undefined;
  #kernels: readonly KernelInfo[] | undefined;
  #tuned: Map<string, Tuned> | undefined;

  constructor(backend: string, context: BackendContext, store: Tuning) {
    this.store = store;
    this.backend = backend;
    this.context = context;
    forgotten.register(this, context, this);
    this.hostMemory = context.device.caps.hostMemory;
  }

  get disposed(): boolean {
    return this.#disposed;
  }

  /** @throws TesseraError `device-unavailable` once the engine was disposed */
  alive(): void {
    if (this.#disposed)
      throw new TesseraError("device-unavailable", `the engine (${this.backend}) was disposed; open another`);
  }

  /** The catalogue doesn't change while a device is in use. */
  kernels(): readonly KernelInfo[] {
    this.#kernels ??= this.context.kernels();
    return this.#kernels;
  }

  /** Fastest variant of each class of shapes. Choices of kernels that this device doesn't have are forgotten. */
  get tuned(): Map<string, Tuned> {
    if (!this.#tuned) {
      const usable = new Set(this.kernels().map(({ name, usable }) => (usable ? name : "")));
      this.#tuned = new Map([...this.store.load()].filter(([, { kernel }]) => usable.has(kernel)));
    }
    return this.#tuned;
  }

  /** Memory for `count` elements; everything empty shares one buffer. */
  allocate(dtype: DType, count: number): Storage {
    this.alive();
    if (count > 0) return new Storage(this, this.context.alloc(bytesOf(dtype, count)));
    this.#empty ??= new Storage(this, this.context.alloc(64));
    return this.#empty.retain();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    this.context.dispose();
  }
}

/** Bytes of a typed array. */
export function bytesOfView(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

brandCopy(EngineCore.prototype);
