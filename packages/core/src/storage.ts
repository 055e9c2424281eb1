/** A device buffer that several tensors share. It is freed when the last of them, and the last call that uses it, is done. */
import type { BackendBuffer } from "./backend.js";

export class Storage {
  readonly buffer: BackendBuffer;
  readonly #engine: { readonly disposed: boolean };
  #holders = 1;

  constructor(engine: { readonly disposed: boolean }, buffer: BackendBuffer) {
    this.#engine = engine;
    this.buffer = buffer;
  }

  retain(): this {
    this.#holders++;
    return this;
  }

  release(): void {
    // An engine that was disposed has freed everything already.
    if (--this.#holders === 0 && !this.#engine.disposed) this.buffer.dispose();
  }
}
