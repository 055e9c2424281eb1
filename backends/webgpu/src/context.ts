/** A WebGPU device in use. Calls are recorded and submitted before they return; faults surface at `read` or `synchronize`. */
import {
  type AppendDesc,
  type AttentionDesc,
  type BackendBuffer,
  type BackendContext,
  type DecodeDesc,
  type DeviceInfo,
  type Explanation,
  type KernelInfo,
  type MergeDesc,
  type Support,
  TesseraError,
} from "@tessera/core/web";
import { recordAppend } from "./append.js";
import { explanationOf, recordAttention, supportOf, type Target } from "./attention.js";
import type { Capabilities } from "./capabilities.js";
import { kernelsOf } from "./catalogue.js";
import { Commands } from "./commands.js";
import { Faults } from "./faults.js";
import { Memory, WebGpuBuffer } from "./memory.js";
import { recordMerge } from "./merge.js";
import { Pipelines } from "./pipelines.js";
import { Recordings } from "./recordings.js";
import { copyBytes, readBytes, writeBytes } from "./transfer.js";

export class WebGpuContext implements BackendContext {
  readonly device: DeviceInfo;
  readonly #gpu: GPUDevice;
  readonly #faults: Faults;
  readonly #pipelines: Pipelines;
  readonly #target: Target;
  readonly #recordings: Recordings;
  #disposed = false;

  constructor(gpu: GPUDevice, device: DeviceInfo, can: Capabilities) {
    this.device = device;
    this.#gpu = gpu;
    this.#pipelines = new Pipelines(gpu);
    const memory = new Memory(gpu);
    this.#target = { can, memory };
    this.#faults = new Faults(gpu, () => memory.forgetScratch());
    this.#recordings = new Recordings(this.#target.memory);
  }

  get bytesInUse(): number {
    return this.#target.memory.bytesInUse;
  }

  alloc(bytes: number): BackendBuffer {
    this.#alive();
    return this.#target.memory.alloc(bytes);
  }

  write(buffer: BackendBuffer, byteOffset: number, source: Uint8Array): void {
    this.#alive();
    writeBytes(this.#gpu, this.#target, this.#begin, this.#own(buffer), byteOffset, source);
  }

  async read(buffer: BackendBuffer, byteOffset: number, target: Uint8Array): Promise<void> {
    this.#alive();
    try {
      await readBytes(this.#gpu, this.#own(buffer), byteOffset, target);
    } catch (error) {
      this.#faults.alive();
      throw error;
    }
    this.#faults.surface();
  }

  copy(from: BackendBuffer, fromOffset: number, to: BackendBuffer, toOffset: number, bytes: number): void {
    this.#alive();
    copyBytes(this.#target, this.#begin, this.#own(from), fromOffset, this.#own(to), toOffset, bytes);
  }

  kernels(): readonly KernelInfo[] {
    return kernelsOf(this.#target.can);
  }

  supports(desc: AttentionDesc): Support {
    this.#alive();
    return supportOf(desc, this.#target);
  }

  explain(desc: AttentionDesc): Explanation {
    this.#alive();
    return explanationOf(desc, this.#target, "");
  }

  attention(desc: AttentionDesc, signal?: AbortSignal): Promise<void> {
    return this.#run(signal, (commands) => this.#attend(desc, commands));
  }

  append(desc: AppendDesc): Promise<void> {
    return this.#run(undefined, (commands) => this.#append(desc, commands));
  }

  decode(desc: DecodeDesc, signal?: AbortSignal): Promise<void> {
    return this.#run(signal, (commands) => {
      if (desc.append) this.#append(desc.append, commands);
      this.#attend(desc.attention, commands);
    });
  }

  merge(desc: MergeDesc): Promise<void> {
    return this.#run(undefined, (commands) => recordMerge(desc, this.#target, commands));
  }

  async synchronize(): Promise<void> {
    this.#alive();
    await this.#gpu.queue.onSubmittedWorkDone();
    // An error reaches its event a turn later than the work's end.
    await new Promise((resolve) => (typeof setImmediate === "function" ? setImmediate(resolve) : setTimeout(resolve)));
    this.#faults.surface();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    const end = () => {
      this.#faults.end();
      this.#target.memory.destroy();
      this.#gpu.destroy();
    };
    void this.#gpu.queue.onSubmittedWorkDone().then(end, end);
  }

  #begin = (): Commands => new Commands(this.#gpu, this.#target.memory, this.#pipelines);

  #attend(desc: AttentionDesc, commands: Commands): void {
    this.#recordings.record("attention", desc, commands, () => recordAttention(desc, this.#target, commands));
  }

  #append(desc: AppendDesc, commands: Commands): void {
    this.#recordings.record("append", desc, commands, () => recordAppend(desc, this.#target, commands));
  }

  /** Nothing is submitted unless all of a call could be recorded. */
  #run(signal: AbortSignal | undefined, record: (commands: Commands) => void): Promise<void> {
    try {
      this.#alive();
      signal?.throwIfAborted();
      const commands = this.#begin();
      record(commands);
      commands.submit(this.#target.can.submissionWork);
      return Promise.resolve();
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #own(buffer: BackendBuffer): WebGpuBuffer {
    if (buffer instanceof WebGpuBuffer && buffer.owner === this.#target.memory) return buffer;
    throw new TesseraError("invalid-argument", "buffer: expected a buffer of this context");
  }

  #alive(): void {
    if (this.#disposed) throw new TesseraError("device-unavailable", "the WebGPU context was disposed");
    this.#faults.alive();
  }
}
