/** From a case to tensors: contiguous, encoded, and poisoned wherever no query may look. */

import type { AttentionCase, Edit } from "./case.js";
import { decode, encode, type HostTensor, hostTensor } from "./codec.js";
import { alibiSlopes, makeBias, makeInputs, makeMask } from "./inputs.js";
import { Random } from "./random.js";

/** One attention problem with every default filled in. Rows of q, k and v are numbered through batch and position. */
export interface Problem {
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly valueDim: number;
  readonly queryCounts: readonly number[];
  readonly keyCounts: readonly number[];
  /** Key position of query 0, for each batch entry. */
  readonly offsets: readonly number[];
  readonly scale: number;
  readonly softcap: number;
  readonly causal: boolean;
  readonly window: readonly [number, number];
  readonly q: HostTensor;
  readonly k: HostTensor;
  readonly v: HostTensor;
  queryRow(b: number, i: number): number;
  keyRow(b: number, j: number): number;
  /** Where lse of (b, h, i) is in a contiguous lse. */
  lseIndex(b: number, h: number, i: number): number;
  readonly outShape: readonly number[];
  readonly lseShape: readonly number[];
  readonly bias?: HostTensor;
  readonly mask?: HostTensor;
  readonly alibi?: HostTensor;
  readonly sinks?: HostTensor;
  readonly queryOffset?: HostTensor;
  readonly seqLensQ?: HostTensor;
  readonly seqLensK?: HostTensor;
  readonly cuSeqLensQ?: HostTensor;
  readonly cuSeqLensK?: HostTensor;
  readonly pageTable?: HostTensor;
  readonly kScale?: HostTensor;
  readonly vScale?: HostTensor;
}

const sum = (xs: readonly number[]) => xs.reduce((a, b) => a + b, 0);

/** Where each of the packed sequences starts, and the end. */
function starts(lengths: readonly number[]): number[] {
  const at = [0];
  for (const n of lengths) at.push((at.at(-1) as number) + n);
  return at;
}

/** Whether key j is visible to query i by structure (semantics.md, "Score"). */
export function sees(problem: Problem, b: number, i: number, j: number): boolean {
  const at = i + (problem.offsets[b] as number);
  const [left, right] = problem.window;
  if (problem.causal && j > at) return false;
  if (left >= 0 && j < at - left) return false;
  if (right >= 0 && j > at + right) return false;
  return j >= 0 && j < (problem.keyCounts[b] as number);
}

/** Page ids of each batch entry: shuffled over a pool that has unused pages, some of them shared. */
function makePages(
  c: AttentionCase,
  counts: readonly number[],
  random: Random,
): { table: number[]; perEntry: number; pool: number } {
  const { size, share = 0, firstPage = 0 } = c.pages as NonNullable<AttentionCase["pages"]>;
  const perEntry = Math.ceil(c.keys / size);
  const used = counts.map((n) => Math.ceil(n / size));
  const pool = firstPage + sum(used) + 3;
  const free = random.permutation(pool - firstPage).map((page) => page + firstPage);
  const shared = free.splice(0, share);
  const table: number[] = [];
  for (const pages of used) {
    for (let p = 0; p < perEntry; p++) {
      if (p >= pages)
        table.push(-1); // never read
      else table.push(p < share ? (shared[p] as number) : (free.pop() as number));
    }
  }
  return { table, perEntry, pool };
}

/** Repeats the slice at index 0 of a dimension over all of it. */
function repeatAlong(values: Float32Array, shape: readonly number[], dim: number): void {
  const inner = shape.slice(dim + 1).reduce((a, b) => a * b, 1);
  const extent = shape[dim] as number;
  for (let outer = 0; outer < values.length; outer += extent * inner) {
    for (let i = 1; i < extent; i++) values.copyWithin(outer + i * inner, outer, outer + inner);
  }
}

/** NaN and Inf in turn, as bytes of the tensor's type. */
function poisonRow(tensor: HostTensor, row: number, rowElements: number): void {
  const size = tensor.bytes.length / (tensor.values.length / rowElements);
  const at = tensor.bytes.subarray(row * size, (row + 1) * size);
  at.fill(0xff); // NaN in every type; a NaN scale in block formats
  const infinity = { f32: [0, 0, 0x80, 0x7f], f16: [0, 0x7c], bf16: [0x80, 0x7f] }[tensor.dtype as string];
  if (row % 2 && infinity) for (let i = 0; i < size; i++) at[i] = infinity[i % infinity.length] as number;
}

function applyEdits(edits: readonly Edit[], problem: Problem, tensors: Record<"q" | "k" | "v", HostTensor>): void {
  for (const edit of edits) {
    const { values, shape } = tensors[edit.tensor];
    const heads = shape.at(-2) as number;
    const dims = shape.at(-1) as number;
    for (let b = 0; b < problem.batch; b++) {
      if (edit.batch !== undefined && edit.batch !== b) continue;
      const row = edit.tensor === "q" ? problem.queryRow(b, edit.row) : problem.keyRow(b, edit.row);
      for (let h = 0; h < heads; h++) {
        if (edit.head !== undefined && edit.head !== h) continue;
        for (let d = 0; d < dims; d++) {
          if (edit.dim === undefined || edit.dim === d) values[(row * heads + h) * dims + d] = edit.value;
        }
      }
    }
  }
}

/** Poisons every key that no query sees by structure, and every query past a length. */
function poison(problem: Problem): void {
  const { q, k, v } = problem;
  const liveQ = new Uint8Array(q.values.length / (problem.heads * problem.dim || 1));
  const liveK = new Uint8Array(k.values.length / (problem.kvHeads * problem.dim || 1));
  for (let b = 0; b < problem.batch; b++) {
    const queries = problem.queryCounts[b] as number;
    const keys = problem.keyCounts[b] as number;
    for (let i = 0; i < queries; i++) liveQ[problem.queryRow(b, i)] = 1;
    for (let j = 0; j < keys; j++) {
      // Bounds move by one with i, so the queries that see j are the first that does and those after it.
      for (let i = 0; i < queries; i++) {
        if (sees(problem, b, i, j)) {
          liveK[problem.keyRow(b, j)] = 1;
          break;
        }
      }
    }
  }
  for (let row = 0; row < liveQ.length; row++) if (!liveQ[row]) poisonRow(q, row, problem.heads * problem.dim);
  for (let row = 0; row < liveK.length; row++) {
    if (liveK[row]) continue;
    poisonRow(k, row, problem.kvHeads * problem.dim);
    poisonRow(v, row, problem.kvHeads * problem.valueDim);
  }
}

export function buildProblem(c: AttentionCase): Problem {
  const random = new Random(c.name);
  const B = c.packedQ?.length ?? c.batch;
  const queryCounts = c.packedQ ?? c.lengthsQ ?? Array<number>(B).fill(c.queries);
  const keyCounts = c.packedK ?? c.lengthsK ?? Array<number>(B).fill(c.keys);
  const startQ = starts(queryCounts);
  const startK = starts(keyCounts);
  const pages = c.pages && makePages(c, keyCounts, random);
  const pageSize = c.pages?.size ?? 0;

  const leadQ = c.packedQ ? [sum(queryCounts)] : [B, c.queries];
  const leadK = pages ? [pages.pool, pageSize] : c.packedK ? [sum(keyCounts)] : [B, c.keys];
  const rows = (lead: readonly number[]) => lead.reduce((a, b) => a * b, 1);
  const raw = makeInputs(c.input, random, {
    rowsQ: rows(leadQ),
    rowsK: rows(leadK),
    heads: c.heads,
    kvHeads: c.kvHeads,
    dim: c.dim,
    valueDim: c.valueDim,
  });
  const shapeQ = [...leadQ, c.heads, c.dim];
  const shapeK = [...leadK, c.kvHeads, c.dim];
  const shapeV = [...leadK, c.kvHeads, c.valueDim];
  for (const dim of c.repeat.q ?? []) repeatAlong(raw.q, shapeQ, dim);
  for (const dim of c.repeat.k ?? []) repeatAlong(raw.k, shapeK, dim);
  for (const dim of c.repeat.v ?? []) repeatAlong(raw.v, shapeV, dim);

  const i32 = (shape: readonly number[], values: readonly number[]) => hostTensor("i32", shape, values);
  const f32 = (values: readonly number[]) => hostTensor("f32", [values.length], values);
  const cacheScale = (on: boolean, step: number) =>
    c.cacheScales && on ? { scale: f32(Array.from({ length: c.kvHeads }, (_, h) => 0.5 + step * (h + 1))) } : {};
  const kScale = cacheScale(c.types.k === "f8_e4m3", 0.25).scale;
  const vScale = cacheScale(c.types.v === "f8_e4m3", 0.375).scale;

  const layout: Omit<Problem, "q" | "k" | "v"> = {
    batch: B,
    heads: c.heads,
    kvHeads: c.kvHeads,
    dim: c.dim,
    valueDim: c.valueDim,
    queryCounts,
    keyCounts,
    offsets: queryCounts.map((n, b) =>
      c.queryOffset ? (c.queryOffset[b] as number) : c.align === "top-left" ? 0 : (keyCounts[b] as number) - n,
    ),
    scale: c.scale ?? 1 / Math.sqrt(c.dim),
    softcap: Math.fround(c.softcap ?? 0),
    causal: c.causal ?? false,
    window: c.window ?? [-1, -1],
    queryRow: (b, i) => (c.packedQ ? (startQ[b] as number) + i : b * c.queries + i),
    keyRow: (b, j) => {
      if (pages)
        return (pages.table[b * pages.perEntry + Math.floor(j / pageSize)] as number) * pageSize + (j % pageSize);
      return c.packedK ? (startK[b] as number) + j : b * c.keys + j;
    },
    lseIndex: (b, h, i) =>
      c.packedQ ? h * (leadQ[0] as number) + (startQ[b] as number) + i : (b * c.heads + h) * c.queries + i,
    outShape: [...leadQ, c.heads, c.valueDim],
    lseShape: c.packedQ ? [c.heads, leadQ[0] as number] : [B, c.heads, c.queries],
    ...(c.alibi && { alibi: f32(c.alibi === "standard" ? alibiSlopes(c.heads) : c.alibi) }),
    ...(c.sinks && { sinks: f32(c.sinks) }),
    ...(c.queryOffset && { queryOffset: i32([B], c.queryOffset) }),
    ...(c.lengthsQ && { seqLensQ: i32([B], c.lengthsQ) }),
    ...(c.lengthsK && { seqLensK: i32([B], c.lengthsK) }),
    ...(c.packedQ && { cuSeqLensQ: i32([B + 1], startQ) }),
    ...(c.packedK && { cuSeqLensK: i32([B + 1], startK) }),
    ...(pages && { pageTable: i32([B, pages.perEntry], pages.table) }),
    ...(kScale && { kScale }),
    ...(vScale && { vScale }),
    ...overlays(c, B, random),
  };
  const tensors = {
    q: { shape: shapeQ, values: raw.q, dtype: c.types.q, bytes: new Uint8Array(0) },
    k: { shape: shapeK, values: raw.k, dtype: c.types.k, bytes: new Uint8Array(0) },
    v: { shape: shapeV, values: raw.v, dtype: c.types.v, bytes: new Uint8Array(0) },
  };
  // f8 stores x / scale; dividing here is what an append would have done.
  if (kScale) divideByHead(raw.k, kScale.values, c.dim);
  if (vScale) divideByHead(raw.v, vScale.values, c.valueDim);
  applyEdits(c.edits, { ...layout, ...tensors }, tensors);
  const problem: Problem = {
    ...layout,
    q: hostTensor(c.types.q, shapeQ, raw.q),
    k: hostTensor(c.types.k, shapeK, raw.k),
    v: hostTensor(c.types.v, shapeV, raw.v),
  };
  poison(problem);
  return problem;
}

function divideByHead(values: Float32Array, scale: Float32Array, dim: number): void {
  for (let i = 0; i < values.length; i++) {
    values[i] = (values[i] as number) / (scale[Math.floor(i / dim) % scale.length] as number);
  }
}

/** Keys that a bias or a mask has columns for: whole pages if paged. */
function overlayKeys(c: AttentionCase): number {
  return c.pages ? Math.ceil(c.keys / c.pages.size) * c.pages.size : c.keys;
}

function overlays(c: AttentionCase, batch: number, random: Random): { bias?: HostTensor; mask?: HostTensor } {
  const out: { bias?: HostTensor; mask?: HostTensor } = {};
  const keys = overlayKeys(c);
  if (c.bias) {
    const shape = [c.bias.perBatch ? batch : 1, c.bias.perHead ? c.heads : 1, c.queries, keys];
    const planes = (shape[0] as number) * (shape[1] as number);
    const values = makeBias(c.bias.fill, c.bias.type, random, planes, c.queries, keys);
    for (const dim of c.repeat.bias ?? []) repeatAlong(values, shape, dim);
    const bytes = encode(values, c.bias.type);
    out.bias = {
      dtype: c.bias.type,
      shape,
      bytes,
      values: c.bias.type === "f32" ? values : decode(bytes, c.bias.type),
    };
  }
  if (c.mask) {
    const shape = [c.mask.perBatch ? batch : 1, c.mask.perHead ? c.heads : 1, c.queries, keys];
    const planes = (shape[0] as number) * (shape[1] as number);
    const values = makeMask(c.mask.fill, random, planes, c.queries, keys);
    for (const dim of c.repeat.mask ?? []) repeatAlong(values, shape, dim);
    // Anything but 0 is true.
    out.mask = hostTensor(
      "bool",
      shape,
      values.map((x, i) => (x ? 1 + (i % 3) * 127 : 0)),
    );
  }
  return out;
}
