/** The options whose cost is measured, each beside plain causal attention. */
import { type Engine, encode } from "@tessera/core";
import type { Extra } from "./case.js";
import { normals, period } from "./random.js";
import type { Shape } from "./result.js";

interface Feature {
  readonly name: string;
  readonly causal?: boolean;
  readonly window?: (shape: Shape) => number;
  readonly extra?: (engine: Engine, shape: Shape) => Extra;
}

const steps = (batch: number, each: number) => Int32Array.from({ length: batch + 1 }, (_, b) => b * each);
const repeated = (batch: number, value: number) => new Int32Array(batch).fill(value);

function owned(tensors: readonly { dispose(): void }[], rest: Omit<Extra, "owned">): Extra {
  return { ...rest, owned: tensors };
}

/** [1,1,Sq,Sk] of one period, repeated. */
function plane<T extends Uint16Array | Uint8Array>(values: T, { queries, keys }: Shape): { all: T; row(i: number): T } {
  const all = new (values.constructor as new (count: number) => T)(queries * keys);
  for (let at = 0; at < all.length; at += values.length) all.set(values.subarray(0, all.length - at) as never, at);
  return { all, row: (i) => all.slice(i * keys, (i + 1) * keys) as T };
}

export const features: readonly Feature[] = [
  { name: "causal" },
  { name: "full", causal: false },
  { name: "lse", extra: () => ({ options: { returnLse: true } }) },
  {
    name: "window",
    window: ({ keys }) => Math.max(1, keys / 4),
    extra: (_, { keys }) => {
      const window = [Math.max(1, keys / 4) - 1, 0] as const;
      return { options: { window }, row: () => ({ window }) };
    },
  },
  { name: "softcap", extra: () => ({ options: { softcap: 30 }, row: () => ({ softcap: 30 }) }) },
  {
    name: "alibi",
    extra: (engine, { heads }) => {
      const slopes = Float32Array.from({ length: heads }, (_, h) => 2 ** ((-8 * (h + 1)) / heads));
      const alibiSlopes = engine.tensor(slopes, { shape: [heads] });
      return owned([alibiSlopes], { options: { alibiSlopes }, row: (_, _i, h) => ({ alibiSlopes: [slopes[h]!] }) });
    },
  },
  {
    name: "sinks",
    extra: (engine, { heads }) => {
      const logits = normals(heads, 3);
      const sinks = engine.tensor(logits, { shape: [heads] });
      return owned([sinks], { options: { sinks }, row: (_, _i, h) => ({ sinks: [logits[h]!] }) });
    },
  },
  {
    name: "bias",
    extra: (engine, shape) => {
      const { all, row } = plane(encode(normals(period, 2), "f16"), shape);
      const bias = engine.tensor(all, { shape: [1, 1, shape.queries, shape.keys], dtype: "f16" });
      const one = (i: number) => ({ data: row(i), shape: [1, 1, 1, shape.keys], dtype: "f16" });
      return owned([bias], { options: { bias }, row: (_, i) => ({ bias: one(i) }) });
    },
  },
  {
    name: "mask",
    extra: (engine, shape) => {
      // Seven keys of eight are visible, in no order that a kernel could make use of.
      const { all, row } = plane(
        Uint8Array.from(normals(period, 4), (value) => (value > -1.15 ? 1 : 0)),
        shape,
      );
      const mask = engine.tensor(all, { shape: [1, 1, shape.queries, shape.keys], dtype: "bool" });
      return owned([mask], {
        options: { mask },
        row: (_, i) => ({ mask: { data: row(i), shape: [1, 1, 1, shape.keys], dtype: "bool" } }),
      });
    },
  },
  {
    name: "offset",
    extra: (engine, { batch, queries, keys }) => {
      const queryOffset = engine.tensor(repeated(batch, keys - queries), { shape: [batch] });
      return owned([queryOffset], { options: { queryOffset } });
    },
  },
  {
    name: "lengths",
    extra: (engine, { batch, queries, keys }) => {
      const seqLensQ = engine.tensor(repeated(batch, queries), { shape: [batch] });
      const seqLensK = engine.tensor(repeated(batch, keys), { shape: [batch] });
      return owned([seqLensQ, seqLensK], { options: { seqLensQ, seqLensK } });
    },
  },
  {
    name: "packed",
    extra: (_, { batch, queries, keys }) => ({
      options: { cuSeqLensQ: steps(batch, queries), cuSeqLensK: steps(batch, keys) },
      form: "packed",
    }),
  },
  {
    name: "paged",
    extra: (engine, { batch, keys }) => {
      const pageSize = 64;
      const pages = keys / pageSize;
      const pageTable = engine.tensor(
        Int32Array.from({ length: batch * pages }, (_, page) => page),
        { shape: [batch, pages] },
      );
      const seqLensK = engine.tensor(repeated(batch, keys), { shape: [batch] });
      return owned([pageTable, seqLensK], { options: { pageTable, seqLensK }, form: { pageSize } });
    },
  },
];
