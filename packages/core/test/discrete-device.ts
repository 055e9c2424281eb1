import type {
  AppendDesc,
  AttentionDesc,
  BackendContext,
  BackendGraph,
  BackendMark,
  DecodeDesc,
  DeviceInfo,
  KernelInfo,
  MergeDesc,
  PromptBackend,
  TensorDesc,
} from "../src/backend.js";
import { done } from "../src/done.js";
import { referenceBackend } from "../src/reference/index.js";

/** What a discrete device was asked to do. */
export interface Log {
  readonly calls: string[];
  /** Descriptors of attention and decode, as they came. */
  readonly attentions: AttentionDesc[];
}

/**
 * A back end like a graphics card: memory of its own, a queue, graphs. It refuses host arrays, computes with the
 * reference, and has a variant that doesn't exist there: "fast" is "reference" under another name.
 */
export function discreteBackend(log: Log = { calls: [], attentions: [] }, name = "discrete"): PromptBackend {
  const info = referenceBackend.probe().devices[0]!;
  const device: DeviceInfo = { ...info, name: "Discrete", caps: { async: true, hostMemory: false, graphs: true } };
  return {
    name,
    version: "1",
    probe: () => ({ state: "usable", reason: "", fix: "", devices: [device] }),
    open: (options) => new DiscreteContext(referenceBackend.open(options), device, log),
  };
}

class DiscreteContext implements BackendContext {
  #recording: (() => Promise<void>)[] | undefined;
  #faults: unknown[] = [];
  #marks = 0;

  constructor(
    private readonly inner: BackendContext,
    readonly device: DeviceInfo,
    private readonly log: Log,
  ) {}

  get bytesInUse() {
    return this.inner.bytesInUse;
  }
  alloc(bytes: number) {
    this.log.calls.push("alloc");
    const buffer = this.inner.alloc(bytes);
    // Real memory is full of garbage.
    this.inner.write(buffer, 0, new Uint8Array(bytes).fill(0xff));
    return buffer;
  }
  write(...args: Parameters<BackendContext["write"]>) {
    this.log.calls.push("write");
    this.inner.write(...args);
  }
  async read(...args: Parameters<BackendContext["read"]>) {
    this.log.calls.push("read");
    await this.synchronize();
    return this.inner.read(...args);
  }
  copy(...args: Parameters<NonNullable<BackendContext["copy"]>>) {
    this.log.calls.push("copy");
    this.inner.copy!(...args);
  }
  kernels(): readonly KernelInfo[] {
    const [reference] = this.inner.kernels();
    return [
      reference!,
      { ...reference!, name: "fast" },
      { ...reference!, name: "never", usable: false, reason: "made up" },
      { ...reference!, name: "shown", byNameOnly: true },
    ];
  }
  supports(desc: AttentionDesc) {
    if (desc.kernel === "never") return { supported: false, code: "unsupported", reason: "never is made up" } as const;
    return this.inner.supports(withoutKernel(desc));
  }
  explain(desc: AttentionDesc) {
    return { ...this.inner.explain(withoutKernel(desc)), kernel: desc.kernel ?? "fast" };
  }
  attention(desc: AttentionDesc, signal?: AbortSignal) {
    return this.#enqueue("attention", [desc], () => this.inner.attention(withoutKernel(desc), signal), desc);
  }
  append(desc: AppendDesc) {
    return this.#enqueue("append", [desc, desc.rope ?? {}], () => this.inner.append(desc));
  }
  decode(desc: DecodeDesc) {
    const { attention, append } = desc;
    const parts = [attention, append ?? {}, append?.rope ?? {}];
    return this.#enqueue(
      "decode",
      parts,
      () => this.inner.decode({ ...desc, attention: withoutKernel(attention) }),
      attention,
    );
  }
  merge(desc: MergeDesc) {
    return this.#enqueue("merge", [desc, desc.outs, desc.lses], () => this.inner.merge(desc));
  }
  async synchronize() {
    await this.inner.synchronize();
    const [fault] = this.#faults.splice(0);
    if (fault !== undefined) throw fault;
  }
  beginCapture() {
    this.#recording = [];
  }
  endCapture(): BackendGraph {
    const recorded = this.#recording!;
    this.#recording = undefined;
    return {
      launch: () => {
        for (const work of recorded) void work();
        return done;
      },
      dispose: () => this.log.calls.push("graph disposed"),
    };
  }
  /** A clock that ticks once a mark. */
  mark() {
    return { at: this.#marks++, dispose: () => this.log.calls.push("mark disposed") };
  }
  async elapsed(start: BackendMark, stop: BackendMark) {
    return (stop as { at?: number }).at! - (start as { at?: number }).at!;
  }
  dispose() {
    this.log.calls.push("disposed");
    this.inner.dispose();
  }

  #enqueue(
    name: string,
    parts: readonly object[],
    work: () => Promise<void>,
    attention?: AttentionDesc,
  ): Promise<void> {
    this.log.calls.push(name);
    if (attention) this.log.attentions.push(attention);
    for (const part of parts) {
      for (const [member, value] of Object.entries(part) as [string, TensorDesc | undefined][]) {
        if (value?.strides && ArrayBuffer.isView(value.data))
          return Promise.reject(new Error(`${member} is a host array`));
      }
    }
    if (this.#recording) {
      this.#recording.push(work);
      return done;
    }
    // Done when enqueued; what goes wrong later waits for synchronize.
    work().catch((error: unknown) => this.#faults.push(error));
    return done;
  }
}

function withoutKernel(desc: AttentionDesc): AttentionDesc {
  return { ...desc, kernel: undefined, numSplits: undefined };
}
