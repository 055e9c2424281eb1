/** A device buffer that several tensors share, freed with the last of them. Back ends let calls in flight finish with it. */
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
