/** Compiled shaders of a device, each made when it is first needed. */

/** A shader by a short name of all that its text is made of: texts of a call are only made once. */
export interface Shader {
  readonly key: string;
  readonly label: string;
  readonly code: () => string;
}

/** @param options what `code` makes the text of */
export function shader<T>(label: string, options: T, code: (options: T) => string): Shader {
  return { key: `${label} ${JSON.stringify(options)}`, label, code: () => code(options) };
}

export interface Pipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  /** Bind groups by what is bound (commands.ts). */
  readonly groups: Map<string, GPUBindGroup>;
}

export class Pipelines {
  readonly #device: GPUDevice;
  readonly #made = new Map<string, Pipeline>();

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  get({ key, label, code }: Shader): Pipeline {
    let made = this.#made.get(key);
    if (!made) {
      const module = this.#device.createShaderModule({ code: code(), label });
      const pipeline = this.#device.createComputePipeline({
        label,
        layout: "auto",
        compute: { module, entryPoint: "main" },
      });
      made = { pipeline, layout: pipeline.getBindGroupLayout(0), groups: new Map() };
      this.#made.set(key, made);
    }
    return made;
  }
}
