/**
 * Lengths and pages of a cache in the device's own memory, for devices that can't read the host's or that replay calls:
 * appends advance the lengths there, so a step copies nothing, and a captured one goes on where the last launch ended.
 */
import type { BackendBuffer, TensorDesc } from "./backend.js";
import { bytesOfView, type EngineCore } from "./engine-core.js";
import { allocateTensor, type Tensor } from "./tensor.js";

export class ResidentLengths {
  readonly lengths: Tensor;
  /** [batch, width] */
  readonly table: Tensor | undefined;
  readonly #core: EngineCore;
  /** What the device holds after all that was enqueued; undefined: nobody knows. */
  #lengths: Int32Array | undefined;
  #table: Int32Array | undefined;
  #version = -1;

  constructor(core: EngineCore, batch: number, width: number) {
    this.#core = core;
    this.lengths = allocateTensor(core, "i32", [batch]);
    try {
      this.table = width > 0 ? allocateTensor(core, "i32", [batch, width]) : undefined;
    } catch (error) {
      this.lengths.dispose();
      throw error;
    }
  }

  /**
   * Writes what differs, ordered with the work before and after. `version` is another one whenever `table()` may be.
   * Arrays that are given are kept, and must stay as they are.
   */
  bring(lengths: Int32Array, version: number, table: () => Int32Array): void {
    // What a capture would record is a copy of today's; whoever launches the graph brings them first.
    if (this.#core.recorded) return;
    this.#lengths = this.#write(this.lengths.desc, lengths, this.#lengths);
    if (!this.table || version === this.#version) return;
    this.#table = this.#write(this.table.desc, table(), this.#table);
    this.#version = version;
  }

  /** An append that was enqueued makes the lengths these. */
  advanced(lengths: Int32Array): void {
    if (!this.#core.recorded) this.#lengths = lengths;
  }

  /** An append failed: whether it advanced them nobody knows. */
  forget(): void {
    this.#lengths = undefined;
  }

  dispose(): void {
    this.lengths.dispose();
    this.table?.dispose();
  }

  /** Writes the span from the first value that differs to the last. Returns what is there then. */
  #write(desc: TensorDesc, values: Int32Array, there: Int32Array | undefined): Int32Array {
    let first = 0;
    let end = values.length;
    if (there) {
      while (first < end && values[first] === there[first]) first++;
      while (end > first && values[end - 1] === there[end - 1]) end--;
      if (first === end) return there;
    }
    const bytes = bytesOfView(values.subarray(first, end));
    this.#core.context.write(desc.data as BackendBuffer, desc.byteOffset + first * values.BYTES_PER_ELEMENT, bytes);
    return values;
  }
}
