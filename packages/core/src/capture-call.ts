/** The verb `capture`: calls recorded once, launched again and again. */
import type { BackendGraph } from "./backend.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";

const forgotten = new FinalizationRegistry<BackendGraph>((graph) => graph.dispose());

/** Recorded calls. The tensors that they use must live as long as it does. */
export class Graph {
  readonly #core: EngineCore;
  readonly #graph: BackendGraph;
  #disposed = false;

  /** @internal Users call `engine.capture`. */
  constructor(core: EngineCore, graph: BackendGraph) {
    this.#core = core;
    this.#graph = graph;
    forgotten.register(this, graph, this);
  }

  /** Enqueues everything that was recorded. */
  async launch(): Promise<void> {
    if (this.#disposed) throw invalid("the graph was disposed");
    this.#core.alive();
    await this.#graph.launch();
  }

  /** Doing it twice does nothing. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    if (!this.#core.disposed) this.#graph.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
  }
}

/** `engine.capture`. */
export async function captureCall(core: EngineCore, calls: () => unknown): Promise<Graph> {
  core.alive();
  if (typeof calls !== "function") throw invalid(`capture takes a function; got ${describe(calls)}`);
  const { context } = core;
  if (!context.beginCapture || !context.endCapture) {
    throw new TesseraError(
      "unsupported",
      `${core.backend} (${context.device.name}) has no graphs; make the calls themselves`,
    );
  }
  if (core.capturing) throw invalid("capture is called inside a capture; allowed: one at a time");
  context.beginCapture();
  core.capturing = true;
  let failure: { readonly reason: unknown } | undefined;
  try {
    await calls();
  } catch (reason) {
    failure = { reason };
  }
  core.capturing = false;
  // Ended in any case: the stream must not stay in capture.
  if (!failure) return new Graph(core, context.endCapture());
  try {
    context.endCapture().dispose();
  } catch {
    // A call that failed may have spoilt the recording; the call's own error says more.
  }
  throw failure.reason;
}
