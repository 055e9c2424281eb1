/** The verb `capture`: calls recorded once, launched again and again. */
import type { BackendGraph } from "./backend.js";
import { done } from "./done.js";
import type { EngineCore, GrowingCache } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";

const forgotten = new FinalizationRegistry<BackendGraph>((graph) => graph.dispose());

/** Recorded calls. The tensors and caches that they use must live as long as it does. */
export class Graph {
  readonly #core: EngineCore;
  readonly #graph: BackendGraph;
  /** Caches that it reads or appends to, with the tokens that a launch adds to each sequence. */
  readonly #caches: readonly (readonly [GrowingCache, Int32Array])[];
  #disposed = false;

  /** @internal Users call `engine.capture`. */
  constructor(core: EngineCore, graph: BackendGraph, caches: ReadonlyMap<GrowingCache, Int32Array>) {
    this.#core = core;
    this.#graph = graph;
    this.#caches = [...caches];
    forgotten.register(this, graph, this);
  }

  /**
   * Enqueues everything that was recorded. A recorded append adds its tokens once more, behind those that its cache
   * holds by now.
   *
   * @throws TesseraError `invalid-argument` or `out-of-memory` if a cache has no room for them. Nothing was enqueued then
   */
  launch(): Promise<void> {
    try {
      if (this.#disposed) throw invalid("the graph was disposed");
      this.#core.alive();
      if (this.#core.recorded) throw invalid("a graph is launched inside a capture; allowed: after it");
      const work = this.#launchFrom(0);
      return work === done ? Promise.resolve() : work; // `done` is the engine's own
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #launchFrom(first: number): Promise<void> {
    if (first === this.#caches.length) return this.#graph.launch();
    const [cache, counts] = this.#caches[first]!;
    return cache.grow(counts, () => this.#launchFrom(first + 1));
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
  // Without copies on the device, calls wait for shared pages: a launch would be overtaken, a capture record what isn't its own.
  if (!context.beginCapture || !context.endCapture || !context.copy) {
    throw new TesseraError(
      "unsupported",
      `${core.backend} (${context.device.name}) has no graphs; make the calls themselves`,
    );
  }
  if (core.recorded) throw invalid("capture is called inside a capture; allowed: one at a time");
  context.beginCapture();
  const recorded = new Map<GrowingCache, Int32Array>();
  core.recorded = recorded;
  let failure: { readonly reason: unknown } | undefined;
  try {
    await calls();
  } catch (reason) {
    failure = { reason };
  }
  core.recorded = undefined;
  for (const cache of recorded.keys()) cache.forgetRecorded();
  // Ended in any case: the stream must not stay in capture.
  if (!failure) return new Graph(core, context.endCapture(), recorded);
  try {
    context.endCapture().dispose();
  } catch {
    // A call that failed may have spoilt the recording; the call's own error says more.
  }
  throw failure.reason;
}
