/** The verb `append`: keys, values and queries of new tokens to where they belong. */
import {
  type AppendDesc,
  type CacheDType,
  type FloatDType,
  type RopeDesc,
  type TensorDesc,
  TesseraError,
} from "@tessera/core/web";
import { gather, type Target } from "./attention.js";
import { bindingOf, type Commands, gridOf, whole } from "./commands.js";
import { bufferOf, type Operand, operandOf, type Window, windowOf } from "./operand.js";
import { shader } from "./pipelines.js";
import { advanceShader, appendFields, appendShader } from "./wgsl/append.js";
import { packParams } from "./wgsl/fields.js";
import { none } from "./wgsl/problem.js";

/** All of a tensor, if a binding can have it. */
export function wholeOf(operand: Operand, name: string, { can }: Target, order: "rows" | "logs" = "rows"): Window {
  const { shape } = operand;
  const at = order === "rows" ? shape.length - 3 : shape.length - 2;
  const [row, head] = order === "rows" ? [shape[at]!, shape[at + 1]!] : [shape[at + 1]!, shape[at]!];
  const box = {
    batch: [0, at > 0 ? shape[at - 1]! : 1],
    row: [0, row],
    head: [0, head],
    width: order === "rows" ? shape.at(-1)! : 1,
  } as const;
  const window = windowOf(operand, box, can.bindingAlignment);
  if (window.size > can.bindingBytes) {
    throw new TesseraError(
      "unsupported",
      `${name} reaches over ${window.size} bytes; allowed on this device: ${can.bindingBytes}, what a binding may have`,
    );
  }
  return window;
}

export function recordAppend(desc: AppendDesc, target: Target, commands: Commands): void {
  const { rope } = desc;
  const batch = desc.cuSeqLens ? desc.cuSeqLens.shape[0]! - 1 : desc.k.shape[0]!;
  const cacheRows = desc.cacheK.shape[1]!;
  const frequencies = rope && commands.upload("frequencies", frequenciesOf(rope, desc.k.shape.at(-1)!));
  const { aux, at } = gather(
    {
      atLengths: desc.lengths,
      atNewLens: desc.newLens,
      atCuSeqLens: desc.cuSeqLens,
      atKScale: desc.kScale,
      atVScale: desc.vScale,
      atPages: desc.pageTable,
      atPositions: rope?.positions,
    },
    target,
    commands,
    "append aux",
  );
  const base: Base = {
    batch,
    atLengths: at.atLengths,
    atNewLens: at.atNewLens,
    atCuSeqLens: at.atCuSeqLens,
    atPages: at.atPages,
    pagesStride: desc.pageTable?.strides[0] ?? 0,
    pageSize: desc.pageTable ? cacheRows : 0,
    pageCount: desc.cacheK.shape[0]!,
    capacity: desc.pageTable ? desc.pageTable.shape[1]! * cacheRows : cacheRows,
    atPositions: at.atPositions,
    positionsStride: desc.cuSeqLens ? 0 : (rope?.positions?.strides[0] ?? 0),
  };
  const move = (
    from: TensorDesc,
    to: TensorDesc,
    names: [string, string],
    toCache: boolean,
    rotate: boolean,
    atScale: number,
  ) => {
    const source = operandOf(from, names[0], target.memory, "rows");
    const into = operandOf(to, names[1], target.memory, "rows");
    const [rows, heads, dim] = from.shape.slice(-3) as [number, number, number];
    const tasks = batch * rows * heads;
    if (tasks === 0 || dim === 0) return;
    let read = wholeOf(source, names[0], target);
    const write = wholeOf(into, names[1], target);
    if (read.buffer === write.buffer) {
      const apart = target.memory.scratch("storage", `apart ${names[0]}`, read.size);
      commands.copy(bindingOf(read), apart, 0);
      read = { ...read, buffer: apart, offset: 0 };
    }
    const { groups, gridWidth } = gridOf(tasks, target.can.gridWidth);
    commands.dispatch({
      shader: shader("append", [from.dtype as FloatDType, to.dtype as CacheDType] as const, (types) =>
        appendShader(...types),
      ),
      work: tasks * dim * 8,
      groups,
      params: packParams(appendFields, {
        ...base,
        rows,
        heads,
        dim,
        fromBase: read.base,
        fromBatch: source.batch,
        fromRow: source.row,
        fromHead: source.head,
        toBase: write.base,
        toBatch: into.batch,
        toRow: into.row,
        toHead: into.head,
        toCache: toCache ? 1 : 0,
        atScale,
        pairing: rotate && rope ? (rope.pairing === "half" ? 2 : 1) : 0,
        ropeDims: rope?.dims || dim,
        firstTask: 0,
        gridWidth,
      }),
      bindings: { 1: bindingOf(read), 3: whole(frequencies ?? aux), 4: whole(aux), 7: bindingOf(write) },
    });
  };
  move(desc.k, desc.cacheK, ["k", "cacheK"], true, true, at.atKScale);
  move(desc.v, desc.cacheV, ["v", "cacheV"], true, false, at.atVScale);
  if (desc.q && desc.qOut) move(desc.q, desc.qOut, ["q", "qOut"], false, true, none);
  if (desc.advance && batch > 0) advance(desc, target, commands, aux, base);
}

/** Radians a position for each pair of elements. */
function frequenciesOf({ theta, scale = 1, dims }: RopeDesc, dim: number): Float32Array<ArrayBuffer> {
  const rotated = dims || dim;
  return Float32Array.from({ length: rotated / 2 }, (_, i) => (scale || 1) * theta ** ((-2 * i) / rotated));
}

function advance(desc: AppendDesc, target: Target, commands: Commands, aux: GPUBuffer, base: Base): void {
  const buffer = bufferOf(desc.lengths, "lengths", target.memory);
  if (!buffer) return;
  const { byteOffset } = desc.lengths;
  const offset = Math.floor(byteOffset / 256) * 256;
  commands.dispatch({
    shader: shader("advance", "", () => advanceShader),
    work: base.batch,
    groups: [Math.ceil(base.batch / 64), 1],
    params: packParams(appendFields, {
      ...base,
      ...unused,
      rows: desc.k.shape.at(-3)!,
      toBase: byteOffset - offset,
    }),
    bindings: { 4: whole(aux), 7: { buffer: buffer.gpu, offset, size: byteOffset - offset + 4 * base.batch } },
  });
}

const unused = {
  heads: 0,
  dim: 0,
  fromBase: 0,
  fromBatch: 0,
  fromRow: 0,
  fromHead: 0,
  toBatch: 0,
  toRow: 0,
  toHead: 0,
  toCache: 0,
  atScale: 0,
  pairing: 0,
  ropeDims: 0,
  firstTask: 0,
  gridWidth: 0,
} as const;

type Base = Omit<{ readonly [K in keyof typeof appendFields]: number }, keyof typeof unused | "rows" | "toBase">;
