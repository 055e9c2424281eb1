/** Work in call order, in slices: long runs leave the event loop room and stay abortable. */

/** Work that yields where it may be interrupted. */
export type Work = Generator<void, void>;

const SLICE_MS = 5;

interface Job {
  readonly work: Work;
  readonly signal: AbortSignal | undefined;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/** One queue per context. What it can finish within the first slice is done when `run` returns. */
export class WorkQueue {
  #jobs: Job[] = [];
  #scheduled = false;

  get idle(): boolean {
    return this.#jobs.length === 0;
  }

  /** Rejects with `signal.reason` if aborted before the work is done. */
  run(work: Work, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#jobs.push({ work, signal, resolve, reject });
      if (this.#jobs.length === 1 && !this.#scheduled) this.#slice();
    });
  }

  /** Resolves when everything that is queued now is done, well or badly. */
  drained(): Promise<void> {
    if (this.idle) return Promise.resolve();
    return this.run((function* () {})());
  }

  #slice(): void {
    const ends = performance.now() + SLICE_MS;
    while (this.#jobs.length > 0) {
      const job = this.#jobs[0]!;
      if (job.signal?.aborted) this.#settle(job, () => job.reject(job.signal!.reason));
      else {
        try {
          if (job.work.next().done) this.#settle(job, job.resolve);
        } catch (error) {
          this.#settle(job, () => job.reject(error));
        }
      }
      if (this.#jobs.length > 0 && performance.now() >= ends) {
        this.#scheduled = true;
        setImmediate(() => {
          this.#scheduled = false;
          this.#slice();
        });
        return;
      }
    }
  }

  #settle(job: Job, how: () => void): void {
    if (this.#jobs[0] === job) this.#jobs.shift();
    how();
  }
}
