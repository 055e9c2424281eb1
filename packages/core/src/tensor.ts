/** Memory of an engine's device with a type, a shape and strides. */
import type { TensorDesc } from "./backend.js";
import { elementsOf, type HostArray, readElements } from "./codec.js";
import { bytesOf, type DType, dtypes } from "./dtype.js";
import { bytesOfView, type EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { describe, dtypeOf, type HostData } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { boolBytes, hostView } from "./operands.js";
import { checkNames } from "./option-names.js";
import type { Storage } from "./storage.js";
import {
  checkBlocks,
  checkReach,
  checkShape,
  checkStrides,
  contiguousStrides,
  countOf,
  extentOf,
  isContiguous,
  shapeText,
} from "./strides.js";
import { tensorBrand } from "./tensor-brand.js";
import { expanded, type Geometry, reshaped, sliced, transposed } from "./tensor-views.js";

/** The typed array that `read()` gives. */
export interface ReadArray extends HostArray {
  bool: Uint8Array;
  i32: Int32Array;
}

/** Options of `engine.tensor`. */
export interface TensorOptions<D extends DType = DType> {
  /** Extents, outermost first; 1 to 4 of them. */
  readonly shape: readonly number[];
  /** Required for Uint16Array ("f16", "bf16") and Uint8Array ("f8_e4m3", "q8_0", "q4_0", "bool"). */
  readonly dtype?: D | undefined;
  /** In elements; default: contiguous. The last must be 1. */
  readonly strides?: readonly number[] | undefined;
}

// Frees what nobody disposed. A backstop: garbage collection may come late or never.
const forgotten = new FinalizationRegistry<Storage>((storage) => storage.release());

/**
 * A strided view of device memory. Views made of a tensor share its memory, which is freed when all of them are
 * disposed (`using` works too). A tensor belongs to the engine that made it.
 */
export class Tensor<D extends DType = DType> {
  /** @internal */
  readonly owner: EngineCore;
  /** @internal */
  readonly desc: TensorDesc;
  readonly dtype: D;
  /** Extents, outermost first. */
  readonly shape: readonly number[];
  /** In elements. */
  readonly strides: readonly number[];
  readonly #storage: Storage;
  #disposed = false;

  /** @internal Takes over one hold on `storage`. Users call `engine.tensor`. */
  constructor(
    owner: EngineCore,
    storage: Storage,
    dtype: D,
    byteOffset: number,
    shape: readonly number[],
    strides: readonly number[],
  ) {
    this.owner = owner;
    this.#storage = storage;
    this.dtype = dtype;
    this.shape = shape;
    this.strides = strides;
    this.desc = { data: storage.buffer, byteOffset, dtype, shape, strides };
    forgotten.register(this, storage, this);
  }

  /** Holds for tensors of another copy of this package, too. */
  static [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[tensorBrand] === true;
  }

  /** Elements. */
  get size(): number {
    return countOf(this.shape);
  }

  /** Bytes of those elements, without gaps. */
  get bytes(): number {
    return bytesOf(this.dtype, this.size);
  }

  get disposed(): boolean {
    return this.#disposed;
  }

  /**
   * The elements in order, on the host: Float32Array for f32, Uint16Array for f16 and bf16, Int32Array for i32,
   * Uint8Array for the rest. Waits for the work before it; its faults surface here.
   */
  async read(): Promise<ReadArray[D]> {
    const { dtype, shape, strides } = this;
    this.#alive();
    const dense = isContiguous(shape, strides);
    const bytes = dense ? this.bytes : bytesOf(dtype, roundToBlocks(dtype, extentOf(shape, strides)));
    const memory = new Uint8Array(bytes);
    if (bytes > 0) await this.owner.context.read(this.#storage.buffer, this.desc.byteOffset, memory);
    const elements = elementsOf(dtype, memory.buffer, 0, bytes);
    return (dense ? elements : gathered(dtype, elements, shape, strides)) as ReadArray[D];
  }

  /** The elements in order as float32, whatever the type (bool: 0 and 1). */
  async readFloat32(): Promise<Float32Array> {
    const elements = await this.read();
    if (elements instanceof Float32Array) return elements;
    const values = new Float32Array(this.size);
    readElements(this.dtype, elements, 0, values.length, values, 0);
    return values;
  }

  /**
   * Replaces the elements. Ordered with the calls before and after it; `data` may change once this returns.
   *
   * @param data as many elements, of the tensor's type, in order
   * @throws TesseraError `invalid-argument`: another type or size, or a view that isn't contiguous
   */
  write(data: ReadArray[D] | HostData): void {
    this.#alive();
    dtypeOf(data, this.dtype, "write");
    if (!isContiguous(this.shape, this.strides))
      throw invalid(`write to strides ${shapeText(this.strides)}; allowed: a contiguous tensor`);
    const view = hostView(data as ArrayBufferView);
    if (view.byteLength !== this.bytes)
      throw invalid(`write of ${view.byteLength} bytes; allowed: ${this.bytes}, those of ${shapeText(this.shape)}`);
    if (view.byteLength > 0) this.owner.context.write(this.#storage.buffer, this.desc.byteOffset, bytesOfView(view));
  }

  /**
   * Replaces the elements by those of another tensor of this engine, on the device. Ordered with the calls before and
   * after it, like `write`.
   *
   * @param source as many elements, of this type; both contiguous, and no shared memory
   * @throws TesseraError `invalid-argument`; `unsupported` if the back end can't copy
   */
  copyFrom(source: Tensor<D>): void {
    this.#alive();
    if (!(source instanceof Tensor) || source.owner !== this.owner) throw invalid("source is no tensor of this engine");
    source.#alive();
    for (const [name, { shape, strides }] of [
      ["source", source],
      ["this tensor", this],
    ] as const) {
      if (!isContiguous(shape, strides))
        throw invalid(`${name} has strides ${shapeText(strides)}; allowed: contiguous`);
    }
    if (source.dtype !== this.dtype || source.bytes !== this.bytes)
      throw invalid(
        `source is ${source.dtype} ${shapeText(source.shape)}; allowed: ${this.size} elements of ${this.dtype}`,
      );
    const [from, to] = [source.desc.byteOffset, this.desc.byteOffset];
    if (source.#storage === this.#storage && Math.abs(from - to) < this.bytes)
      throw invalid("source shares memory with this tensor");
    const { context, backend } = this.owner;
    if (!context.copy) throw new TesseraError("unsupported", `${backend} can't copy between tensors; read and write`);
    if (this.bytes > 0) context.copy(source.#storage.buffer, from, this.#storage.buffer, to, this.bytes);
  }

  /** Elements [begin, end) of one dimension; `end` defaults to its extent. */
  slice(dimension: number, begin: number, end?: number): Tensor<D> {
    return this.#view(sliced(this, this.dtype, dimension, begin, end));
  }

  /** Two dimensions swapped. Attention wants the last dimension contiguous. */
  transpose(a: number, b: number): Tensor<D> {
    return this.#view(transposed(this, this.dtype, a, b));
  }

  /** Extents of 1 repeated, and dimensions put in front: stride 0, no copy. */
  expand(shape: readonly number[]): Tensor<D> {
    return this.#view(expanded(this, shape));
  }

  /** Another shape over the same elements. An error where that needs a copy. */
  reshape(shape: readonly number[]): Tensor<D> {
    return this.#view(reshaped(this, this.dtype, shape));
  }

  /** Gives up this view; the memory goes when the last view of it does. Doing it twice does nothing. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    forgotten.unregister(this);
    this.#storage.release();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
  }

  #alive(): void {
    if (this.#disposed) throw invalid("the tensor was disposed");
    this.owner.alive();
  }

  #view({ start, shape, strides }: Geometry): Tensor<D> {
    this.#alive();
    const byteOffset = this.desc.byteOffset + bytesOf(this.dtype, start);
    return new Tensor(this.owner, this.#storage.retain(), this.dtype, byteOffset, shape, strides);
  }
}

Object.defineProperty(Tensor.prototype, tensorBrand, { value: true });

const emptyNames = new Set(["shape", "dtype"]);

function roundToBlocks(dtype: DType, count: number): number {
  const { block } = dtypes[dtype];
  return Math.ceil(count / block) * block;
}

/** Elements of a strided view one after the other. */
function gathered(
  dtype: DType,
  elements: ReadArray[DType],
  shape: readonly number[],
  strides: readonly number[],
): ReadArray[DType] {
  const { block, bytes } = dtypes[dtype];
  // Of block formats whole blocks move, and the last dimension counts them.
  const unit = block > 1 ? bytes : 1;
  const last = shape.length - 1;
  const extents = shape.with(last, shape[last]! / block);
  const steps = strides.map((stride, i) => (i === last ? stride : stride / block));
  const result = new (elements.constructor as new (length: number) => ReadArray[DType])(countOf(extents) * unit);
  const index = extents.map(() => 0);
  for (let to = 0; to < result.length; to += unit) {
    let from = 0;
    for (let d = 0; d <= last; d++) from += index[d]! * steps[d]!;
    for (let i = 0; i < unit; i++) result[to + i] = elements[from * unit + i]!;
    for (let d = last; d >= 0 && ++index[d]! === extents[d]; d--) index[d] = 0;
  }
  return result;
}

/** A new tensor of `core`'s device with a copy of `data`. */
export function createTensor(core: EngineCore, data: HostData | readonly boolean[], options: TensorOptions): Tensor {
  core.alive();
  if (typeof options !== "object" || options === null)
    throw invalid(`tensor() takes { shape, dtype?, strides? }; got ${describe(options)}`);
  for (const name in options) {
    if (name !== "shape" && name !== "dtype" && name !== "strides")
      throw invalid(`tensor() has no option ${JSON.stringify(name)}; it has: shape, dtype, strides`);
  }
  const bytes =
    Array.isArray(data) && (options.dtype === "bool" || options.dtype === undefined) ? boolBytes(data, "data") : data;
  const { shape } = options;
  const dtype = Array.isArray(data) ? "bool" : dtypeOf(bytes, options.dtype, "tensor");
  checkShape(shape, "tensor");
  checkBlocks(shape, dtype, "tensor");
  const strides = options.strides ?? contiguousStrides(shape);
  checkStrides(strides, shape, dtype, "tensor");
  const view = hostView(bytes as ArrayBufferView);
  checkReach(shape, strides, dtype, view.byteLength, "data");
  if (options.strides === undefined && view.byteLength !== bytesOf(dtype, countOf(shape))) {
    throw invalid(
      `data has ${view.byteLength} bytes; allowed: ${bytesOf(dtype, countOf(shape))}, those of ${shapeText(shape)} in ${dtype}`,
    );
  }
  const count = roundToBlocks(dtype, extentOf(shape, strides));
  const storage = core.allocate(dtype, count);
  if (count > 0) core.context.write(storage.buffer, 0, bytesOfView(view).subarray(0, bytesOf(dtype, count)));
  return new Tensor(core, storage, dtype, 0, [...shape], [...strides]);
}

/** `engine.empty`. */
export function emptyTensor<D extends DType>(
  core: EngineCore,
  options: { readonly shape: readonly number[]; readonly dtype: D },
): Tensor<D> {
  core.alive();
  checkNames(options, emptyNames, "empty");
  const { shape, dtype } = options;
  if (!(dtype in dtypes)) throw invalid(`dtype is ${describe(dtype)}; allowed: ${Object.keys(dtypes).join(", ")}`);
  checkShape(shape, "empty");
  checkBlocks(shape, dtype, "empty");
  return allocateTensor(core, dtype, [...shape]);
}

/** A new tensor with whatever was in memory. */
export function allocateTensor<D extends DType>(core: EngineCore, dtype: D, shape: readonly number[]): Tensor<D> {
  return new Tensor(core, core.allocate(dtype, countOf(shape)), dtype, 0, shape, contiguousStrides(shape));
}
