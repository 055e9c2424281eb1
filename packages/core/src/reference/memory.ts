/** Buffers of the reference: plain ArrayBuffers, counted. */
import type { BackendBuffer, TensorDesc } from "../backend.js";
import { TesseraError } from "../error.js";
import { invalid } from "../invalid.js";

export class ReferenceBuffer implements BackendBuffer {
  readonly bytes: number;
  /** Stays while work in flight holds the buffer, also once it was disposed. */
  readonly memory: Uint8Array;
  readonly #freed: (bytes: number) => void;
  #disposed = false;

  constructor(bytes: number, freed: (bytes: number) => void) {
    try {
      this.memory = new Uint8Array(bytes);
    } catch (cause) {
      throw new TesseraError("out-of-memory", `no memory for a buffer of ${bytes} bytes`, { cause });
    }
    this.bytes = bytes;
    this.#freed = freed;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#freed(this.bytes);
  }
}

/** Memory of a descriptor of this context. */
export function memoryOf(data: TensorDesc["data"]): ArrayBufferView {
  if (ArrayBuffer.isView(data)) return data;
  if (data instanceof ReferenceBuffer) return data.memory;
  throw invalid("a tensor belongs to another back end than reference");
}
