/** Append cases: what a cache holds after each step, what it must not hold, and attention over it at the end. */
import type { CacheDType } from "@tessera/core";
import type { AppendCase } from "./case.js";
import { bytesFor, decode, decodeF16, encode, type HostTensor, hostTensor } from "./codec.js";
import { describe, sameBytes, worst } from "./compare.js";
import type { AppendDesc, AttentionDesc, TensorDesc } from "./contract.js";
import { solveFlushed } from "./flushed.js";
import { type LayoutName, Placement } from "./layout.js";
import type { Problem } from "./problem.js";
import { Random } from "./random.js";
import { withRoundedQ } from "./rounded-q.js";
import { type Cell, isTesseraError, textOf } from "./run.js";
import { solve } from "./truth.js";

const product = (xs: readonly number[]) => xs.reduce((a, b) => a * b, 1);
const i32 = (shape: readonly number[], values: readonly number[]) => hostTensor("i32", shape, values);

/** A cache with what it holds before, poisoned beyond. */
interface Cache {
  readonly shapeK: readonly number[];
  readonly shapeV: readonly number[];
  readonly k: Uint8Array;
  readonly v: Uint8Array;
  readonly table?: HostTensor;
  row(b: number, at: number): number;
}

function makeCache(c: AppendCase, random: Random): Cache {
  const size = c.pages?.size ?? 0;
  const perEntry = size ? Math.ceil(c.capacity / size) : 0;
  const lead = size ? [c.batch * perEntry + 3, size] : [c.batch, c.capacity];
  const order = size ? random.permutation(lead[0] as number) : [];
  const row = (b: number, at: number) =>
    size ? (order[b * perEntry + Math.floor(at / size)] as number) * size + (at % size) : b * c.capacity + at;
  const shapeK = [...lead, c.kvHeads, c.dim];
  const shapeV = [...lead, c.kvHeads, c.valueDim];
  const fill = (shape: readonly number[], dtype: CacheDType) => {
    const width = (shape[2] as number) * (shape[3] as number);
    const rowBytes = bytesFor(dtype, width);
    const bytes = new Uint8Array(bytesFor(dtype, product(shape))).fill(0xff);
    c.before.forEach((n, b) => {
      for (let at = 0; at < n; at++) {
        bytes.set(
          encode(
            Float32Array.from({ length: width }, () => random.normal()),
            dtype,
          ),
          row(b, at) * rowBytes,
        );
      }
    });
    return bytes;
  };
  return {
    shapeK,
    shapeV,
    k: fill(shapeK, c.types.k),
    v: fill(shapeV, c.types.v),
    ...(size && { table: i32([c.batch, perEntry], order.slice(0, c.batch * perEntry)) }),
    row,
  };
}

/** The new tokens of one step. Rows that aren't real are NaN: they must go nowhere. */
interface Step {
  readonly real: readonly number[];
  readonly q: HostTensor;
  readonly k: HostTensor;
  readonly v: HostTensor;
  readonly positions: HostTensor;
  readonly newLens?: HostTensor;
  readonly cuSeqLens?: HostTensor;
  row(b: number, t: number): number;
}

function makeStep(c: AppendCase, index: number, lengths: readonly number[], random: Random): Step {
  const { tokens, real = Array<number>(c.batch).fill(tokens) } = c.steps[index] as AppendCase["steps"][number];
  const starts = [0];
  for (const n of real) starts.push((starts.at(-1) as number) + n);
  const lead = c.packed ? [starts.at(-1) as number] : [c.batch, tokens];
  const row = (b: number, t: number) => (c.packed ? (starts[b] as number) + t : b * tokens + t);
  const input = c.types.q; // appended k and v have q's type: the cache's is what they are converted to
  const make = (heads: number, dim: number) => {
    const values = Float32Array.from({ length: product(lead) * heads * dim }, () => random.normal());
    const tensor = hostTensor(input, [...lead, heads, dim], values);
    const rowBytes = bytesFor(input, heads * dim);
    // A NaN of other bits than the cache's poison, so that one that is written shows.
    const padding = encode(new Float32Array(heads * dim).fill(Number.NaN), input);
    if (!c.packed) {
      for (let b = 0; b < c.batch; b++) {
        for (let t = real[b] as number; t < tokens; t++) tensor.bytes.set(padding, row(b, t) * rowBytes);
      }
    }
    return tensor;
  };
  const positions = new Int32Array(product(lead));
  for (let b = 0; b < c.batch; b++) {
    for (let t = 0; t < (real[b] as number); t++) {
      const at = (lengths[b] as number) + t;
      positions[row(b, t)] = c.rope?.positions ? at * 3 + 5 : at;
    }
  }
  return {
    real,
    q: make(c.heads, c.dim),
    k: make(c.kvHeads, c.dim),
    v: make(c.kvHeads, c.valueDim),
    positions: i32(lead, [...positions]),
    ...(c.steps[index]?.real && !c.packed && { newLens: i32([c.batch], real) }),
    ...(c.packed && { cuSeqLens: i32([c.batch + 1], starts) }),
    row,
  };
}

/** A row of heads x dim after the rotation at a position, and how much fp32 may be off. */
function rotate(
  c: AppendCase,
  values: Float32Array,
  at: number,
  dim: number,
  position: number,
): { x: Float64Array; slack: Float64Array } {
  const x = Float64Array.from(values.subarray(at, at + dim));
  const slack = new Float64Array(dim);
  if (!c.rope) return { x, slack };
  const { pairing, theta, dims = dim, scale = 1 } = c.rope;
  for (let i = 0; i < dims / 2; i++) {
    const [a, b] = pairing === "half" ? [i, i + dims / 2] : [2 * i, 2 * i + 1];
    const angle = position * scale * theta ** ((-2 * i) / dims);
    const [u, w] = [x[a] as number, x[b] as number];
    x[a] = u * Math.cos(angle) - w * Math.sin(angle);
    x[b] = u * Math.sin(angle) + w * Math.cos(angle);
    slack[a] = slack[b] = Math.hypot(u, w) * (1e-6 + 4e-7 * Math.abs(angle));
  }
  return { x, slack };
}

/** Largest distance of a stored value from what was to be stored. `block` is the encoded block of 32 around it. */
function storageError(dtype: CacheDType, value: number, d: number): number {
  const magnitude = Math.abs(value);
  switch (dtype) {
    case "f32":
      return magnitude * 2 ** -24 + 1e-38;
    case "f16":
      return Math.max(magnitude * 2 ** -11, 2 ** -25);
    case "bf16":
      return magnitude * 2 ** -8 + 1e-38;
    case "f8_e4m3":
      return Math.max(magnitude * 2 ** -4, 2 ** -10);
    case "q8_0":
      return Math.abs(d) * 0.57;
    case "q4_0":
      return Math.abs(d) * 1.02;
  }
}

/** Text of what is wrong in a cache tensor, or null. `expected` rows are checked, all others must be as before. */
function checkCache(
  name: string,
  dtype: CacheDType,
  shape: readonly number[],
  before: Uint8Array,
  after: Uint8Array,
  expected: ReadonlyMap<number, { x: Float64Array; slack: Float64Array }>,
  exactly: boolean,
  scale: Float32Array | undefined,
): string | null {
  const dim = shape[3] as number;
  const width = (shape[2] as number) * dim;
  const rowBytes = bytesFor(dtype, width);
  for (let row = 0; row < after.length / rowBytes; row++) {
    const now = after.subarray(row * rowBytes, (row + 1) * rowBytes);
    const want = expected.get(row);
    if (!want) {
      if (!sameBytes(now, before.subarray(row * rowBytes, (row + 1) * rowBytes))) {
        return `${name}: row ${row}, which no new token belongs to, was written`;
      }
      continue;
    }
    // What a head stores: f8 divides by its scale.
    const stored = want.x.map((x, i) => x / (scale?.[Math.floor(i / dim)] ?? 1));
    if (exactly) {
      const bytes = encode(Float32Array.from(stored), dtype);
      const at = bytes.findIndex((byte, i) => byte !== now[i]);
      if (at >= 0) return `${name}: row ${row}, byte ${at} is ${now[at]}, must be ${bytes[at]}`;
      continue;
    }
    const values = decode(now.slice(), dtype);
    for (let i = 0; i < width; i++) {
      const block = Math.floor(i / 32) * (dtype === "q8_0" ? 34 : 18);
      const d = dtype.startsWith("q") ? decodeF16((now[block] as number) | ((now[block + 1] as number) << 8)) : 0;
      const slack = (want.slack[i] as number) / (scale?.[Math.floor(i / dim)] ?? 1);
      const bound = (storageError(dtype, stored[i] as number, d) + slack) * 1.001;
      const error = Math.abs((values[i] as number) - (stored[i] as number));
      if (!(error <= bound)) {
        return `${name}: row ${row}, element ${i} is ${values[i]}, must be ${stored[i]}: error ${error.toExponential(2)}, bound ${bound.toExponential(2)}`;
      }
    }
  }
  return null;
}

export async function runAppend(c: AppendCase, cell: Cell): Promise<void> {
  for (const layout of cell.layouts) {
    if (layout === "expanded") continue;
    // The fused form goes through a kernel; the plain one appends once for all kernels.
    const kernels = c.fused ? cell.kernels.map((kernel) => [kernel]) : [cell.kernels];
    for (const group of kernels) await runOnce(c, layout, { ...cell, kernels: group });
  }
}

async function runOnce(c: AppendCase, layout: LayoutName, cell: Cell): Promise<void> {
  const { context, record } = cell;
  const random = new Random(c.name);
  const cache = makeCache(c, random);
  const placement = new Placement(context, layout);
  const label = cell.kernels.length === 1 ? (cell.kernels[0]?.name ?? "-") : "append";
  const fail = (message: string) => record.fail(layout, label, "result", message);
  try {
    const cacheK = placement.output("cacheK", c.types.k, cache.shapeK, cache.k);
    const cacheV = placement.output("cacheV", c.types.v, cache.shapeV, cache.v);
    const scaleOf = (on: boolean, first: number) =>
      c.cacheScales && on
        ? hostTensor(
            "f32",
            [c.kvHeads],
            Array.from({ length: c.kvHeads }, (_, h) => first * 2 ** (h % 3)),
          )
        : undefined;
    const kScale = scaleOf(c.types.k === "f8_e4m3", 0.25);
    const vScale = scaleOf(c.types.v === "f8_e4m3", 0.5);
    const shared = {
      ...(cache.table && { pageTable: placement.table(cache.table) }),
      ...(kScale && { kScale: placement.plain(kScale) }),
      ...(vScale && { vScale: placement.plain(vScale) }),
    };
    let lengths = [...c.before];
    let before = { k: cache.k, v: cache.v };
    for (let s = 0; s < c.steps.length; s++) {
      const step = makeStep(c, s, lengths, random);
      const inputs = placement.tensors({ q: step.q, k: step.k, v: step.v });
      if (!inputs) return;
      const lengthsDesc = placement.output("lengths", "i32", [c.batch], encode(lengths, "i32"));
      const rotateQ = c.rope?.rotateQ;
      const qOut =
        rotateQ === "apart"
          ? placement.output("qOut", c.types.q, step.q.shape)
          : placement.output("qOut", c.types.q, step.q.shape, step.q.bytes);
      const desc: AppendDesc = {
        k: inputs.k,
        v: inputs.v,
        ...(rotateQ && { q: rotateQ === "apart" ? inputs.q : qOut, qOut }),
        cacheK,
        cacheV,
        lengths: lengthsDesc,
        ...(step.newLens && { newLens: placement.plain(step.newLens) }),
        ...(step.cuSeqLens && { cuSeqLens: placement.plain(step.cuSeqLens) }),
        ...shared,
        ...(c.rope && {
          rope: {
            pairing: c.rope.pairing,
            theta: c.rope.theta,
            ...(c.rope.dims !== undefined && { dims: c.rope.dims }),
            ...(c.rope.scale !== undefined && { scale: c.rope.scale }),
            ...(c.rope.positions && { positions: placement.plain(step.positions) }),
          },
        }),
        advance: true,
      };
      const after = lengths.map((n, b) => n + (step.real[b] as number));
      const last = s === c.steps.length - 1;
      if (!(last && c.fused)) {
        try {
          await context.append(desc);
        } catch (error) {
          if (isTesseraError(error) && error.code === "unsupported" && !cell.complete) {
            return record.unsupported(layout, label, error.message);
          }
          return record.fail(layout, label, "error", textOf(error));
        }
        const wrong = await verify(c, placement, step, lengths, after, cache, before, kScale, vScale);
        if (wrong.text) return fail(wrong.text);
        before = wrong.now;
      }
      if (last) {
        const fused = c.fused ? { desc, step, lengths, before } : null;
        await attend(c, layout, placement, cell, {
          cache,
          cacheK,
          cacheV,
          after,
          shared,
          kScale,
          vScale,
          random,
          fused,
          qOut,
        });
      }
      lengths = after;
    }
    await placement.inputsIntact();
    if (!c.fused) record.pass(label);
  } catch (error) {
    record.fail(
      layout,
      label,
      textOf(error).includes("canary") || textOf(error).includes("input:") ? "memory" : "error",
      textOf(error),
    );
  } finally {
    placement.dispose();
  }
}

async function verify(
  c: AppendCase,
  placement: Placement,
  step: Step,
  lengths: readonly number[],
  after: readonly number[],
  cache: Cache,
  before: { k: Uint8Array; v: Uint8Array },
  kScale: HostTensor | undefined,
  vScale: HostTensor | undefined,
): Promise<{ text: string | null; now: { k: Uint8Array; v: Uint8Array } }> {
  const expectedK = new Map<number, { x: Float64Array; slack: Float64Array }>();
  const expectedV = new Map<number, { x: Float64Array; slack: Float64Array }>();
  const qWant = new Float64Array(step.q.values.length);
  const qBound = new Float64Array(step.q.values.length).fill(Number.POSITIVE_INFINITY);
  for (let b = 0; b < c.batch; b++) {
    for (let t = 0; t < (step.real[b] as number); t++) {
      const from = step.row(b, t);
      const to = cache.row(b, (lengths[b] as number) + t);
      const position = step.positions.values[from] as number;
      const rowK = { x: new Float64Array(c.kvHeads * c.dim), slack: new Float64Array(c.kvHeads * c.dim) };
      for (let h = 0; h < c.kvHeads; h++) {
        const { x, slack } = rotate(c, step.k.values, (from * c.kvHeads + h) * c.dim, c.dim, position);
        rowK.x.set(x, h * c.dim);
        rowK.slack.set(slack, h * c.dim);
      }
      expectedK.set(to, rowK);
      const width = c.kvHeads * c.valueDim;
      expectedV.set(to, {
        x: Float64Array.from(step.v.values.subarray(from * width, (from + 1) * width)),
        slack: new Float64Array(width),
      });
      for (let h = 0; h < c.heads; h++) {
        const at = (from * c.heads + h) * c.dim;
        const { x, slack } = rotate(c, step.q.values, at, c.dim, position);
        x.forEach((value, d) => {
          qWant[at + d] = value;
          qBound[at + d] = ((slack[d] as number) + storageError(c.types.q, value, 0)) * 1.001;
        });
      }
    }
  }
  const now = { k: await placement.result("cacheK"), v: await placement.result("cacheV") };
  const counted = decode(await placement.result("lengths"), "i32");
  let text =
    checkCache("cache k", c.types.k, cache.shapeK, before.k, now.k, expectedK, !c.rope, kScale?.values) ??
    checkCache("cache v", c.types.v, cache.shapeV, before.v, now.v, expectedV, true, vScale?.values);
  after.forEach((n, b) => {
    if (counted[b] !== n) text ??= `lengths[${b}] is ${counted[b]}, must be ${n}`;
  });
  if (c.rope?.rotateQ && !text) {
    const rotated = await placement.result("qOut");
    for (let i = 0; i < qBound.length; i++)
      if (qBound[i] === Number.POSITIVE_INFINITY) qWant[i] = decode(rotated, c.types.q)[i] as number;
    const off = worst(rotated, c.types.q, qWant, (want, i) => (Number.isFinite(want) ? (qBound[i] as number) : 0));
    if (off) text = describe("qOut", off, step.q.shape);
  }
  return { text, now };
}

interface AttendState {
  readonly cache: Cache;
  readonly cacheK: TensorDesc;
  readonly cacheV: TensorDesc;
  readonly after: readonly number[];
  readonly shared: object;
  readonly kScale: HostTensor | undefined;
  readonly vScale: HostTensor | undefined;
  readonly random: Random;
  readonly qOut: TensorDesc;
  readonly fused: {
    readonly desc: AppendDesc;
    readonly step: Step;
    readonly lengths: readonly number[];
    readonly before: { k: Uint8Array; v: Uint8Array };
  } | null;
}

/** Causal attention of the newest tokens over the cache, against the truth for what the cache holds. */
async function attend(
  c: AppendCase,
  layout: LayoutName,
  placement: Placement,
  cell: Cell,
  state: AttendState,
): Promise<void> {
  const { context, record } = cell;
  const { cache, after, fused, random, kScale, vScale } = state;
  // The fused step attends with the queries that it rotates.
  const rotated = fused && c.rope?.rotateQ !== undefined;
  const queries = fused ? (c.steps.at(-1) as { tokens: number }).tokens : c.decode;
  const q = rotated
    ? fused.step.q
    : hostTensor(
        c.types.q,
        [c.batch, queries, c.heads, c.dim],
        Float32Array.from({ length: c.batch * queries * c.heads * c.dim }, () => random.normal()),
      );
  const qDesc = rotated ? state.qOut : placement.plain(q);
  const outShape = [c.batch, queries, c.heads, c.valueDim];
  const lseShape = [c.batch, c.heads, queries];
  const lengthsDesc = placement.plain(i32([c.batch], after));
  for (const kernel of cell.kernels) {
    const desc: AttentionDesc = {
      q: qDesc,
      k: state.cacheK,
      v: state.cacheV,
      out: placement.output("out", c.types.out, outShape),
      lse: placement.output("lse", "f32", lseShape),
      causal: true,
      seqLensK: lengthsDesc,
      ...state.shared,
      kernel: kernel.name,
    };
    const support = context.supports(desc);
    if (!support.supported) {
      record.unsupported(layout, kernel.name, support.reason);
      continue;
    }
    let now: { k: Uint8Array; v: Uint8Array };
    if (fused) {
      await context.decode({ append: fused.desc, attention: desc });
      const checked = await verify(c, placement, fused.step, fused.lengths, after, cache, fused.before, kScale, vScale);
      if (checked.text) {
        record.fail(layout, kernel.name, "result", checked.text);
        continue;
      }
      now = checked.now;
    } else {
      await context.decode({ attention: desc });
      now = { k: await placement.result("cacheK"), v: await placement.result("cacheV") };
    }
    const qBytes = rotated ? await placement.result("qOut") : q.bytes;
    const problem: Problem = {
      batch: c.batch,
      heads: c.heads,
      kvHeads: c.kvHeads,
      dim: c.dim,
      valueDim: c.valueDim,
      queryCounts: Array<number>(c.batch).fill(queries),
      keyCounts: after,
      offsets: after.map((n) => n - queries),
      scale: 1 / Math.sqrt(c.dim),
      softcap: 0,
      causal: true,
      window: [-1, -1],
      q: { ...q, values: decode(qBytes, c.types.q) },
      k: { dtype: c.types.k, shape: cache.shapeK, bytes: now.k, values: decode(now.k, c.types.k) },
      v: { dtype: c.types.v, shape: cache.shapeV, bytes: now.v, values: decode(now.v, c.types.v) },
      queryRow: (b, i) => b * queries + i,
      keyRow: cache.row,
      lseIndex: (b, h, i) => (b * c.heads + h) * queries + i,
      outShape,
      lseShape,
      ...(kScale && { kScale }),
      ...(vScale && { vScale }),
    };
    const truth = kernel.flushes
      ? solveFlushed(problem, c.types)
      : solve(kernel.roundsQ ? withRoundedQ(problem) : problem, c.types);
    const out = worst(await placement.result("out"), c.types.out, truth.out, truth.outBound);
    const lse = worst(await placement.result("lse"), "f32", truth.lse, truth.lseBound);
    if (out) record.fail(layout, kernel.name, "result", describe("out", out, outShape));
    else if (lse) record.fail(layout, kernel.name, "result", describe("lse", lse, lseShape));
    else record.pass(kernel.name);
  }
}
