/** A context of a native back end. What is slow happens off the event loop, in the addon. */
import type {
  AppendDesc,
  AttentionDesc,
  BackendBuffer,
  BackendContext,
  BackendGraph,
  BackendMark,
  DecodeDesc,
  DeviceInfo,
  Explanation,
  KernelInfo,
  MergeDesc,
  Support,
} from "../backend.js";
import { TesseraError, type TesseraErrorCode } from "../error.js";
import { type Addon, type AddonContext, type AddonGraph, toTesseraError, translated } from "./addon.js";
import { deviceInfo, explanation, kernelInfo } from "./answers.js";
import { NativeBuffer } from "./native-buffer.js";
import { Packer, requireFixedLength } from "./pack.js";
import { outcome } from "./pending.js";

export { settle } from "./pending.js";

const packers = new WeakMap<Addon, Packer>();

/** One for all contexts of an addon: a call is packed and handed over with nothing in between. */
function packerOf(addon: Addon): Packer {
  let packer = packers.get(addon);
  if (packer === undefined) {
    packer = new Packer(addon, (data): data is NativeBuffer => data instanceof NativeBuffer);
    packers.set(addon, packer);
  }
  return packer;
}

export class NativeContext implements BackendContext {
  readonly device: DeviceInfo;
  readonly beginCapture?: () => void;
  readonly endCapture?: () => BackendGraph;
  readonly mark?: () => BackendMark;
  readonly elapsed?: (start: BackendMark, stop: BackendMark) => Promise<number>;
  readonly #native: AddonContext;
  readonly #packer: Packer;

  constructor(addon: Addon, native: AddonContext) {
    this.#native = native;
    this.#packer = packerOf(addon);
    this.device = deviceInfo(native.device);
    if (this.device.caps.async) {
      this.mark = () => translated(() => new NativeMark(native));
      this.elapsed = (start, stop) => elapsed(native, start, stop);
    }
    if (this.device.caps.graphs) {
      this.beginCapture = () => translated(() => native.beginCapture());
      this.endCapture = () => translated(() => new NativeGraph(native.endCapture(), native));
    }
  }

  get bytesInUse(): number {
    return this.#native.bytesInUse;
  }

  alloc(bytes: number): NativeBuffer {
    return translated(() => new NativeBuffer(this, this.#native, this.#native.alloc(bytes), bytes));
  }

  write(buffer: BackendBuffer, byteOffset: number, source: Uint8Array): void {
    translated(() => this.#native.write(this.#id(buffer), byteOffset, source));
  }

  /** Every byte of a part of a buffer becomes `value`. Ordered with the work before and after it. */
  fill(buffer: BackendBuffer, byteOffset: number, value: number, bytes: number): void {
    translated(() => this.#native.fill(this.#id(buffer), byteOffset, value, bytes));
  }

  read(buffer: BackendBuffer, byteOffset: number, target: Uint8Array): Promise<void> {
    try {
      requireFixedLength("target", target);
      return outcome(this.#native.read(this.#id(buffer), byteOffset, target), target, this.#native);
    } catch (thrown) {
      return Promise.reject(toTesseraError(thrown));
    }
  }

  copy(from: BackendBuffer, fromOffset: number, to: BackendBuffer, toOffset: number, bytes: number): void {
    translated(() => this.#native.copy(this.#id(from), fromOffset, this.#id(to), toOffset, bytes));
  }

  kernels(): readonly KernelInfo[] {
    return translated(() => this.#native.kernels().map(kernelInfo));
  }

  supports(desc: AttentionDesc): Support {
    return translated(() => {
      const packer = this.#packer;
      packer.attention(desc, this);
      const views = packer.takeViews();
      const no = this.#native.supports(packer.count, views, desc.kernel);
      if (no === undefined) return { supported: true };
      const [code, reason] = no as [TesseraErrorCode & ("unsupported" | "invalid-argument"), string];
      return { supported: false, code, reason };
    });
  }

  explain(desc: AttentionDesc): Explanation {
    return translated(() => {
      const packer = this.#packer;
      packer.attention(desc, this);
      const views = packer.takeViews();
      return explanation(this.#native.explain(packer.count, views, desc.kernel));
    });
  }

  attention(desc: AttentionDesc, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    try {
      const packer = this.#packer;
      packer.attention(desc, this);
      const views = packer.takeViews();
      const id = this.#native.attention(packer.count, views, desc.kernel);
      return outcome(id, views, this.#native, signal);
    } catch (thrown) {
      return Promise.reject(toTesseraError(thrown));
    }
  }

  append(desc: AppendDesc): Promise<void> {
    try {
      const packer = this.#packer;
      packer.append(desc, this);
      const views = packer.takeViews();
      return outcome(this.#native.append(packer.count, views), views, this.#native);
    } catch (thrown) {
      return Promise.reject(toTesseraError(thrown));
    }
  }

  decode(desc: DecodeDesc, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    try {
      const packer = this.#packer;
      packer.decode(desc, this);
      const views = packer.takeViews();
      const id = this.#native.decode(packer.count, views, desc.attention.kernel);
      return outcome(id, views, this.#native, signal);
    } catch (thrown) {
      return Promise.reject(toTesseraError(thrown));
    }
  }

  merge(desc: MergeDesc): Promise<void> {
    try {
      const packer = this.#packer;
      packer.merge(desc, this);
      const views = packer.takeViews();
      return outcome(this.#native.merge(packer.count, views), views, this.#native);
    } catch (thrown) {
      return Promise.reject(toTesseraError(thrown));
    }
  }

  synchronize(): Promise<void> {
    try {
      return outcome(this.#native.synchronize(), undefined, this.#native);
    } catch (thrown) {
      return Promise.reject(toTesseraError(thrown));
    }
  }

  dispose(): void {
    this.#native.dispose();
  }

  #id(buffer: BackendBuffer): number {
    if (buffer instanceof NativeBuffer && buffer.owner === this) return buffer.id;
    throw new TesseraError("invalid-argument", "buffer: expected a buffer of this context");
  }
}

class NativeMark implements BackendMark {
  readonly id: number;

  constructor(readonly native: AddonContext) {
    this.id = native.mark();
  }

  dispose(): void {
    try {
      this.native.forget(this.id);
    } catch {
      // The context is disposed, and its marks with it.
    }
  }
}

async function elapsed(native: AddonContext, start: BackendMark, stop: BackendMark): Promise<number> {
  const mine = (mark: BackendMark): mark is NativeMark => mark instanceof NativeMark && mark.native === native;
  if (!mine(start) || !mine(stop))
    throw new TesseraError("invalid-argument", "start and stop: expected marks of this context");
  const target = new Float64Array(1);
  await outcome(
    translated(() => native.elapsed(start.id, stop.id, target)),
    target,
    native,
  );
  return target[0]!;
}

class NativeGraph implements BackendGraph {
  constructor(
    private readonly native: AddonGraph,
    private readonly context: AddonContext,
  ) {}

  launch(): Promise<void> {
    try {
      return outcome(this.native.launch(), undefined, this.context);
    } catch (thrown) {
      return Promise.reject(toTesseraError(thrown));
    }
  }

  dispose(): void {
    this.native.dispose();
  }
}
