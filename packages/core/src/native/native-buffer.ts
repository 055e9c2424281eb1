import type { BackendBuffer } from "../backend.js";
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
