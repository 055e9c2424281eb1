/**
 * Tessera's WebGPU back end.
 *
 * @packageDocumentation
 */
import { webgpu } from "./backend.js";

export { type GpuLike, type WebGpuOptions, webgpu } from "./backend.js";

/** What `openEngine({ backend: "webgpu" })` of @tessera/core loads. */
export const backend = webgpu();
