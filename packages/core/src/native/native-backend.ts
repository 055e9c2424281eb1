/** A back end that is a library (tessera.h), through the addon. */
import type { BackendProbe, DeviceInfo, PromptBackend } from "../backend.js";
import { type Addon, type AddonLibrary, translated } from "./addon.js";
import { deviceInfo, probeState } from "./answers.js";
import { NativeContext, settle } from "./native-context.js";

export class NativeBackend implements PromptBackend {
  readonly name: string;
  readonly version: string;
  /** The file that was loaded. */
  readonly path: string;

  constructor(
    private readonly addon: Addon,
    private readonly library: AddonLibrary,
  ) {
    this.name = library.name;
    this.version = library.version;
    this.path = library.path;
  }

  probe(): BackendProbe {
    try {
      const { state, deviceCount, reason, fix } = this.library.probe();
      const devices = Array.from({ length: deviceCount }, (_, index) => this.#device(index));
      return { state: probeState(state), reason, fix, devices };
    } catch (error) {
      return { state: "error", reason: (error as Error).message, fix: "", devices: [] };
    }
  }

  open(options: { device: number; threads?: number | undefined }): NativeContext {
    return translated(
      () => new NativeContext(this.addon, this.library.open(options.device, options.threads ?? 0, settle)),
    );
  }

  #device(index: number): DeviceInfo {
    try {
      return deviceInfo(this.library.deviceInfo(index));
    } catch (error) {
      const unknown = { index, state: 8, caps: 0, name: "", arch: "", id: "", memoryBytes: 0 };
      return deviceInfo({ ...unknown, computeUnits: 0, sharedBytes: 0, reason: (error as Error).message, fix: "" });
    }
  }
}
