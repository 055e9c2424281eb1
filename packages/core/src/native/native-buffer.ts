import type { BackendBuffer } from "../backend.js";
import { TesseraError } from "../error.js";
import type { AddonContext } from "./addon.js";

// The backstop for buffers that were forgotten; dispose() is the plan.
const forgotten = new FinalizationRegistry<{ native: AddonContext; id: number }>(({ native, id }) => {
  try {
    native.free(id);
  } catch {
    // The context is disposed, and its buffers with it.
  }
});

export class NativeBuffer implements BackendBuffer {
  #disposed = false;

  constructor(
    /** The context that it belongs to. */
    readonly owner: object,
    private readonly native: AddonContext,
    /** What the addon calls it. Never used twice. */
    readonly id: number,
    readonly bytes: number,
  ) {
    forgotten.register(this, { native, id }, this);
  }

  /** Its id, if it is a live buffer of `context`. */
  idFor(context: object): number {
    if (this.owner !== context) throw new TesseraError("invalid-argument", "the buffer belongs to another context");
    return this.id;
  }

  /** Calls in flight finish with it first. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    try {
      this.native.free(this.id);
    } catch {
      // The context is disposed, and its buffers with it.
    }
  }
}
