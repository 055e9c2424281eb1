/**
 * Calls that were recorded before: the same descriptor is the same steps, so that a decode's next call needn't plan again.
 * What is in tensors plays no part, lengths neither.
 */
import type { Commands, Step } from "./commands.js";
import { type Memory, WebGpuBuffer } from "./memory.js";

/** A decode of a model has two for each layer. */
const kept = 1024;

export class Recordings {
  readonly #memory: Memory;
  readonly #calls = new Map<string, readonly Step[]>();
  #generation = 0;

  constructor(memory: Memory) {
    this.#memory = memory;
  }

  record<D extends object>(verb: string, desc: D, commands: Commands, record: (desc: D) => void): void {
    const memory = this.#memory;
    // Scratch memory was replaced: steps speak of what is no more.
    if (memory.generation !== this.#generation) this.#calls.clear();
    this.#generation = memory.generation;
    const key = `${verb} ${textOf(desc, memory)}`;
    const steps = this.#calls.get(key);
    if (steps) {
      commands.again(steps);
      return;
    }
    const before = commands.steps.length;
    record(desc);
    if (memory.generation !== this.#generation) return;
    for (const oldest of this.#calls.keys()) {
      if (this.#calls.size < kept) break;
      this.#calls.delete(oldest);
    }
    this.#calls.set(key, commands.steps.slice(before));
  }
}

/** All that a descriptor says, with buffers by their numbers. */
function textOf(value: unknown, memory: Memory): string {
  if (value instanceof WebGpuBuffer) return memory.nameOf({ buffer: value.gpu, offset: 0, size: value.bytes });
  if (ArrayBuffer.isView(value)) return `host ${value.byteLength}`;
  if (Array.isArray(value)) return `[${value.join()}]`;
  if (typeof value !== "object" || value === null) return String(value);
  let text = "{";
  for (const name in value) text += `${name}:${textOf((value as Record<string, unknown>)[name], memory)},`;
  return `${text}}`;
}
