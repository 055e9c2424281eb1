/** One line on stderr that is overwritten; silent unless stderr is a terminal. */
export class Progress implements Disposable {
  readonly #shown = process.stderr.isTTY === true;
  #last = 0;

  show(line: string): void {
    const now = performance.now();
    if (!this.#shown || now - this.#last < 80) return;
    this.#last = now;
    const width = process.stderr.columns || 80;
    process.stderr.write(`\r\x1b[2K${line.slice(0, width - 1)}`);
  }

  clear(): void {
    if (this.#shown && this.#last > 0) process.stderr.write("\r\x1b[2K");
    this.#last = 0;
  }

  [Symbol.dispose](): void {
    this.clear();
  }
}
