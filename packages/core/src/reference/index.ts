/**
 * The "reference" back end: float64 in plain TypeScript, for machines where no native code loads, and the model of a
 * back end written in TypeScript. It can do everything of docs/semantics.md, slowly.
 */
import { totalmem } from "node:os";
import type {
  AppendDesc,
  AttentionDesc,
  BackendBuffer,
  BackendContext,
  BackendProbe,
  DecodeDesc,
  DeviceInfo,
  Explanation,
  KernelInfo,
  MergeDesc,
  PromptBackend,
  Support,
} from "../backend.js";
import { TesseraError } from "../error.js";
import { maxHeadDim } from "../limits.js";
import { cacheDTypes, floatDTypes } from "../operands.js";
import { problemOf } from "../problem.js";
import { append } from "./append.js";
import { attend, TILE_K, TILE_Q } from "./attention.js";
import { checkContents } from "./contents.js";
import { memoryOf, ReferenceBuffer } from "./memory.js";
import { merge } from "./merge.js";
import { type Work, WorkQueue } from "./queue.js";

const device: DeviceInfo = {
  index: 0,
  name: "TypeScript reference (float64)",
  arch: "javascript",
  id: "",
  memoryBytes: totalmem(),
  computeUnits: 1,
  sharedBytes: 0,
  state: "usable",
  reason: "",
  fix: "",
  caps: { async: false, hostMemory: true, graphs: false },
};

const kernel: KernelInfo = {
  name: "reference",
  family: "prefill",
  usable: true,
  reason: "",
  alignment: 1,
  qDTypes: floatDTypes,
  kvDTypes: cacheDTypes,
  maxHeadDim,
  headDimStep: 1,
  roundsQ: false,
  flushes: false,
  arch: "any",
  summary: "float64, tile by tile with a running maximum; every feature, no speed",
  byNameOnly: false,
};

function supportOf(desc: AttentionDesc): Support {
  const no = (reason: string): Support => ({ supported: false, code: "unsupported", reason });
  if (desc.kernel !== undefined && desc.kernel !== kernel.name) {
    const reason = `kernel is ${JSON.stringify(desc.kernel)}; allowed: ${JSON.stringify(kernel.name)}`;
    return { supported: false, code: "invalid-argument", reason };
  }
  if ((desc.numSplits ?? 0) > 1)
    return no(`numSplits is ${desc.numSplits}; allowed for reference: 0 or 1, it doesn't split`);
  const dim = Math.max(desc.q.shape.at(-1)!, desc.v.shape.at(-1)!);
  if (dim > maxHeadDim) return no(`a head dim is ${dim}; allowed for reference: 1 to ${maxHeadDim}`);
  try {
    checkContents(problemOf(desc, memoryOf));
  } catch (error) {
    if (!(error instanceof TesseraError)) throw error;
    return { supported: false, code: "invalid-argument", reason: error.message };
  }
  return { supported: true };
}

class ReferenceContext implements BackendContext {
  readonly device = device;
  readonly #queue = new WorkQueue();
  #bytes = 0;
  #disposed = false;

  get bytesInUse(): number {
    return this.#bytes;
  }

  alloc(bytes: number): BackendBuffer {
    this.#live();
    const buffer = new ReferenceBuffer(bytes, (freed) => {
      this.#bytes -= freed;
    });
    this.#bytes += bytes;
    return buffer;
  }

  write(buffer: BackendBuffer, byteOffset: number, source: Uint8Array): void {
    this.#live();
    const { memory } = buffer as ReferenceBuffer;
    if (this.#queue.idle) memory.set(source, byteOffset);
    else {
      const taken = source.slice();
      void this.#queue.run(once(() => memory.set(taken, byteOffset))).catch(() => {});
    }
  }

  read(buffer: BackendBuffer, byteOffset: number, target: Uint8Array): Promise<void> {
    return this.#enqueue(() => {
      const { memory } = buffer as ReferenceBuffer;
      return once(() => target.set(memory.subarray(byteOffset, byteOffset + target.length)));
    });
  }

  copy(from: BackendBuffer, fromOffset: number, to: BackendBuffer, toOffset: number, bytes: number): void {
    this.#live();
    const [source, target] = [(from as ReferenceBuffer).memory, (to as ReferenceBuffer).memory];
    const act = () => target.set(source.subarray(fromOffset, fromOffset + bytes), toOffset);
    if (this.#queue.idle) act();
    else void this.#queue.run(once(act)).catch(() => {});
  }

  kernels(): readonly KernelInfo[] {
    return [kernel];
  }

  supports(desc: AttentionDesc): Support {
    this.#live();
    return supportOf(desc);
  }

  explain(desc: AttentionDesc): Explanation {
    this.#live();
    demand(desc);
    return {
      kernel: kernel.name,
      family: kernel.family,
      tile: { q: TILE_Q, k: TILE_K },
      stages: 1,
      splits: 1,
      threads: 1,
      sharedBytes: 0,
      workspaceBytes: 0,
      notes: "float64 on one thread; for checking, and where no native code loads",
      passedOver: [],
    };
  }

  attention(desc: AttentionDesc, signal?: AbortSignal): Promise<void> {
    return this.#enqueue(() => demanded(desc, attend(desc)), signal);
  }

  append(desc: AppendDesc): Promise<void> {
    return this.#enqueue(() => append(desc));
  }

  decode(desc: DecodeDesc, signal?: AbortSignal): Promise<void> {
    return this.#enqueue(() => demanded(desc.attention, decode(desc)), signal);
  }

  merge(desc: MergeDesc): Promise<void> {
    return this.#enqueue(() => merge(desc));
  }

  async synchronize(): Promise<void> {
    this.#live();
    await this.#queue.drained();
  }

  dispose(): void {
    this.#disposed = true;
  }

  #enqueue(work: () => Work, signal?: AbortSignal): Promise<void> {
    try {
      this.#live();
      return this.#queue.run(work(), signal);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #live(): void {
    if (this.#disposed) throw new TesseraError("device-unavailable", "the reference context was disposed");
  }
}

function demand(desc: AttentionDesc): void {
  const support = supportOf(desc);
  if (!support.supported) throw new TesseraError(support.code, support.reason);
}

/** When its turn comes, not before: lengths in tensors may still be on their way. */
function* demanded(desc: AttentionDesc, work: Work): Work {
  demand(desc);
  yield* work;
}

function* once(action: () => void): Work {
  action();
  yield;
}

function* decode(desc: DecodeDesc): Work {
  if (desc.append) yield* append(desc.append);
  yield* attend(desc.attention);
}

/** See the top of this file. */
export const referenceBackend: PromptBackend = {
  name: "reference",
  version: "1",
  probe: (): BackendProbe => ({ state: "usable", reason: "", fix: "", devices: [device] }),
  open({ device: index }): BackendContext {
    if (index !== 0) throw new TesseraError("device-unavailable", `device is ${index}; allowed for reference: 0`);
    return new ReferenceContext();
  },
};
