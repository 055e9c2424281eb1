/**
 * The same tensors in different memory. Inputs sit in buffers whose gaps are NaN, outputs in buffers whose gaps are a
 * canary pattern; both are looked at again after the call.
 */
import type { BackendContext, DType } from "@tessera/core";
import { bytesFor, type HostTensor } from "./codec.js";
import { sameBytes } from "./compare.js";
import type { BackendBuffer, TensorDesc } from "./contract.js";

export const layouts = ["contiguous", "transposed", "sliced", "interleaved", "expanded"] as const;
export type LayoutName = (typeof layouts)[number];

const canary = 0xa5;
const unwritten = 0xff; // NaN: an element that the kernel leaves out shows

/** A buffer with tensors in it, in host memory and, where the device needs it, in the device's. */
class Arena {
  readonly host: Uint8Array;
  readonly before: Uint8Array;
  #device: BackendBuffer | undefined;

  constructor(bytes: number, fill: number) {
    this.host = new Uint8Array(bytes).fill(fill);
    this.before = this.host;
  }

  /** Device memory with the same bytes, or the host array itself. */
  place(context: BackendContext, onDevice: boolean): BackendBuffer | Uint8Array {
    (this as { before: Uint8Array }).before = this.host.slice();
    if (!onDevice) return this.host;
    this.#device = context.alloc(this.host.length);
    context.write(this.#device, 0, this.host);
    return this.#device;
  }

  async fetch(context: BackendContext): Promise<Uint8Array> {
    if (this.#device) await context.read(this.#device, 0, this.host);
    return this.host;
  }

  dispose(): void {
    this.#device?.dispose();
  }
}

interface Slot {
  readonly arena: Arena;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  /** Elements before element 0. */
  readonly base: number;
}

const isBlock = (dtype: DType) => dtype === "q8_0" || dtype === "q4_0";
const product = (xs: readonly number[]) => xs.reduce((a, b) => a * b, 1);

export function contiguousStrides(shape: readonly number[]): number[] {
  const strides = shape.map(() => 1);
  for (let i = shape.length - 2; i >= 0; i--)
    strides[i] = (strides[i + 1] as number) * Math.max(1, shape[i + 1] as number);
  return strides;
}

/** Strides in which the dimensions lie in memory in the given order, outermost first; `pad` elements after each one. */
function orderedStrides(shape: readonly number[], order: readonly number[], pad: readonly number[] = []): number[] {
  const strides = shape.map(() => 1);
  let step = 1;
  for (const dim of [...order].reverse()) {
    strides[dim] = step;
    step = step * Math.max(1, shape[dim] as number) + (pad[dim] ?? 0);
  }
  return strides;
}

/** Elements from element 0 to behind the last one. */
function extent(shape: readonly number[], strides: readonly number[]): number {
  if (product(shape) === 0) return 0;
  return shape.reduce((at, n, dim) => at + (n - 1) * (strides[dim] as number), 1);
}

/** Calls back with the element offset of each row (last dimension), strided and contiguous. */
function eachRow(shape: readonly number[], strides: readonly number[], visit: (at: number, row: number) => void): void {
  const lead = shape.slice(0, -1);
  const rows = product(lead);
  if (rows * (shape.at(-1) as number) === 0) return;
  const index = lead.map(() => 0);
  let at = 0;
  for (let row = 0; row < rows; row++) {
    visit(at, row);
    for (let dim = lead.length - 1; dim >= 0; dim--) {
      at += strides[dim] as number;
      index[dim] = (index[dim] as number) + 1;
      if ((index[dim] as number) < (lead[dim] as number)) break;
      at -= (strides[dim] as number) * (lead[dim] as number);
      index[dim] = 0;
    }
  }
}

function scatter(slot: Slot, bytes: Uint8Array): void {
  const rowBytes = bytesFor(slot.dtype, slot.shape.at(-1) as number);
  const base = bytesFor(slot.dtype, slot.base);
  const unit = bytesFor(slot.dtype, 32) / 32;
  eachRow(slot.shape, slot.strides, (at, row) => {
    slot.arena.host.set(bytes.subarray(row * rowBytes, (row + 1) * rowBytes), base + at * unit);
  });
}

function gather(slot: Slot, memory: Uint8Array): Uint8Array {
  const rowBytes = bytesFor(slot.dtype, slot.shape.at(-1) as number);
  const base = bytesFor(slot.dtype, slot.base);
  const unit = bytesFor(slot.dtype, 32) / 32;
  const out = new Uint8Array(bytesFor(slot.dtype, product(slot.shape)));
  eachRow(slot.shape, slot.strides, (at, row) => {
    out.set(memory.subarray(base + at * unit, base + at * unit + rowBytes), row * rowBytes);
  });
  return out;
}

/** Strides and base of a tensor in a layout. `rowAxis` is the dimension of positions, the one before heads. */
function shapeOf(
  tensor: { dtype: DType; shape: readonly number[] },
  layout: LayoutName,
): { strides: number[]; base: number } {
  const { shape, dtype } = tensor;
  const block = isBlock(dtype) ? 32 : 1;
  if (layout === "transposed" && shape.length >= 3) {
    // [..., S, H, D] in the memory order [..., H, S, D].
    const order = shape.map((_, i) => i);
    const head = shape.length - 2;
    order[head] = head - 1;
    order[head - 1] = head;
    return { strides: orderedStrides(shape, order), base: 64 };
  }
  if (layout === "sliced") {
    // Every second row of a buffer with an odd row length, from an odd offset: nothing is 16-byte aligned.
    const odd = block === 1 ? 3 : 32;
    const pad = shape.map((_, dim) => (dim === shape.length - 1 ? odd : 0));
    const strides = orderedStrides(
      shape,
      shape.map((_, i) => i),
      pad,
    );
    if (shape.length >= 3)
      for (let dim = 0; dim <= shape.length - 3; dim++) strides[dim] = (strides[dim] as number) * 2;
    return { strides, base: block };
  }
  return { strides: contiguousStrides(shape), base: 64 };
}

/** Stride 0 wherever all slices of a dimension are equal, and for dimensions of extent 1. Null if there's none. */
function expandedStrides(tensor: HostTensor): { shape: number[]; strides: number[] } | null {
  const { shape, values, bytes } = tensor;
  if (product(shape) === 0) return null;
  const equal = shape.map((n, dim) => {
    if (dim === shape.length - 1 || n === 1) return false;
    const inner = (bytes.length / product(shape)) * product(shape.slice(dim + 1));
    const outer = product(shape.slice(0, dim));
    for (let o = 0; o < outer; o++) {
      const slice = (i: number) => bytes.subarray((o * n + i) * inner, (o * n + i + 1) * inner);
      for (let i = 1; i < n; i++) {
        if (!sameBytes(slice(0), slice(i))) return false;
      }
    }
    return values.length > 0;
  });
  if (!equal.includes(true)) return null;
  const kept = shape.map((n, dim) => (equal[dim] ? 1 : n));
  const strides = contiguousStrides(kept).map((stride, dim) => (equal[dim] ? 0 : stride));
  return { shape: kept, strides };
}

export interface Inputs {
  readonly q?: HostTensor | undefined;
  readonly k?: HostTensor | undefined;
  readonly v?: HostTensor | undefined;
  readonly bias?: HostTensor | undefined;
  readonly mask?: HostTensor | undefined;
}

/** The tensors of one call, placed in memory. */
export class Placement {
  readonly #context: BackendContext;
  readonly #onDevice: boolean;
  readonly #layout: LayoutName;
  readonly #inputs: Arena[] = [];
  readonly #outputs = new Map<string, Slot>();
  readonly #written: Arena[] = [];
  readonly #sparseBuffers: BackendBuffer[] = [];
  readonly #sparseOutputs = new Map<string, TensorDesc>();

  constructor(context: BackendContext, layout: LayoutName) {
    this.#context = context;
    this.#layout = layout;
    // The contiguous layout goes through the device's own buffers everywhere, the others through host memory if they can.
    this.#onDevice = layout === "contiguous" || !context.device.caps.hostMemory;
  }

  /** Null if the layout means nothing for these tensors (no equal slices to expand, no common type to interleave). */
  tensors<T extends Inputs>(inputs: T): { [K in keyof T]: TensorDesc } | null {
    const out: Record<string, TensorDesc> = {};
    const entries = Object.entries(inputs).filter((entry): entry is [string, HostTensor] => entry[1] !== undefined);
    if (this.#layout === "interleaved") {
      const together = this.#interleave(inputs, out);
      if (!together) return null;
    }
    let expanded = 0;
    for (const [name, tensor] of entries) {
      if (out[name]) continue;
      const repeat = this.#layout === "expanded" ? expandedStrides(tensor) : null;
      if (repeat) {
        expanded++;
        out[name] = this.#expanded(tensor, repeat);
      } else {
        const { strides, base } = shapeOf(tensor, this.#layout);
        out[name] = this.#place(tensor, strides, base);
      }
    }
    if (this.#layout === "expanded" && expanded === 0) return null;
    return out as { [K in keyof T]: TensorDesc };
  }

  /** A page table: a slice of a wider one in the sliced layout. */
  table(tensor: HostTensor): TensorDesc {
    if (this.#layout !== "sliced") return this.plain(tensor);
    return this.#place(tensor, [(tensor.shape[1] as number) + 3, 1], 5);
  }

  /** A small contiguous tensor (lengths, slopes): always plain. */
  plain(tensor: HostTensor): TensorDesc {
    return this.#place(tensor, contiguousStrides(tensor.shape), 0);
  }

  /** Somewhere to write, poisoned, with canaries in every gap. `initial` is kept (a cache that grows). */
  output(name: string, dtype: DType, shape: readonly number[], initial?: Uint8Array): TensorDesc {
    const odd = this.#layout === "contiguous" ? "contiguous" : this.#layout === "transposed" ? "transposed" : "sliced";
    let { strides, base } = shapeOf({ dtype, shape }, odd);
    // [B, H, S]: the positions are last and stay contiguous, batch and heads change places.
    if (name === "lse" && this.#layout === "transposed" && shape.length === 3) {
      strides = orderedStrides(shape, [1, 0, 2]);
      base = 16;
    }
    const arena = new Arena(bytesFor(dtype, base + extent(shape, strides) + (isBlock(dtype) ? 64 : 67)), canary);
    const slot: Slot = { arena, dtype, shape, strides, base };
    scatter(slot, initial ?? new Uint8Array(bytesFor(dtype, product(shape))).fill(unwritten));
    this.#outputs.set(name, slot);
    this.#written.push(arena);
    return this.#describe(slot, arena.place(this.#context, this.#onDevice));
  }

  /** What an output holds, contiguous. Throws if a byte around it changed. */
  async result(name: string): Promise<Uint8Array> {
    const sparse = this.#sparseOutputs.get(name);
    if (sparse) return this.#readSlices(sparse);
    const slot = this.#outputs.get(name) as Slot;
    const memory = await slot.arena.fetch(this.#context);
    const bytes = gather(slot, memory);
    const blank = new Uint8Array(bytes.length).fill(canary);
    const copy: Slot = { ...slot, arena: { host: memory.slice() } as Arena };
    scatter(copy, blank);
    const changed = copy.arena.host.findIndex((byte) => byte !== canary);
    if (changed >= 0) throw new Error(`canary: byte ${changed} of ${memory.length} around ${name} was written`);
    return bytes;
  }

  /** Throws if an input changed. */
  async inputsIntact(): Promise<void> {
    for (const arena of this.#inputs) {
      const now = await arena.fetch(this.#context);
      if (!sameBytes(now, arena.before)) throw new Error("input: a byte of an input was written");
    }
  }

  dispose(): void {
    for (const arena of this.#inputs) arena.dispose();
    for (const arena of this.#written) arena.dispose();
    for (const buffer of this.#sparseBuffers) buffer.dispose();
  }

  #describe(slot: Slot, data: BackendBuffer | Uint8Array): TensorDesc {
    const { dtype, shape, strides, base } = slot;
    return { data, byteOffset: bytesFor(dtype, base), dtype, shape, strides };
  }

  #place(tensor: HostTensor, strides: readonly number[], base: number): TensorDesc {
    const { dtype, shape } = tensor;
    const arena = new Arena(
      Math.max(1, bytesFor(dtype, base + extent(shape, strides) + (isBlock(dtype) ? 32 : 0))),
      0xff,
    );
    const slot: Slot = { arena, dtype, shape, strides, base };
    scatter(slot, tensor.bytes);
    this.#inputs.push(arena);
    return this.#describe(slot, arena.place(this.#context, this.#onDevice));
  }

  /** Slices of the first dimension `stride` elements apart, in device memory that is otherwise untouched. */
  spread(tensor: HostTensor, stride: number): TensorDesc {
    const desc = this.#sparse(tensor.dtype, tensor.shape, stride);
    this.#writeSlices(desc, tensor.bytes);
    return desc;
  }

  spreadOutput(name: string, dtype: DType, shape: readonly number[], stride: number): TensorDesc {
    const desc = this.#sparse(dtype, shape, stride);
    this.#writeSlices(desc, new Uint8Array(bytesFor(dtype, product(shape))).fill(unwritten));
    this.#sparseOutputs.set(name, desc);
    return desc;
  }

  #sparse(dtype: DType, shape: readonly number[], stride: number): TensorDesc {
    const strides = contiguousStrides(shape);
    strides[0] = stride;
    const data = this.#context.alloc(bytesFor(dtype, extent(shape, strides)));
    this.#sparseBuffers.push(data);
    return { data, byteOffset: 0, dtype, shape, strides };
  }

  #writeSlices({ data, dtype, shape, strides }: TensorDesc, bytes: Uint8Array): void {
    const size = bytesFor(dtype, product(shape.slice(1)));
    for (let i = 0; i < (shape[0] as number); i++) {
      const at = bytesFor(dtype, (strides[0] as number) * i);
      this.#context.write(data as BackendBuffer, at, bytes.subarray(i * size, (i + 1) * size));
    }
  }

  async #readSlices({ data, dtype, shape, strides }: TensorDesc): Promise<Uint8Array> {
    const size = bytesFor(dtype, product(shape.slice(1)));
    const out = new Uint8Array(size * (shape[0] as number));
    for (let i = 0; i < (shape[0] as number); i++) {
      const at = bytesFor(dtype, (strides[0] as number) * i);
      await this.#context.read(data as BackendBuffer, at, out.subarray(i * size, (i + 1) * size));
    }
    return out;
  }

  #expanded(tensor: HostTensor, repeat: { shape: number[]; strides: number[] }): TensorDesc {
    const arena = new Arena(bytesFor(tensor.dtype, product(repeat.shape)), 0xff);
    const slot: Slot = {
      arena,
      dtype: tensor.dtype,
      shape: repeat.shape,
      strides: contiguousStrides(repeat.shape),
      base: 0,
    };
    // Rows of the small tensor, out of the full one.
    const full = contiguousStrides(tensor.shape);
    const unit = tensor.bytes.length / product(tensor.shape);
    const rowBytes = unit * (tensor.shape.at(-1) as number);
    const packed = new Uint8Array(unit * product(repeat.shape));
    eachRow(repeat.shape, full, (at, row) => {
      packed.set(tensor.bytes.subarray(at * unit, at * unit + rowBytes), row * rowBytes);
    });
    scatter(slot, packed);
    this.#inputs.push(arena);
    const data = arena.place(this.#context, this.#onDevice);
    return { data, byteOffset: 0, dtype: tensor.dtype, shape: tensor.shape, strides: repeat.strides };
  }

  /** q, k and v (or k and v) as slices of one buffer: [.., S, Hq + 2 Hkv, D]. */
  #interleave({ q, k, v }: Inputs, out: Record<string, TensorDesc>): boolean {
    if (!k || !v || k.dtype !== v.dtype) return false;
    const rows = (t: HostTensor) => product(t.shape.slice(0, -2));
    if (rows(k) === 0) return false;
    const sameRows = q && q.dtype === k.dtype && q.shape.slice(0, -2).join() === k.shape.slice(0, -2).join();
    const parts: [string, HostTensor][] = sameRows
      ? [
          ["q", q],
          ["k", k],
          ["v", v],
        ]
      : [
          ["k", k],
          ["v", v],
        ];
    const width = (t: HostTensor) => (t.shape.at(-1) as number) * (t.shape.at(-2) as number);
    const total = parts.reduce((at, [, t]) => at + width(t), 0);
    const arena = new Arena(bytesFor(k.dtype, rows(k) * total), 0xff);
    let base = 0;
    const slots: [string, Slot][] = parts.map(([name, t]) => {
      const strides = contiguousStrides(t.shape);
      for (let dim = t.shape.length - 3; dim >= 0; dim--) {
        strides[dim] = dim === t.shape.length - 3 ? total : (strides[dim + 1] as number) * (t.shape[dim + 1] as number);
      }
      const slot: Slot = { arena, dtype: t.dtype, shape: t.shape, strides, base };
      scatter(slot, t.bytes);
      base += width(t);
      return [name, slot];
    });
    this.#inputs.push(arena);
    const data = arena.place(this.#context, this.#onDevice);
    for (const [name, slot] of slots) out[name] = this.#describe(slot, data);
    return true;
  }
}
