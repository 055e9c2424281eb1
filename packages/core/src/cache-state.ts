/**
 * What a cache holds: memory, lengths, and for paged caches which page is where. Pages are shared by forks; one that
 * is about to be written while others hold it is copied first.
 */
import type { BackendBuffer } from "./backend.js";
import type { CacheShape } from "./cache-options.js";
import { bytesOf } from "./dtype.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { invalid } from "./invalid.js";
import { PagePool } from "./page-pool.js";
import { ResidentLengths } from "./resident-lengths.js";
import { allocateTensor, type Tensor } from "./tensor.js";

/** Pages taken for an append that isn't certain yet. */
export interface Reservation {
  readonly lengths: Int32Array;
  readonly pages: { readonly b: number; readonly page: number }[];
}

export class CacheState {
  readonly shape: CacheShape;
  readonly k: Tensor;
  readonly v: Tensor;
  readonly pool: PagePool | undefined;
  /** Another array when they change: it is shared, and never written. */
  lengths: Int32Array;
  /** Pages of each sequence, in order. */
  readonly pages: number[][];
  /** Where the device keeps its own; elsewhere each call brings them. */
  readonly resident: ResidentLengths | undefined;
  /** Another one whenever `table()` may have changed. */
  tableVersion = 0;
  readonly #core: EngineCore;
  #released = false;

  constructor(core: EngineCore, shape: CacheShape, shared?: CacheState) {
    this.#core = core;
    this.shape = shape;
    const { batch, kvHeads, headDim, valueDim, capacity, pageSize, pages } = shape;
    const rows = pageSize > 0 ? [pages, pageSize] : [batch, capacity];
    if (shared) {
      this.k = shared.k.slice(0, 0);
      this.v = shared.v.slice(0, 0);
    } else {
      this.k = allocateTensor(core, shape.k, [...rows, kvHeads, headDim]);
      try {
        this.v = allocateTensor(core, shape.v, [...rows, kvHeads, valueDim]);
      } catch (error) {
        this.k.dispose();
        throw error;
      }
    }
    this.pool = shared ? shared.pool : pageSize > 0 ? new PagePool(pages) : undefined;
    this.lengths = new Int32Array(batch);
    this.pages = Array.from({ length: batch }, () => []);
    const { hostMemory, graphs } = core.context.device.caps;
    if (hostMemory && !graphs) return;
    try {
      this.resident = new ResidentLengths(core, batch, this.width);
    } catch (error) {
      this.k.dispose();
      this.v.dispose();
      throw error;
    }
  }

  /** What the device keeps is what this holds, for work that is enqueued from now on. */
  bringResident(): ResidentLengths | undefined {
    this.resident?.bring(this.lengths, this.tableVersion, () => this.table());
    return this.resident;
  }

  /** Pages that a sequence may have. */
  get width(): number {
    return this.pool ? Math.ceil(this.shape.capacity / this.shape.pageSize) : 0;
  }

  /** [batch, width], row-major; a copy. */
  table(): Int32Array {
    const table = new Int32Array(this.shape.batch * this.width);
    for (const [b, pages] of this.pages.entries()) table.set(pages, b * this.width);
    return table;
  }

  /** @throws TesseraError `invalid-argument` if a sequence would outgrow the capacity. Nothing has changed then. */
  checkRoom(counts: Int32Array): void {
    const { capacity } = this.shape;
    for (let b = 0; b < counts.length; b++) {
      if (this.lengths[b]! + counts[b]! <= capacity) continue;
      throw invalid(
        `sequence ${b} holds ${this.lengths[b]} tokens and gets ${counts[b]}; allowed: a capacity of ${capacity}. Nothing was appended`,
      );
    }
  }

  /** Pages that others hold and this append would write into. */
  sharedTargets(counts: Int32Array): { b: number; n: number }[] {
    const { pool, shape } = this;
    if (!pool) return [];
    const targets: { b: number; n: number }[] = [];
    for (let b = 0; b < counts.length; b++) {
      const length = this.lengths[b]!;
      const n = Math.floor(length / shape.pageSize);
      if (counts[b]! > 0 && length % shape.pageSize > 0 && pool.isShared(this.pages[b]![n]!)) targets.push({ b, n });
    }
    return targets;
  }

  /**
   * Gives those pages copies of their own. Undefined: the device copies them before whatever comes after. Otherwise the
   * cache may be released, or cut shorter, while this waits.
   */
  copyOnWrite(targets: readonly { b: number; n: number }[]): Promise<void> | undefined {
    const pool = this.pool!;
    const { pageSize } = this.shape;
    this.#demandPages(targets.length);
    const copies = targets.map(({ b, n }) => ({
      b,
      n,
      from: this.pages[b]![n]!,
      to: pool.take(),
      rows: this.lengths[b]! - n * pageSize,
    }));
    const giveUp = (reason: unknown): never => {
      for (const { to } of copies) pool.giveBack(to);
      throw reason;
    };
    const finish = () => {
      for (const { b, n, from, to } of copies) {
        // A page that went away meanwhile has been given back already: then it is the copy that nobody needs.
        const held = this.pages[b]![n] === from;
        if (held) this.pages[b]![n] = to;
        this.tableVersion++;
        pool.giveBack(held ? from : to);
      }
    };
    try {
      const waits = copies.map(({ from, to, rows }) => this.#copyRows(this, from * pageSize, to * pageSize, rows));
      if (waits.some((wait) => wait)) return Promise.all(waits).then(finish, giveUp);
    } catch (error) {
      return giveUp(error);
    }
    finish();
    return undefined;
  }

  /** Takes the pages that an append needs, or none at all. */
  reserve(counts: Int32Array): Reservation {
    this.checkRoom(counts);
    // A loop: map takes longer than all else that a step of generation does here.
    const lengths = new Int32Array(counts.length);
    for (let b = 0; b < lengths.length; b++) lengths[b] = this.lengths[b]! + counts[b]!;
    const reservation: Reservation = { lengths, pages: [] };
    const { pool, shape } = this;
    if (!pool) return reservation;
    const missing = this.pages.map((pages, b) => Math.ceil(lengths[b]! / shape.pageSize) - pages.length);
    this.#demandPages(missing.reduce((sum, n) => sum + Math.max(n, 0), 0));
    for (const [b, count] of missing.entries()) {
      for (let n = 0; n < count; n++) {
        const page = pool.take();
        this.pages[b]!.push(page);
        this.tableVersion++;
        reservation.pages.push({ b, page });
      }
    }
    return reservation;
  }

  /** Gives reserved pages back; none was written, or what was written doesn't count. */
  cancel({ pages }: Reservation): void {
    if (pages.length > 0) this.tableVersion++;
    for (const { b, page } of pages.toReversed()) {
      this.pages[b]!.pop();
      this.pool!.giveBack(page);
    }
  }

  truncate(lengths: Int32Array): void {
    this.lengths = lengths;
    if (!this.pool) return;
    this.tableVersion++;
    for (const [b, pages] of this.pages.entries()) {
      const kept = Math.ceil(lengths[b]! / this.shape.pageSize);
      for (const page of pages.splice(kept)) this.pool.giveBack(page);
    }
  }

  /** The same tokens again: pages shared, or rows copied. */
  async fork(): Promise<CacheState> {
    const copy = new CacheState(this.#core, this.shape, this.pool && this);
    copy.lengths = this.lengths.slice();
    if (this.pool) {
      for (const [b, pages] of this.pages.entries()) {
        for (const page of pages) this.pool.share(page);
        copy.pages[b]!.push(...pages);
      }
      copy.tableVersion++;
      return copy;
    }
    const { capacity } = this.shape;
    try {
      await Promise.all([...copy.lengths].map((length, b) => copy.#copyRows(this, b * capacity, b * capacity, length)));
    } catch (error) {
      copy.release();
      throw error;
    }
    return copy;
  }

  release(): void {
    this.#released = true;
    if (this.pool) for (const pages of this.pages) for (const page of pages.splice(0)) this.pool.giveBack(page);
    this.k.dispose();
    this.v.dispose();
    this.resident?.dispose();
  }

  #demandPages(count: number): void {
    const pool = this.pool!;
    if (count <= pool.free) return;
    throw new TesseraError(
      "out-of-memory",
      `the page pool has ${pool.free} of ${pool.pages} pages free and ${count} are needed; ` +
        `forks share it: give kvCache more with pages, or truncate or dispose what isn't needed. Nothing was appended`,
    );
  }

  /**
   * Rows [from, from + count) of another cache's memory to row `to` of this one's, both of one shape. Undefined: the
   * device does it, in order with everything else.
   */
  #copyRows(source: CacheState, from: number, to: number, count: number): Promise<unknown> | undefined {
    const { kvHeads, headDim, valueDim } = this.shape;
    const { context } = this.#core;
    if (count === 0) return undefined;
    const both = [
      [source.k, this.k, headDim],
      [source.v, this.v, valueDim],
    ] as const;
    const parts = both.map(([source, target, dim]) => {
      const row = bytesOf(target.dtype, kvHeads * dim);
      const [source_, target_] = [source.desc.data as BackendBuffer, target.desc.data as BackendBuffer];
      return { source: source_, target: target_, from: from * row, to: to * row, bytes: count * row };
    });
    if (context.copy) {
      for (const part of parts) context.copy(part.source, part.from, part.target, part.to, part.bytes);
      return undefined;
    }
    const byHost = async (part: (typeof parts)[number]) => {
      const bytes = new Uint8Array(part.bytes);
      try {
        await context.read(part.source, part.from, bytes);
      } finally {
        this.#core.alive();
      }
      if (!this.#released) context.write(part.target, part.to, bytes);
    };
    return Promise.all(parts.map(byHost));
  }
}
