/** Compiled shaders of a device, each made when it is first needed. */
export class Pipelines {
  readonly #device: GPUDevice;
  readonly #made = new Map<string, GPUComputePipeline>();

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  get(code: string, label: string): GPUComputePipeline {
    let pipeline = this.#made.get(code);
    if (!pipeline) {
      const module = this.#device.createShaderModule({ code, label });
      pipeline = this.#device.createComputePipeline({ label, layout: "auto", compute: { module, entryPoint: "main" } });
      this.#made.set(code, pipeline);
    }
    return pipeline;
  }
}
