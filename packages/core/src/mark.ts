/** Points in the queue of a device, and the time between them. */
import type { BackendMark } from "./backend.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { invalid } from "./invalid.js";

const forgotten = new FinalizationRegistry<BackendMark>((mark) => mark.dispose());

/** A point behind the calls that were made before it. */
export class Mark {
  readonly #core: EngineCore;
  readonly #mark: BackendMark;
  #disposed = false;

  /** @internal Users call `engine.mark`. */
  constructor(core: EngineCore, mark: BackendMark) {
    this.#core = core;
    this.#mark = mark;
    forgotten.register(this, mark, this);
  }

  /**
   * Milliseconds from `start` to this point by the device's own clock. Waits until it is reached.
   *
   * @throws TesseraError `invalid-argument` if either was disposed or is of another engine; `device-error`
   */
  async since(start: Mark): Promise<number> {
    if (!(#mark in Object(start)) || start.#core !== this.#core) throw invalid("start is no mark of this engine");
    if (this.#disposed || start.#disposed) throw invalid("the mark was disposed");
    this.#core.alive();
    return this.#core.context.elapsed!(start.#mark, this.#mark);
  }

  /** Doing it twice does nothing. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    if (!this.#core.disposed) this.#mark.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** `engine.mark`. */
export function markCall(core: EngineCore): Mark {
  core.alive();
  const { context } = core;
  if (!context.mark || !context.elapsed) {
    throw new TesseraError(
      "unsupported",
      `${core.backend} (${context.device.name}) has no queue to mark; time the awaited calls themselves`,
    );
  }
  if (core.recorded) throw invalid("mark is called inside a capture; allowed: before or after it");
  return new Mark(core, context.mark());
}
