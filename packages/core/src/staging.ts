/**
 * Host arrays on their way to a device whose memory the host doesn't share, and results on their way back. Where it
 * does share it, nothing moves: the arrays themselves are the device's memory.
 */
import type { BackendBuffer, TensorDesc } from "./backend.js";
import type { CacheDType } from "./dtype.js";
import { bytesOf, type DType } from "./dtype.js";
import { bytesOfView, type EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { hostArray } from "./host-tensor.js";
import { contiguousStrides, countOf, shapeText } from "./strides.js";

/** Stands for memory where only shapes matter. */
const noData = new Uint8Array(0);

/** A descriptor without memory: what `supports` and `explain` need of results. */
export function shapeOnly(dtype: DType, shape: readonly number[]): TensorDesc {
  return { data: noData, byteOffset: 0, dtype, shape, strides: contiguousStrides(shape) };
}

/** A contiguous host array of a shape. */
export function newHostArray(dtype: CacheDType, shape: readonly number[]): Float32Array | Uint16Array | Uint8Array {
  try {
    return hostArray(dtype, bytesOf(dtype, countOf(shape)));
  } catch (cause) {
    throw new TesseraError("out-of-memory", `no host memory for ${shapeText(shape)} of ${dtype}`, { cause });
  }
}

/** Copies of one call. `finish` gives their memory back. */
export class Staging {
  readonly #core: EngineCore;
  #buffers: BackendBuffer[] | undefined;
  /** Of inputs: an array that a call names twice is copied once. */
  #copies: Map<ArrayBufferView, BackendBuffer> | undefined;
  #results: { readonly buffer: BackendBuffer; readonly target: Uint8Array }[] | undefined;

  constructor(core: EngineCore) {
    this.#core = core;
  }

  /** A host input where the device can read it. */
  input(desc: TensorDesc): TensorDesc {
    if (this.#core.hostMemory || !ArrayBuffer.isView(desc.data)) return desc;
    const there = this.#copies?.get(desc.data);
    if (there) return { ...desc, data: there };
    const copied = this.#copied(desc.data, desc);
    this.#copies ??= new Map();
    this.#copies.set(desc.data, copied.data as BackendBuffer);
    return copied;
  }

  /** Every host input of a descriptor. */
  inputs<T extends object>(desc: T): T {
    if (this.#core.hostMemory) return desc;
    let staged: Record<string, unknown> | undefined;
    for (const name in desc) {
      const value: unknown = desc[name];
      if (typeof value !== "object" || value === null || !("strides" in value)) continue;
      const there = this.input(value as TensorDesc);
      if (there === value) continue;
      staged ??= { ...desc } as Record<string, unknown>;
      staged[name] = there;
    }
    return (staged ?? desc) as T;
  }

  /** A host result: written in place, or by `collect`. What it held comes along, for gaps between its rows. */
  output(desc: TensorDesc): TensorDesc {
    if (this.#core.hostMemory || !ArrayBuffer.isView(desc.data)) return desc;
    const copied = this.#copied(desc.data, desc);
    this.#results ??= [];
    this.#results.push({ buffer: copied.data as BackendBuffer, target: bytesOfView(desc.data) });
    return copied;
  }

  /** Brings results home; undefined if they are there already. */
  collect(): Promise<unknown> | undefined {
    if (!this.#results) return undefined;
    const reads = this.#results.map(({ buffer, target }) => this.#core.context.read(buffer, 0, target));
    // All of them, before one that failed is told: buffers of the others go afterwards.
    return Promise.allSettled(reads).then(() => Promise.all(reads));
  }

  finish(): void {
    if (!this.#buffers || this.#core.disposed) return;
    for (const buffer of this.#buffers.splice(0)) buffer.dispose();
  }

  #copied(data: ArrayBufferView, desc: TensorDesc): TensorDesc {
    const { context } = this.#core;
    const bytes = bytesOfView(data);
    const buffer = context.alloc(Math.max(bytes.length, 1));
    this.#buffers ??= [];
    this.#buffers.push(buffer);
    if (bytes.length > 0) context.write(buffer, 0, bytes);
    return { ...desc, data: buffer };
  }
}
