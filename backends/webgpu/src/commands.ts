/** Copies and dispatches of one call, recorded first and then submitted: long work in several pieces, so that no one of them holds the device for long. */
import type { Memory } from "./memory.js";
import type { Window } from "./operand.js";
import type { Pipelines, Shader } from "./pipelines.js";

export interface Binding {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly size: number;
}

export const bindingOf = ({ buffer, offset, size }: Window): Binding => ({ buffer: buffer!, offset, size });
export const whole = (buffer: GPUBuffer): Binding => ({ buffer, offset: 0, size: buffer.size });

interface Dispatch {
  readonly shader: Shader;
  readonly params: ArrayBuffer;
  readonly bindings: Readonly<Record<number, Binding>>;
  readonly groups: readonly [number, number];
  /** Multiplications that it takes. */
  readonly work: number;
}

interface Copy {
  readonly from: Binding;
  readonly to: GPUBuffer;
  readonly toOffset: number;
}

/** Numbers of the host. */
interface Upload {
  readonly buffer: GPUBuffer;
  readonly data: Float32Array<ArrayBuffer>;
}

export type Step = Dispatch | Copy | Upload;

const uniformAlignment = 256;
/** Bind groups of a pipeline: of so many calls whose tensors are the same as before, it isn't made again. */
const groupsKept = 1024;

export class Commands {
  readonly #device: GPUDevice;
  readonly #memory: Memory;
  readonly #pipelines: Pipelines;
  readonly #steps: Step[] = [];

  constructor(device: GPUDevice, memory: Memory, pipelines: Pipelines) {
    this.#device = device;
    this.#memory = memory;
    this.#pipelines = pipelines;
  }

  get steps(): readonly Step[] {
    return this.#steps;
  }

  /** Steps of a call that was recorded before. */
  again(steps: readonly Step[]): void {
    this.#steps.push(...steps);
  }

  copy(from: Binding, to: GPUBuffer, toOffset: number): void {
    if (from.size > 0) this.#steps.push({ from, to, toOffset });
  }

  /** Numbers of the host, for this call. */
  upload(use: string, data: Float32Array<ArrayBuffer>): GPUBuffer {
    const buffer = this.#memory.scratch("storage", use, data.byteLength);
    this.#steps.push({ buffer, data });
    return buffer;
  }

  dispatch(step: Dispatch): void {
    this.#steps.push(step);
  }

  /** @param budget work that one submission may hold */
  submit(budget: number): void {
    const { queue } = this.#device;
    const uniforms = this.#uniforms();
    let encoder = this.#device.createCommandEncoder();
    let pass: GPUComputePassEncoder | undefined;
    const endPass = () => {
      pass?.end();
      pass = undefined;
    };
    let held = 0;
    let at = 0;
    for (const step of this.#steps) {
      if ("data" in step) {
        queue.writeBuffer(step.buffer, 0, step.data);
        continue;
      }
      if (!("shader" in step)) {
        endPass();
        encoder.copyBufferToBuffer(step.from.buffer, step.from.offset, step.to, step.toOffset, step.from.size);
        continue;
      }
      if (held > 0 && held + step.work > budget) {
        endPass();
        queue.submit([encoder.finish()]);
        encoder = this.#device.createCommandEncoder();
        held = 0;
      }
      held += step.work;
      pass ??= encoder.beginComputePass();
      this.#encode(pass, step, { ...uniforms, offset: uniforms.size * at++, size: step.params.byteLength });
    }
    endPass();
    queue.submit([encoder.finish()]);
    this.#memory.retire();
  }

  /** Parameters of all dispatches, one after the other; `size`: how far apart. */
  #uniforms(): { buffer: GPUBuffer; size: number } {
    let [size, count] = [0, 0];
    for (const step of this.#steps) {
      if (!("shader" in step)) continue;
      size = Math.max(size, Math.ceil(step.params.byteLength / uniformAlignment) * uniformAlignment);
      count++;
    }
    const buffer = this.#memory.scratch("uniform", "params", size * count);
    const block = new Uint8Array(size * count);
    let at = 0;
    for (const step of this.#steps) if ("shader" in step) block.set(new Uint8Array(step.params), size * at++);
    this.#memory.writeUniforms(buffer, block);
    return { buffer, size };
  }

  #encode(pass: GPUComputePassEncoder, step: Dispatch, params: Binding): void {
    const { pipeline, layout, groups } = this.#pipelines.get(step.shader);
    const bindings = Object.entries(step.bindings);
    let key = this.#memory.nameOf(params);
    for (const [, binding] of bindings) key += this.#memory.nameOf(binding);
    let group = groups.get(key);
    if (!group) {
      const entries = bindings.map(([binding, resource]) => ({ binding: Number(binding), resource }));
      group = this.#device.createBindGroup({ layout, entries: [{ binding: 0, resource: params }, ...entries] });
      for (const oldest of groups.keys()) {
        if (groups.size < groupsKept) break;
        groups.delete(oldest);
      }
      groups.set(key, group);
    }
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...step.groups);
  }
}

/** A grid of `tasks` workgroups in two dimensions, and how many of them a row has. */
export function gridOf(tasks: number, most: number): { groups: [number, number]; gridWidth: number } {
  const gridWidth = Math.max(1, Math.min(tasks, most));
  return { groups: [gridWidth, Math.max(1, Math.ceil(tasks / gridWidth))], gridWidth };
}
