/**
 * Calls as numbers: descriptors are flattened into one array that the addon reads in place, which costs less than
 * handing it objects. native/src/reader.cc is the other half: change both together.
 *
 * A tensor is 0 if absent, else [kind, handle, byteOffset, dtype, rank, shape.., strides..]; kind 1 is a buffer of the
 * context, kind 2 an element of `views`.
 */
import type { AppendDesc, AttentionDesc, BackendBuffer, DecodeDesc, MergeDesc, TensorDesc } from "../backend.js";
import { dtypes } from "../dtype.js";
import { TesseraError } from "../error.js";
import type { Addon, Views } from "./addon.js";

/** What the packer must know of a buffer. */
export interface PackedBuffer extends BackendBuffer {
  readonly id: number;
  readonly owner: object;
}

const slotsPerTensor = 13;
const maxRank = 4;
const hasScale = 1;
const hasWindow = 2;
const advance = 1;

export class Packer {
  /** Slots used by the call packed last. */
  count = 0;
  #slots: Float64Array;
  #views: ArrayBufferView[] | undefined;
  #owner: object | undefined;

  constructor(
    private readonly addon: Addon,
    private readonly isBuffer: (data: object) => data is PackedBuffer,
  ) {
    this.#slots = addon.scratch;
  }

  attention(desc: AttentionDesc, owner: object): void {
    this.#begin(owner);
    this.#attention(desc);
    this.#owner = undefined;
  }

  append(desc: AppendDesc, owner: object): void {
    this.#begin(owner);
    this.#append(desc);
    this.#owner = undefined;
  }

  decode(desc: DecodeDesc, owner: object): void {
    this.#begin(owner);
    this.#number(desc.append === undefined ? 0 : 1);
    if (desc.append !== undefined) this.#append(desc.append);
    this.#attention(desc.attention);
    this.#owner = undefined;
  }

  merge(desc: MergeDesc, owner: object): void {
    const { outs, lses } = desc;
    if (outs.length !== lses.length)
      throw new TesseraError("invalid-argument", `merge: ${outs.length} outs but ${lses.length} lses`);
    const needed = 1 + (2 * outs.length + 2) * slotsPerTensor;
    if (needed > this.#slots.length) this.#slots = this.addon.reserve(needed);
    this.#begin(owner);
    this.#number(outs.length);
    for (let i = 0; i < outs.length; i++) {
      this.#tensor("outs", outs[i]);
      this.#tensor("lses", lses[i]);
    }
    this.#tensor("out", desc.out);
    this.#tensor("lse", desc.lse);
    this.#owner = undefined;
  }

  /** The host arrays of the call packed last. The packer outlives calls, so it mustn't hold on to them. */
  takeViews(): Views {
    const views = this.#views;
    this.#views = undefined;
    return views;
  }

  #begin(owner: object): void {
    this.count = 0;
    this.#views = undefined;
    this.#owner = owner;
  }

  #number(value: number): void {
    this.#slots[this.count++] = value;
  }

  #attention(desc: AttentionDesc): void {
    const { scale, window } = desc;
    this.#number((scale === undefined ? 0 : hasScale) | (window === undefined ? 0 : hasWindow));
    this.#number(scale ?? 0);
    this.#number(desc.softcap ?? 0);
    this.#number(desc.causal ? 1 : 0);
    this.#number(desc.align === undefined ? 0 : desc.align === "top-left" ? 2 : 1);
    this.#number(window === undefined ? 0 : window[0]);
    this.#number(window === undefined ? 0 : window[1]);
    this.#number(desc.maxSeqLenQ ?? 0);
    this.#number(desc.maxSeqLenK ?? 0);
    this.#number(desc.numSplits ?? 0);
    this.#tensor("q", desc.q);
    this.#tensor("k", desc.k);
    this.#tensor("v", desc.v);
    this.#tensor("out", desc.out);
    this.#tensor("lse", desc.lse);
    this.#tensor("queryOffset", desc.queryOffset);
    this.#tensor("alibiSlopes", desc.alibiSlopes);
    this.#tensor("bias", desc.bias);
    this.#tensor("mask", desc.mask);
    this.#tensor("sinks", desc.sinks);
    this.#tensor("seqLensQ", desc.seqLensQ);
    this.#tensor("seqLensK", desc.seqLensK);
    this.#tensor("cuSeqLensQ", desc.cuSeqLensQ);
    this.#tensor("cuSeqLensK", desc.cuSeqLensK);
    this.#tensor("pageTable", desc.pageTable);
    this.#tensor("kScale", desc.kScale);
    this.#tensor("vScale", desc.vScale);
  }

  #append(desc: AppendDesc): void {
    const { rope } = desc;
    this.#number(desc.advance ? advance : 0);
    this.#tensor("k", desc.k);
    this.#tensor("v", desc.v);
    this.#tensor("q", desc.q);
    this.#tensor("qOut", desc.qOut);
    this.#tensor("cacheK", desc.cacheK);
    this.#tensor("cacheV", desc.cacheV);
    this.#tensor("pageTable", desc.pageTable);
    this.#tensor("lengths", desc.lengths);
    this.#tensor("newLens", desc.newLens);
    this.#tensor("cuSeqLens", desc.cuSeqLens);
    this.#tensor("kScale", desc.kScale);
    this.#tensor("vScale", desc.vScale);
    this.#number(rope === undefined ? 0 : 1);
    if (rope === undefined) return;
    this.#number(rope.pairing === "interleaved" ? 2 : 1);
    this.#number(rope.theta);
    this.#number(rope.scale ?? 0);
    this.#number(rope.dims ?? 0);
    this.#tensor("rope.positions", rope.positions);
  }

  #tensor(name: string, tensor: TensorDesc | undefined): void {
    if (tensor === undefined) {
      this.#slots[this.count++] = 0;
      return;
    }
    const { data, shape, strides } = tensor;
    const rank = shape.length;
    const facts = dtypes[tensor.dtype];
    if (rank > maxRank || strides.length !== rank || facts === undefined) refuse(name, tensor);
    const slots = this.#slots;
    let at = this.count;
    if (this.isBuffer(data)) {
      if (data.owner !== this.#owner)
        throw new TesseraError("invalid-argument", `${name}: its buffer belongs to another context`);
      slots[at] = 1;
      slots[at + 1] = data.id;
    } else {
      slots[at] = 2;
      slots[at + 1] = this.#view(name, data as ArrayBufferView);
    }
    slots[at + 2] = tensor.byteOffset;
    slots[at + 3] = facts.id;
    slots[at + 4] = rank;
    at += 5;
    for (let d = 0; d < rank; d++) slots[at++] = shape[d]!;
    for (let d = 0; d < rank; d++) slots[at++] = strides[d]!;
    this.count = at;
  }

  #view(name: string, data: ArrayBufferView): number {
    requireFixedLength(name, data);
    this.#views ??= [];
    return this.#views.push(data) - 1;
  }
}

/** Native code works on the memory while JavaScript goes on. */
export function requireFixedLength(name: string, view: ArrayBufferView): void {
  if (!ArrayBuffer.isView(view))
    throw new TesseraError("invalid-argument", `${name}: expected a buffer of this context or a typed array`);
  if ((view.buffer as { resizable?: boolean }).resizable)
    throw new TesseraError(
      "invalid-argument",
      `${name} is in a resizable ArrayBuffer, which may shrink while it is used: pass one of a fixed length`,
    );
}

function refuse(name: string, { shape, strides, dtype }: TensorDesc): never {
  if (dtypes[dtype] === undefined)
    throw new TesseraError(
      "invalid-argument",
      `${name}: dtype is ${dtype}, expected ${Object.keys(dtypes).join(", ")}`,
    );
  throw new TesseraError(
    "invalid-argument",
    `${name}: shape [${shape}] and strides [${strides}] must have the same length, at most ${maxRank}`,
  );
}
