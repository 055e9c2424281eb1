/** The back end: adapters as devices, with WebGPU given by the caller, by the page, or in Node by the package "webgpu". */
import {
  type Backend,
  type BackendProbe,
  type DeviceInfo,
  type OpenOptions,
  type ProbeState,
  TesseraError,
  version,
} from "@tessera/core/web";
import { capabilitiesOf, type Limits, matrixFeatures } from "./capabilities.js";
import { WebGpuContext } from "./context.js";

export interface WebGpuOptions {
  /** `navigator.gpu`, or what `create` of the package "webgpu" gives. Default: the page's, else that package's. */
  readonly gpu?: GpuLike | undefined;
  /** Which adapter to ask for where there are several. */
  readonly powerPreference?: "low-power" | "high-performance" | undefined;
  /** @internal Narrower limits than the device's, for tests. */
  readonly limits?: Limits | undefined;
}

/** As much of `GPU` as is needed; a type of our own, so that users need no other types. */
export interface GpuLike {
  // biome-ignore lint/suspicious/noExplicitAny: GPU's own types differ between the packages that declare it
  requestAdapter(options?: any): Promise<any>;
}

const tested = "0.6.2";

/**
 * Flags for Dawn. Kernels read no workgroup memory that they haven't written, and software adapters take seconds to compile
 * its clearing. Dawn keeps f16, and with it subgroup matrices, from NVIDIA's Vulkan unless it is asked for.
 */
const dawnFeatures = ["allow_unsafe_apis", "disable_workgroup_init", "vulkan_enable_f16_on_nvidia"];

/** @throws TesseraError with what is missing */
async function findGpu({ gpu }: WebGpuOptions): Promise<GPU> {
  if (gpu) return gpu as GPU;
  const page = (globalThis as { navigator?: { gpu?: GPU } }).navigator?.gpu;
  if (page) return page;
  if (typeof process === "undefined" || !process.versions?.node) {
    throw new TesseraError("backend-missing", "this browser has no WebGPU (navigator.gpu)");
  }
  const specifier = "webgpu"; // a variable: bundlers must not look for it
  const { create } = (await import(specifier)) as { create: (flags: string[]) => GPU };
  return create([`enable-dawn-features=${dawnFeatures.join(",")}`]);
}

const noDevice = (state: ProbeState, reason: string, fix: string): BackendProbe => ({
  state,
  reason,
  fix,
  devices: [],
});

function describe(adapter: GPUAdapter): DeviceInfo {
  const { info, limits } = adapter;
  const emulated =
    info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe/i.test(`${info.architecture} ${info.description}`);
  return {
    index: 0,
    name: info.description || info.device || info.architecture || info.vendor || "WebGPU adapter",
    arch: [info.vendor, info.architecture].filter(Boolean).join(" ") || "webgpu",
    id: "",
    // WebGPU doesn't tell how much there is; this is the most that one buffer may have.
    memoryBytes: limits.maxBufferSize,
    computeUnits: 0,
    sharedBytes: limits.maxComputeWorkgroupStorageSize,
    state: "usable",
    reason: "",
    fix: "",
    caps: { async: true, hostMemory: false, graphs: false, emulated },
  };
}

class WebGpuBackend implements Backend {
  readonly name = "webgpu";
  readonly version = version;

  constructor(private readonly options: WebGpuOptions) {}

  async probe(): Promise<BackendProbe> {
    let gpu: GPU;
    try {
      gpu = await findGpu(this.options);
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      if (code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND")
        return noDevice(
          "package-missing",
          `the package "webgpu" is not installed`,
          `run \`npm install webgpu@${tested}\``,
        );
      return noDevice(code === "backend-missing" ? "runtime-missing" : "load-failed", message, "");
    }
    try {
      const adapter = await this.#adapter(gpu);
      if (adapter) return { state: "usable", reason: "", fix: "", devices: [describe(adapter)] };
      return noDevice(
        "no-device",
        "WebGPU offers no adapter",
        "install a Vulkan driver of Mesa 23 or newer; VK_ICD_FILENAMES names one that isn't found",
      );
    } catch (error) {
      return noDevice("error", (error as Error).message, "");
    }
  }

  async open({ device: index }: OpenOptions): Promise<WebGpuContext> {
    if (index !== 0) throw new TesseraError("device-unavailable", `device is ${index}; allowed for webgpu: 0`);
    const adapter = await this.#adapter(await findGpu(this.options));
    if (!adapter) throw new TesseraError("device-unavailable", "WebGPU offers no adapter");
    const { limits, features, info } = adapter;
    const device = await adapter.requestDevice({
      requiredFeatures: wantedFeatures.filter((feature) => features.has(feature)) as GPUFeatureName[],
      requiredLimits: Object.fromEntries(wantedLimits.map((name) => [name, limits[name]])) as Record<string, number>,
    });
    const described = describe(adapter);
    const can = capabilitiesOf(device, info, described.caps.emulated === true, this.options.limits ?? {});
    return new WebGpuContext(device, described, can);
  }

  #adapter(gpu: GPU): Promise<GPUAdapter | null> {
    const { powerPreference } = this.options;
    return gpu.requestAdapter(powerPreference && { powerPreference });
  }
}

const wantedFeatures = ["subgroups", ...matrixFeatures];
const wantedLimits = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
] as const;

/**
 * The WebGPU back end, for `openEngine({ backend: webgpu({ gpu: navigator.gpu }) })`.
 *
 * @param options where WebGPU comes from; nothing is asked of it before the engine is opened
 */
export const webgpu = (options: WebGpuOptions = {}): Backend => new WebGpuBackend(options);
