/** The verb `attention`: a descriptor as a problem, a kernel, dispatches. */
import {
  type AttentionDesc,
  type CacheDType,
  type Explanation,
  type FloatDType,
  type Support,
  type TensorDesc,
  TesseraError,
} from "@tessera/core/web";
import type { Capabilities } from "./capabilities.js";
import {
  type Choice,
  choose,
  type Geometry,
  geometryOf,
  isEven,
  splitsFor,
  streamOf,
  tileOf,
  type Variant,
} from "./catalogue.js";
import { type Binding, bindingOf, type Commands, gridOf, whole } from "./commands.js";
import type { Memory } from "./memory.js";
import { bufferOf, operandOf, type Window } from "./operand.js";
import { type Shader, shader } from "./pipelines.js";
import { type Box, type Problem, planOf, type TensorName, windowFor } from "./plan.js";
import { attentionShader } from "./wgsl/attention.js";
import { packParams } from "./wgsl/fields.js";
import { joinShader } from "./wgsl/join.js";
import { matrixShader } from "./wgsl/matrix.js";
import { type AttentionFields, attentionFields, none, type ViewMember } from "./wgsl/problem.js";
import { streamShader } from "./wgsl/stream.js";

/** Where a device's work goes. */
export interface Target {
  readonly can: Capabilities;
  readonly memory: Memory;
}

export function problemOf(desc: AttentionDesc, memory: Memory): Problem {
  const rows = (name: "q" | "k" | "v" | "out") => operandOf(desc[name], name, memory, "rows");
  const pairs = (name: "bias" | "mask") => desc[name] && operandOf(desc[name], name, memory, "pairs");
  const [queryRows, heads, dim] = desc.q.shape.slice(-3) as [number, number, number];
  const [keyRows, kvHeads] = desc.k.shape.slice(-3) as [number, number];
  const pageSize = desc.pageTable ? keyRows : 0;
  const keyRoom = desc.pageTable ? desc.pageTable.shape[1]! * pageSize : keyRows;
  return {
    q: rows("q"),
    k: rows("k"),
    v: rows("v"),
    out: rows("out"),
    lse: desc.lse && operandOf(desc.lse, "lse", memory, "logs"),
    bias: pairs("bias"),
    mask: pairs("mask"),
    batch: desc.cuSeqLensQ ? desc.cuSeqLensQ.shape[0]! - 1 : desc.q.shape[0]!,
    heads,
    kvHeads,
    group: kvHeads === 0 ? 1 : heads / kvHeads,
    dim,
    valueDim: desc.v.shape.at(-1)!,
    queryRows,
    keyRows,
    queries: desc.cuSeqLensQ ? desc.maxSeqLenQ || queryRows : queryRows,
    keys: desc.cuSeqLensK ? desc.maxSeqLenK || keyRows : keyRoom,
    packedQ: desc.cuSeqLensQ !== undefined,
    packedK: desc.cuSeqLensK !== undefined,
    pageSize,
    pages: desc.pageTable ? desc.k.shape[0]! : 1,
  };
}

/** A problem with its kernel and how it is divided. */
interface Prepared {
  readonly problem: Problem;
  readonly choice: Choice;
  readonly geometry: Geometry;
  readonly splitsOf: (box: Box) => number;
  readonly pieces: ReturnType<typeof planOf>;
}

function prepare(desc: AttentionDesc, { can, memory }: Target): Prepared | (Support & { readonly supported: false }) {
  const problem = problemOf(desc, memory);
  const choice = choose(desc, problem, can);
  if ("supported" in choice) return choice;
  const { variant } = choice;
  const rows = problem.queries * (variant.packed ? problem.group : 1);
  const heads = variant.packed ? problem.kvHeads : problem.heads;
  const geometry = geometryOf(variant, problem, can);
  const tasks = problem.batch * heads * Math.ceil(rows / geometry.q);
  const splits = splitsFor(variant, desc.numSplits ?? 0, problem, tasks, can);
  const splitsOf = ({ key: [from, to] }: Box) => splitting(geometry.k, to - from, splits, problem.keys).splits;
  const empty = problem.batch === 0 || problem.heads === 0 || problem.queries === 0;
  try {
    return { problem, choice, geometry, splitsOf, pieces: empty ? [] : planOf(problem, can.bindingBytes, splitsOf) };
  } catch (error) {
    if (!(error instanceof TesseraError)) throw error;
    return { supported: false, code: error.code as "unsupported", reason: error.message };
  }
}

function splitting(unit: number, keys: number, splits: number, allKeys: number): { splits: number; splitKeys: number } {
  const wanted = Math.max(1, Math.ceil((splits * keys) / Math.max(1, allKeys)));
  const splitKeys = Math.max(unit, Math.ceil(keys / wanted / unit) * unit);
  return { splits: Math.max(1, Math.ceil(keys / splitKeys)), splitKeys };
}

export function supportOf(desc: AttentionDesc, target: Target): Support {
  const prepared = prepare(desc, target);
  return "supported" in prepared ? prepared : { supported: true };
}

function demanded(desc: AttentionDesc, target: Target): Prepared {
  const prepared = prepare(desc, target);
  if ("supported" in prepared) throw new TesseraError(prepared.code, prepared.reason);
  return prepared;
}

/** @throws TesseraError as `attention` would */
export function explanationOf(desc: AttentionDesc, target: Target, neverRun: string): Explanation {
  const { problem, choice, geometry, pieces, splitsOf } = demanded(desc, target);
  const { variant, passedOver } = choice;
  const counts = pieces.map(({ parts }) => parts.reduce((sum, part) => sum + splitsOf(part), 0));
  const rows = pieces.map(({ box }) => rowsOf(problem, box));
  const workspace = rows.map((count, i) => (counts[i]! > 1 ? count * counts[i]! * (problem.valueDim + 1) * 4 : 0));
  const chunks = pieces.length > 1 || pieces.some(({ parts }) => parts.length > 1);
  const notes = [
    chunks
      ? `tensors larger than a binding: ${pieces.length} pieces, joined over up to ${Math.max(...counts)} parts`
      : "",
    neverRun,
  ];
  return {
    kernel: variant.name,
    family: variant.family,
    tile: { q: geometry.q, k: geometry.k },
    stages: 1,
    splits: Math.max(1, ...counts),
    threads: geometry.threads,
    sharedBytes: geometry.bytes,
    workspaceBytes: Math.max(0, ...workspace),
    notes: notes.filter(Boolean).join("; "),
    passedOver,
  };
}

const rowsOf = (p: Problem, { batch, kvHead, query }: Box) =>
  (batch[1] - batch[0]) * (kvHead[1] - kvHead[0]) * p.group * (query[1] - query[0]);

/** Small vectors that go into `aux`, by the parameter that says where. */
const vectors = {
  atSeqLensQ: "seqLensQ",
  atSeqLensK: "seqLensK",
  atCuSeqLensQ: "cuSeqLensQ",
  atCuSeqLensK: "cuSeqLensK",
  atQueryOffset: "queryOffset",
  atAlibi: "alibiSlopes",
  atSinks: "sinks",
  atKScale: "kScale",
  atVScale: "vScale",
  atPages: "pageTable",
} as const;

/** Copies vectors of 4-byte numbers into one buffer; the place of each in it, in words. */
export function gather<N extends string>(
  given: Readonly<Record<N, TensorDesc | undefined>>,
  target: Target,
  commands: Commands,
  use = "aux",
): { readonly aux: GPUBuffer; readonly at: Readonly<Record<N, number>> } {
  const at = {} as Record<N, number>;
  let words = 0;
  const copies: { from: Binding; to: number }[] = [];
  for (const [name, desc] of Object.entries(given) as [N, TensorDesc | undefined][]) {
    at[name] = none;
    if (!desc) continue;
    const { shape, strides, byteOffset } = desc;
    const count = shape.includes(0) ? 0 : shape.reduce((sum, extent, d) => sum + (extent - 1) * strides[d]!, 1);
    const buffer = bufferOf(desc, name, target.memory);
    at[name] = words;
    if (buffer) copies.push({ from: { buffer: buffer.gpu, offset: byteOffset, size: 4 * count }, to: 4 * words });
    words += count;
  }
  const aux = target.memory.scratch("storage", use, Math.max(4, 4 * words));
  for (const { from, to } of copies) commands.copy(from, aux, to);
  return { aux, at };
}

/** @throws TesseraError `unsupported`, `invalid-argument`, `out-of-memory` */
export function recordAttention(desc: AttentionDesc, target: Target, commands: Commands): void {
  const { problem, choice, geometry, pieces, splitsOf } = demanded(desc, target);
  const { can, memory } = target;
  const { variant } = choice;
  const given = Object.fromEntries(Object.entries(vectors).map(([at, name]) => [at, desc[name]])) as Record<
    keyof typeof vectors,
    TensorDesc | undefined
  >;
  const { aux, at } = gather(given, target, commands);
  const plain = !desc.softcap && !desc.bias && !desc.mask && !desc.alibiSlopes;
  const fixed = { ...shapesOf(problem, desc), ...at };

  for (const { box, parts } of pieces) {
    const counts = parts.map(splitsOf);
    const count = counts.reduce((sum, splits) => sum + splits, 0);
    const partial = count > 1;
    const rows = rowsOf(problem, box);
    const partials = partial ? memory.scratch("storage", "parts", rows * count * problem.valueDim * 4) : undefined;
    const logs = partial ? memory.scratch("storage", "logs", rows * count * 4) : undefined;
    const results = resultsOf(problem, box, target);
    for (const copy of results.before) commands.copy(copy.from, copy.to, copy.toOffset);

    let firstPart = 0;
    for (const [i, part] of parts.entries()) {
      const { splits, splitKeys } = splitting(
        geometry.k,
        part.key[1] - part.key[0],
        counts[i]!,
        part.key[1] - part.key[0],
      );
      const windows = inputsOf(problem, part, can);
      const kernel = shaderOf(variant, problem, plain, partial, can);
      const pack = variant.packed ? problem.group : 1;
      const tiles = Math.ceil(((box.query[1] - box.query[0]) * pack) / geometry.q);
      const headTiles = ((box.kvHead[1] - box.kvHead[0]) * problem.group) / pack;
      const tasks = splits * tiles * headTiles * (box.batch[1] - box.batch[0]);
      const work = geometry.q * Math.min(splitKeys, part.key[1] - part.key[0]) * (problem.dim + problem.valueDim);
      const step = Math.max(1, Math.min(tasks, Math.floor(can.submissionWork / Math.max(1, work))));
      for (let firstTask = 0; firstTask < tasks; firstTask += step) {
        const now = Math.min(step, tasks - firstTask);
        const { groups, gridWidth } = gridOf(now, can.gridWidth);
        commands.dispatch({
          shader: kernel,
          work: now * work,
          groups,
          params: packParams(attentionFields, {
            ...fixed,
            ...boxParams(problem, part),
            ...viewParams(problem, { ...windows, out: results.windows.out, lse: results.windows.lse }),
            splits,
            splitKeys,
            firstPart,
            parts: count,
            tasks: firstTask + now,
            firstTask,
            gridWidth,
          }),
          bindings: {
            1: bindingOf(windows.q!),
            2: bindingOf(windows.k!),
            3: bindingOf(windows.v!),
            4: whole(aux),
            ...(plain ? {} : { 5: windows.bias ? bindingOf(windows.bias) : whole(aux) }),
            ...(plain ? {} : { 6: windows.mask ? bindingOf(windows.mask) : whole(aux) }),
            7: partials ? whole(partials) : bindingOf(results.windows.out!),
            8: logs ? whole(logs) : results.lse,
          },
        });
      }
      firstPart += splits;
    }
    if (partials && logs) {
      const join = shader("join", desc.out.dtype as FloatDType, joinShader);
      const step = Math.max(1, Math.floor(can.submissionWork / (count * problem.valueDim)));
      for (let firstTask = 0; firstTask < rows; firstTask += step) {
        const now = Math.min(step, rows - firstTask);
        const { groups, gridWidth } = gridOf(now, can.gridWidth);
        commands.dispatch({
          shader: join,
          work: now * count * problem.valueDim,
          groups,
          params: packParams(attentionFields, {
            ...fixed,
            ...boxParams(problem, box),
            ...viewParams(problem, results.windows),
            splits: 1,
            splitKeys: 0,
            firstPart: 0,
            parts: count,
            tasks: firstTask + now,
            firstTask,
            gridWidth,
          }),
          bindings: {
            1: whole(partials),
            2: whole(logs),
            4: whole(aux),
            7: bindingOf(results.windows.out!),
            8: results.lse,
          },
        });
      }
    }
    for (const copy of results.after) commands.copy(copy.from, copy.to, copy.toOffset);
  }
}

function shaderOf(variant: Variant, p: Problem, plain: boolean, partial: boolean, can: Capabilities): Shader {
  const { name, way, packed, subgroups } = variant;
  const tile = tileOf(variant, can);
  const rolled = can.emulated;
  const types = {
    q: p.q.dtype as FloatDType,
    k: p.k.dtype as CacheDType,
    v: p.v.dtype as CacheDType,
    out: p.out.dtype as FloatDType,
  };
  if (way === "matrix") {
    const options = {
      shape: can.matrix!,
      subgroups: can.matrixSubgroups,
      out: types.out,
      dim: p.dim,
      valueDim: p.valueDim,
      paged: p.pageSize > 0,
      partial,
      plain,
    };
    return shader(name, options, matrixShader);
  }
  if (way === "stream") {
    const [paged, alike] = [p.pageSize > 0, p.queries === 1];
    return shader(name, { ...types, ...streamOf(p, can), paged, alike, partial, subgroups }, streamShader);
  }
  const needed = Math.ceil(p.valueDim / (4 * tile.tx));
  // One pipeline serves several head dims, most of them where pipelines take long to compile.
  const columns = [1, 2, 4, 8].find((count) => count >= needed && !(rolled && (count === 1 || count === 4)))!;
  const options = {
    ...types,
    tile,
    columns,
    packed,
    partial,
    subgroups,
    plain,
    even: isEven(p),
    rolled,
  };
  return shader(name, options, attentionShader);
}

type Windows = Partial<Record<TensorName, Window | undefined>>;

function inputsOf(p: Problem, box: Box, can: Capabilities): Windows {
  const windows: Windows = {};
  for (const name of ["q", "k", "v", "bias", "mask"] as const)
    windows[name] = windowFor(p, name, box, can.bindingAlignment);
  return windows;
}

interface Move {
  readonly from: Binding;
  readonly to: GPUBuffer;
  readonly toOffset: number;
}

interface Results {
  readonly windows: Windows;
  readonly lse: Binding;
  readonly before: readonly Move[];
  readonly after: readonly Move[];
}

/**
 * Where results are written: in place, unless their buffer holds an input or the other result too, which a binding that is
 * written may not; then in scratch memory that is copied back, with what lay between the rows.
 */
function resultsOf(p: Problem, box: Box, { can, memory }: Target): Results {
  const inputs = new Set([p.q, p.k, p.v, p.bias, p.mask].map((operand) => operand?.buffer?.gpu));
  const before: Move[] = [];
  const after: Move[] = [];
  const windows: Windows = {};
  for (const name of ["out", "lse"] as const) {
    const window = windowFor(p, name, box, can.bindingAlignment);
    const shared = window && (inputs.has(window.buffer) || (name === "lse" && window.buffer === p.out.buffer?.gpu));
    if (!window || !shared) {
      windows[name] = window;
      continue;
    }
    const apart = memory.scratch("storage", `apart ${name}`, window.size);
    before.push({ from: bindingOf(window), to: apart, toOffset: 0 });
    after.push({ from: { buffer: apart, offset: 0, size: window.size }, to: window.buffer!, toOffset: window.offset });
    windows[name] = { ...window, buffer: apart, offset: 0 };
  }
  const lse = windows.lse ? bindingOf(windows.lse) : whole(memory.scratch("storage", "no lse", 16));
  return { windows, lse, before, after };
}

function viewParams(p: Problem, windows: Windows): Record<`${TensorName}${ViewMember}`, number> {
  const params = {} as Record<`${TensorName}${ViewMember}`, number>;
  for (const name of ["q", "k", "v", "out", "lse", "bias", "mask"] as const) {
    const operand = p[name];
    params[`${name}Base`] = windows[name]?.base ?? 0;
    params[`${name}First`] = windows[name]?.first ?? 0;
    params[`${name}Batch`] = operand?.batch ?? 0;
    params[`${name}Row`] = operand?.row ?? 0;
    params[`${name}Head`] = operand?.head ?? 0;
  }
  return params;
}

function boxParams(p: Problem, { batch, kvHead, query, key, page }: Box) {
  return {
    firstHead: kvHead[0] * p.group,
    headCount: (kvHead[1] - kvHead[0]) * p.group,
    firstBatch: batch[0],
    batchCount: batch[1] - batch[0],
    firstQuery: query[0],
    endQuery: query[1],
    firstKey: key[0],
    endKey: key[1],
    firstPage: page[0],
    endPage: page[1],
  };
}

const biasTypes = { f32: 1, f16: 2, bf16: 3 } as const;
// Positions are 32 bits wide; nothing lies farther apart than this.
const unbounded = 0x3fffffff;

/** Parameters that are the same for all dispatches of a call. */
function shapesOf(p: Problem, desc: AttentionDesc): Partial<AttentionFields> & Record<FixedName, number> {
  const [left, right] = desc.window ?? [-1, -1];
  const bound = (n: number) => (n < 0 ? unbounded : Math.min(n, unbounded));
  return {
    batch: p.batch,
    heads: p.heads,
    group: p.group,
    dim: p.dim,
    valueDim: p.valueDim,
    queryRows: p.queryRows,
    keyRows: p.keyRows,
    scale: desc.scale ?? 1 / Math.sqrt(p.dim),
    softcap: desc.softcap ?? 0,
    left: bound(left),
    right: desc.causal ? 0 : bound(right),
    topLeft: desc.align === "top-left" ? 1 : 0,
    biasType: desc.bias ? biasTypes[desc.bias.dtype as keyof typeof biasTypes] : 0,
    hasMask: desc.mask ? 1 : 0,
    hasLse: desc.lse ? 1 : 0,
    pagesStride: desc.pageTable?.strides[0] ?? 0,
    pagesPerSequence: desc.pageTable?.shape[1] ?? 0,
    pageSize: p.pageSize,
    one: 1,
  };
}

type FixedName =
  | "batch"
  | "heads"
  | "group"
  | "dim"
  | "valueDim"
  | "queryRows"
  | "keyRows"
  | "scale"
  | "softcap"
  | "left"
  | "right"
  | "topLeft"
  | "biasType"
  | "hasMask"
  | "hasLse"
  | "pagesStride"
  | "pagesPerSequence"
  | "pageSize"
  | "one";
