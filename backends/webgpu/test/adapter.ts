/** WebGPU of the adapter that this process was started for: run.mjs. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Limits } from "../src/capabilities.js";
import { webgpu } from "../src/index.js";

export const adapter = process.env.TESSERA_WEBGPU_ADAPTER ?? "";
export const full = process.env.TESSERA_WEBGPU_FULL === "1";
/** "1/4": the first of every four cases of the whole table. */
export const slice = process.env.TESSERA_WEBGPU_SLICE ?? "";
/** What CI has time for. */
export const part = process.env.TESSERA_WEBGPU_PART === "1";

const flags = ["enable-dawn-features=allow_unsafe_apis,disable_workgroup_init,vulkan_enable_f16_on_nvidia"];

let made: Promise<GPU> | undefined;

async function dawn(): Promise<GPU> {
  const module = pathToFileURL(join(import.meta.dirname, "dawn/node_modules/webgpu/index.js")).href;
  const { create, globals } = (await import(module)) as { create: (flags: string[]) => GPU; globals: object };
  Object.assign(globalThis, globals);
  return create(flags);
}

/** @param opened is told of every device that the back end asks for */
export async function backendOfAdapter(limits?: Limits, opened?: (device: GPUDevice) => void) {
  made ??= dawn();
  const gpu = await made;
  if (!opened) return webgpu({ gpu, limits });
  const watched = {
    async requestAdapter(options?: GPURequestAdapterOptions) {
      const found = await gpu.requestAdapter(options);
      if (!found) return null;
      const { features, limits: its, info } = found;
      const requestDevice = async (wanted: GPUDeviceDescriptor) => {
        const device = await found.requestDevice(wanted);
        opened(device);
        return device;
      };
      return { features, limits: its, info, requestDevice };
    },
  };
  return webgpu({ gpu: watched, limits });
}
