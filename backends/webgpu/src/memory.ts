/** Buffers of a device: those that the engine holds, and scratch memory of calls. */
import { type BackendBuffer, TesseraError } from "@tessera/core/web";

const words = (bytes: number) => Math.max(16, Math.ceil(bytes / 4) * 4);

const STORAGE = 0x80 | 0x4 | 0x8; // STORAGE | COPY_SRC | COPY_DST
const UNIFORM = 0x40 | 0x8; // UNIFORM | COPY_DST

export class WebGpuBuffer implements BackendBuffer {
  constructor(
    readonly owner: Memory,
    readonly gpu: GPUBuffer,
    readonly bytes: number,
  ) {}

  dispose(): void {
    this.owner.free(this);
  }
}

export class Memory {
  readonly #device: GPUDevice;
  readonly #live = new Set<WebGpuBuffer>();
  readonly #scratch = new Map<string, GPUBuffer>();
  readonly #names = new WeakMap<GPUBuffer, number>();
  #retired: GPUBuffer[] = [];
  #generation = 0;
  #named = 0;
  #uniforms: { readonly buffer: GPUBuffer; readonly block: Uint32Array } | undefined;
  #bytes = 0;

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  get bytesInUse(): number {
    return this.#bytes;
  }

  /** How often scratch memory was made anew. */
  get generation(): number {
    return this.#generation;
  }

  /** @throws TesseraError `out-of-memory` if no buffer may be so large; memory that isn't there is told later */
  alloc(bytes: number): WebGpuBuffer {
    const buffer = new WebGpuBuffer(this, this.#create(bytes, STORAGE), bytes);
    this.#live.add(buffer);
    this.#bytes += bytes;
    return buffer;
  }

  free(buffer: WebGpuBuffer): void {
    if (!this.#live.delete(buffer)) return;
    this.#bytes -= buffer.bytes;
    buffer.gpu.destroy();
  }

  /**
   * Memory for one call, by its use. The next call gets the same: work is done in order, so that it may be written over.
   * `apart` keeps buffers of one call from each other.
   */
  scratch(use: "storage" | "uniform", apart: string, bytes: number): GPUBuffer {
    const key = `${use} ${apart}`;
    const there = this.#scratch.get(key);
    if (there && there.size >= bytes) return there;
    // More than asked for, so that it isn't made anew for every larger call; it is bound as a whole.
    const { maxBufferSize, maxStorageBufferBindingSize } = this.#device.limits;
    const most = use === "uniform" ? maxBufferSize : Math.min(maxBufferSize, maxStorageBufferBindingSize);
    const room = 2 ** Math.ceil(Math.log2(Math.max(bytes, 1024)));
    const made = this.#create(room > most ? bytes : room, use === "uniform" ? UNIFORM : STORAGE);
    if (there) this.#retire(there);
    this.#scratch.set(key, made);
    this.#generation++;
    this.#bytes += made.size;
    return made;
  }

  /** After a fault: a buffer that there was no memory for looks like any other, and must not be given out again. */
  forgetScratch(): void {
    for (const buffer of this.#scratch.values()) this.#retire(buffer);
    this.#scratch.clear();
    this.#uniforms = undefined;
    this.#generation++;
  }

  /** What was recorded with it is yet to be submitted. */
  #retire(buffer: GPUBuffer): void {
    this.#bytes -= buffer.size;
    this.#retired.push(buffer);
  }

  /** What is bound, in few letters: buffers are numbered, and no number is given twice. */
  nameOf({ buffer, offset, size }: { buffer: GPUBuffer; offset: number; size: number }): string {
    let name = this.#names.get(buffer);
    if (name === undefined) {
      name = this.#named++;
      this.#names.set(buffer, name);
    }
    return `${name}:${offset}:${size} `;
  }

  /** Writes parameters, unless they are what was written last: nothing else writes them. */
  writeUniforms(buffer: GPUBuffer, bytes: Uint8Array<ArrayBuffer>): void {
    if (bytes.length === 0) return;
    const block = new Uint32Array(bytes.buffer);
    const last = this.#uniforms;
    const same =
      last?.buffer === buffer && last.block.length >= block.length && block.every((x, i) => x === last.block[i]);
    if (same) return;
    this.#device.queue.writeBuffer(buffer, 0, bytes);
    this.#uniforms = { buffer, block };
  }

  /** What was recorded is submitted. */
  retire(): void {
    for (const buffer of this.#retired.splice(0)) buffer.destroy();
  }

  destroy(): void {
    this.retire();
    for (const { gpu } of this.#live) gpu.destroy();
    for (const buffer of this.#scratch.values()) buffer.destroy();
    this.#live.clear();
    this.#scratch.clear();
    this.#bytes = 0;
  }

  #create(bytes: number, usage: number): GPUBuffer {
    const size = words(bytes);
    const { maxBufferSize } = this.#device.limits;
    if (size > maxBufferSize) {
      throw new TesseraError(
        "out-of-memory",
        `a buffer of ${bytes} bytes is larger than this device's buffers may be: ${maxBufferSize} bytes`,
      );
    }
    return this.#device.createBuffer({ size, usage });
  }
}
