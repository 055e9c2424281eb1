/** Which pages of a pool are free, and how many sequences share each that isn't. */
export class PagePool {
  readonly pages: number;
  readonly #holders: Uint32Array;
  readonly #free: number[];

  constructor(pages: number) {
    this.pages = pages;
    this.#holders = new Uint32Array(pages);
    // Taken from the end: page 0 goes first.
    this.#free = Array.from({ length: pages }, (_, i) => pages - 1 - i);
  }

  get free(): number {
    return this.#free.length;
  }

  /** A page nobody holds. The caller has made sure that there is one. */
  take(): number {
    const page = this.#free.pop();
    if (page === undefined) throw new Error("the page pool is empty");
    this.#holders[page] = 1;
    return page;
  }

  share(page: number): void {
    this.#holders[page]!++;
  }

  isShared(page: number): boolean {
    return this.#holders[page]! > 1;
  }

  giveBack(page: number): void {
    if (--this.#holders[page]! === 0) this.#free.push(page);
  }
}
