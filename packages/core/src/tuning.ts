/** What `tune` found, wherever it is kept. */

/** A choice. */
export interface Tuned {
  readonly kernel: string;
  readonly numSplits: number;
}

/** Choices of one device, by class of shapes. */
export interface Tuning {
  load(): Map<string, Tuned>;
  save(shape: string, choice: Tuned, milliseconds: number): void;
  clear(): void;
}

/** For as long as the engine lives: pages have no cache directory. */
export const unkept: Tuning = { load: () => new Map(), save() {}, clear() {} };
