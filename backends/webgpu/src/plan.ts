/**
 * A problem as dispatches. Where a tensor is larger than a binding may be, the problem is divided: by entries, heads or
 * queries, which are independent, or by keys (of a paged cache: by pages), whose results are joined.
 */
import { TesseraError } from "@tessera/core/web";
import { type Operand, type Window, windowOf } from "./operand.js";

export type Range = readonly [from: number, to: number];

/** Tensors of a call by name, and its sizes. */
export interface Problem {
  readonly q: Operand;
  readonly k: Operand;
  readonly v: Operand;
  readonly out: Operand;
  readonly lse: Operand | undefined;
  readonly bias: Operand | undefined;
  readonly mask: Operand | undefined;
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly group: number;
  readonly dim: number;
  readonly valueDim: number;
  /** Of q and k: rows of an entry, or of all that are packed. */
  readonly queryRows: number;
  readonly keyRows: number;
  /** Most queries and keys that an entry may have. */
  readonly queries: number;
  readonly keys: number;
  readonly packedQ: boolean;
  readonly packedK: boolean;
  /** 0: not paged. */
  readonly pageSize: number;
  readonly pages: number;
}

/** What one dispatch works on. */
export interface Box {
  readonly batch: Range;
  readonly kvHead: Range;
  readonly query: Range;
  readonly key: Range;
  readonly page: Range;
}

/** Rows whose results are whole once its parts over the keys are joined. */
export interface Piece {
  readonly box: Box;
  readonly parts: readonly Box[];
}

export type TensorName = "q" | "k" | "v" | "out" | "lse" | "bias" | "mask";

const names: readonly TensorName[] = ["q", "k", "v", "out", "lse", "bias", "mask"];

/** What of a tensor a box touches. */
export function windowFor(p: Problem, name: TensorName, box: Box, alignment?: number): Window | undefined {
  const operand = p[name];
  if (!operand) return undefined;
  const head: Range = [box.kvHead[0] * p.group, box.kvHead[1] * p.group];
  const rows: Range = p.packedQ ? [0, p.queryRows] : box.query;
  switch (name) {
    case "q":
      return windowOf(operand, { batch: box.batch, row: rows, head, width: p.dim }, alignment);
    case "out":
      return windowOf(operand, { batch: box.batch, row: rows, head, width: p.valueDim }, alignment);
    case "lse":
      return windowOf(operand, { batch: box.batch, row: rows, head, width: 1 }, alignment);
    case "bias":
    case "mask":
      return windowOf(operand, { batch: box.batch, row: box.query, head, width: box.key[1] }, alignment);
    default: {
      const width = name === "k" ? p.dim : p.valueDim;
      const row: Range = p.pageSize > 0 ? [0, p.pageSize] : p.packedK ? [0, p.keyRows] : box.key;
      const batch = p.pageSize > 0 ? box.page : box.batch;
      return windowOf(operand, { batch, row, head: box.kvHead, width }, alignment);
    }
  }
}

const size = ([from, to]: Range) => to - from;
const halves = ([from, to]: Range, unit = 1): [Range, Range] => {
  const middle = from + Math.ceil(size([from, to]) / 2 / unit) * unit;
  return [
    [from, middle],
    [middle, to],
  ];
};

type Axis = keyof Box;

/** Axes along which a tensor can be divided, and how far it reaches along each. */
function reaches(p: Problem, name: TensorName, box: Box): [axis: Axis, reach: number][] {
  const operand = p[name]!;
  const { batch, row, head } = operand;
  const along = (axis: Axis, stride: number): [Axis, number] => [axis, (size(box[axis]) - 1) * stride];
  if (name === "k" || name === "v") {
    const heads = along("kvHead", head);
    if (p.pageSize > 0) return [along("page", batch), heads];
    return p.packedK ? [heads] : [along("batch", batch), along("key", row), heads];
  }
  const heads = along("kvHead", head * p.group);
  if (p.packedQ && name !== "bias" && name !== "mask") return [heads];
  return [along("batch", batch), along("query", row), heads];
}

/** @throws TesseraError `unsupported` if a tensor can't be divided as far as bindings want it */
export function planOf(p: Problem, limit: number, partsOf: (box: Box) => number): Piece[] {
  const all: Box = {
    batch: [0, p.batch],
    kvHead: [0, p.kvHeads],
    query: [0, p.queries],
    key: [0, p.keys],
    page: [0, p.pages],
  };
  const pieces: Piece[] = [];
  const byRows = (box: Box): void => {
    const large = names.find((name) => tooLarge(p, name, box, limit) && independent(p, name, box) !== undefined);
    if (large !== undefined) {
      for (const half of divided(box, independent(p, large, box)!)) byRows(half);
      return;
    }
    const parts: Box[] = [];
    byKeys(p, box, limit, parts);
    const count = parts.reduce((sum, part) => sum + partsOf(part), 0);
    const rows = size(box.batch) * size(box.kvHead) * p.group * size(box.query);
    if (count > 1 && rows * count * p.valueDim * 4 > limit) {
      const axis = (["query", "batch", "kvHead"] as const).find((one) => size(box[one]) > 1);
      if (axis === undefined) throw new TesseraError("unsupported", `parts of one row need more than ${limit} bytes`);
      for (const half of divided(box, axis)) byRows(half);
      return;
    }
    pieces.push({ box, parts });
  };
  byRows(all);
  return pieces;
}

const tooLarge = (p: Problem, name: TensorName, box: Box, limit: number) =>
  p[name] !== undefined && windowFor(p, name, box)!.size > limit;

/** The axis of rows along which a tensor reaches farthest; none if that is an axis of keys. */
function independent(p: Problem, name: TensorName, box: Box): Axis | undefined {
  const far = reaches(p, name, box)
    .filter(([axis]) => size(box[axis]) > 1)
    .sort((a, b) => b[1] - a[1])[0];
  return far === undefined || far[0] === "key" || far[0] === "page" ? undefined : far[0];
}

const divided = (box: Box, axis: Axis): Box[] => halves(box[axis]).map((range) => ({ ...box, [axis]: range }));

function byKeys(p: Problem, box: Box, limit: number, parts: Box[]): void {
  const large = names.find((name) => tooLarge(p, name, box, limit));
  if (large === undefined) {
    parts.push(box);
    return;
  }
  const axis = p.pageSize > 0 && (large === "k" || large === "v") ? "page" : "key";
  const packed = p.packedK && (large === "k" || large === "v");
  if (size(box[axis]) <= 1 || packed || large === "q" || large === "out" || large === "lse") {
    const bytes = windowFor(p, large, box)!.size;
    throw new TesseraError(
      "unsupported",
      `${large} reaches over ${bytes} bytes that can't be divided further; allowed on this device: ${limit}, what a binding may have`,
    );
  }
  for (const half of divided(box, axis)) byKeys(p, half, limit, parts);
}
