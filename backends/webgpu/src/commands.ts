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

const uniformAlignment = 256;
/** Bind groups of a pipeline: of so many calls whose tensors are the same as before, it isn't made again. */
const groupsKept = 64;

export class Commands {
  readonly #device: GPUDevice;
  readonly #memory: Memory;
  readonly #pipelines: Pipelines;
  readonly #steps: (Dispatch | Copy)[] = [];

  constructor(device: GPUDevice, memory: Memory, pipelines: Pipelines) {
    this.#device = device;
    this.#memory = memory;
    this.#pipelines = pipelines;
  }

  copy(from: Binding, to: GPUBuffer, toOffset: number): void {
    if (from.size > 0) this.#steps.push({ from, to, toOffset });
  }

  /** Numbers of the host, for this call. */
  upload(use: string, data: Float32Array<ArrayBuffer>): GPUBuffer {
    const buffer = this.#memory.scratch("storage", use, data.byteLength);
    this.#device.queue.writeBuffer(buffer, 0, data);
    return buffer;
  }

  dispatch(step: Dispatch): void {
    this.#steps.push(step);
  }

  /** @param budget work that one submission may hold */
  submit(budget: number): void {
    const dispatches = this.#steps.filter((step): step is Dispatch => "shader" in step);
    const stride =
      Math.max(0, ...dispatches.map(({ params }) => Math.ceil(params.byteLength / uniformAlignment))) *
      uniformAlignment;
    const uniforms = this.#memory.scratch("uniform", "params", stride * dispatches.length);
    const block = new Uint8Array(stride * dispatches.length);
    dispatches.forEach(({ params }, i) => {
      block.set(new Uint8Array(params), i * stride);
    });
    this.#memory.writeUniforms(uniforms, block);

    let encoder = this.#device.createCommandEncoder();
    let held = 0;
    let at = 0;
    for (const step of this.#steps) {
      if (!("shader" in step)) {
        encoder.copyBufferToBuffer(step.from.buffer, step.from.offset, step.to, step.toOffset, step.from.size);
        continue;
      }
      if (held > 0 && held + step.work > budget) {
        this.#device.queue.submit([encoder.finish()]);
        encoder = this.#device.createCommandEncoder();
        held = 0;
      }
      held += step.work;
      this.#encode(encoder, step, { buffer: uniforms, offset: stride * at++, size: step.params.byteLength });
    }
    this.#device.queue.submit([encoder.finish()]);
    this.#memory.retire();
  }

  #encode(encoder: GPUCommandEncoder, step: Dispatch, params: Binding): void {
    const { pipeline, layout, groups } = this.#pipelines.get(step.shader);
    const bindings = Object.entries(step.bindings);
    let key = this.#memory.nameOf(params);
    for (const [, binding] of bindings) key += this.#memory.nameOf(binding);
    let group = groups.get(key);
    if (!group) {
      const entries = bindings.map(([binding, resource]) => ({ binding: Number(binding), resource }));
      group = this.#device.createBindGroup({ layout, entries: [{ binding: 0, resource: params }, ...entries] });
      if (groups.size >= groupsKept) groups.clear();
      groups.set(key, group);
    }
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...step.groups);
    pass.end();
  }
}

/** A grid of `tasks` workgroups in two dimensions, and how many of them a row has. */
export function gridOf(tasks: number, most: number): { groups: [number, number]; gridWidth: number } {
  const gridWidth = Math.max(1, Math.min(tasks, most));
  return { groups: [gridWidth, Math.max(1, Math.ceil(tasks / gridWidth))], gridWidth };
}
