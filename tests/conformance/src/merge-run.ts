/** Merge cases: partial results over disjoint keys, against the float64 formula of semantics.md. */

import { attention, type MergeCase } from "./case.js";
import { type HostTensor, hostTensor } from "./codec.js";
import { describe, worst } from "./compare.js";
import type { TensorDesc } from "./contract.js";
import { type LayoutName, Placement } from "./layout.js";
import { buildProblem } from "./problem.js";
import { Random } from "./random.js";
import { type Cell, isTesseraError, textOf } from "./run.js";
import { solve } from "./truth.js";

export async function runMerge(c: MergeCase, cell: Cell): Promise<void> {
  for (const layout of cell.layouts) {
    if (layout === "interleaved" || layout === "expanded") continue;
    if (c.attention) await mergeAttention(c, layout, cell);
    else await mergeParts(c, layout, cell);
  }
}

interface Part {
  readonly out: HostTensor;
  readonly lse: HostTensor;
}

function makeParts(c: MergeCase): Part[] {
  const random = new Random(c.name);
  const rows = c.batch * c.queries * c.heads;
  return Array.from({ length: c.parts }, (_, p) => {
    const empty = (row: number) => c.empty?.[p] === "all" || (c.empty?.[p] === "some" && row % 3 === 0);
    const values = new Float32Array(rows * c.valueDim);
    const lse = new Float32Array(rows);
    for (let b = 0, row = 0; b < c.batch; b++) {
      for (let i = 0; i < c.queries; i++) {
        for (let h = 0; h < c.heads; h++, row++) {
          const gone = empty(row);
          // What an empty part holds has no influence, whatever it is.
          for (let d = 0; d < c.valueDim; d++)
            values[row * c.valueDim + d] = gone ? (p % 2 ? 0 : Number.NaN) : random.normal();
          const spread = c.input === "far-apart" ? 60 * (p - (row % c.parts)) : c.input === "large" ? 80000 : 0;
          lse[(b * c.heads + h) * c.queries + i] = gone ? Number.NEGATIVE_INFINITY : random.normal() * 2 + spread;
        }
      }
    }
    return {
      out: hostTensor(c.type, [c.batch, c.queries, c.heads, c.valueDim], values),
      lse: hostTensor("f32", [c.batch, c.heads, c.queries], lse),
    };
  });
}

function solveMerge(c: MergeCase, parts: readonly Part[]): { out: Float64Array; lse: Float64Array; largest: number } {
  const rows = c.batch * c.queries * c.heads;
  const out = new Float64Array(rows * c.valueDim);
  const lse = new Float64Array(rows).fill(Number.NEGATIVE_INFINITY);
  let largest = 0;
  for (let b = 0, row = 0; b < c.batch; b++) {
    for (let i = 0; i < c.queries; i++) {
      for (let h = 0; h < c.heads; h++, row++) {
        const at = (b * c.heads + h) * c.queries + i;
        const max = Math.max(...parts.map((part) => part.lse.values[at] as number));
        if (max === Number.NEGATIVE_INFINITY) continue;
        let total = 0;
        for (const part of parts) {
          const weight = Math.exp((part.lse.values[at] as number) - max);
          if (weight === 0) continue;
          total += weight;
          for (let d = 0; d < c.valueDim; d++) {
            const value = part.out.values[row * c.valueDim + d] as number;
            largest = Math.max(largest, Math.abs(value));
            out[row * c.valueDim + d] = (out[row * c.valueDim + d] as number) + weight * value;
          }
        }
        for (let d = 0; d < c.valueDim; d++) out[row * c.valueDim + d] = (out[row * c.valueDim + d] as number) / total;
        lse[at] = max + Math.log(total);
      }
    }
  }
  return { out, lse, largest };
}

const halfStep = { f32: 0, f16: 2 ** -11, bf16: 2 ** -8 };

async function mergeParts(c: MergeCase, layout: LayoutName, { context, record, complete }: Cell): Promise<void> {
  const parts = makeParts(c);
  const truth = solveMerge(c, parts);
  const placement = new Placement(context, layout);
  try {
    const placed = parts.map((part) => {
      const tensors = placement.tensors({ q: part.out });
      return { out: (tensors as { q: TensorDesc }).q, lse: placement.plain(part.lse) };
    });
    await context.merge({
      outs: placed.map((part) => part.out),
      lses: placed.map((part) => part.lse),
      out: placement.output("out", c.outType, parts[0]?.out.shape ?? []),
      ...(c.wantLse && { lse: placement.output("lse", "f32", parts[0]?.lse.shape ?? []) }),
    });
    await placement.inputsIntact();
    const out = worst(
      await placement.result("out"),
      c.outType,
      truth.out,
      (want) => truth.largest * 4e-6 + Math.abs(want) * halfStep[c.outType] + 2 ** -25,
    );
    const lse = c.wantLse
      ? worst(await placement.result("lse"), "f32", truth.lse, (want) => 1e-5 + 1e-6 * Math.abs(want))
      : null;
    if (out) record.fail(layout, "merge", "result", describe("out", out, parts[0]?.out.shape ?? []));
    else if (lse) record.fail(layout, "merge", "result", describe("lse", lse, parts[0]?.lse.shape ?? []));
    else record.pass("merge");
  } catch (error) {
    if (isTesseraError(error) && error.code === "unsupported" && !complete)
      record.unsupported(layout, "merge", error.message);
    else record.fail(layout, "merge", "error", textOf(error));
  } finally {
    placement.dispose();
  }
}

/** Attention over ranges of the keys, merged, is attention over all of them. */
async function mergeAttention(c: MergeCase, layout: LayoutName, { context, record, kernels }: Cell): Promise<void> {
  const { ranges, dim } = c.attention as NonNullable<MergeCase["attention"]>;
  const keys = ranges.reduce((a, b) => a + b, 0);
  const whole = attention(c.name, c.about, [c.batch, c.queries, keys, c.heads, c.heads, dim, c.valueDim], {
    types: c.type,
  });
  const problem = buildProblem(whole);
  const truth = solve(problem, whole.types);
  for (const kernel of kernels) {
    const placement = new Placement(context, layout);
    try {
      const { q, k, v } = placement.tensors({ q: problem.q, k: problem.k, v: problem.v }) as Record<
        "q" | "k" | "v",
        TensorDesc
      >;
      const part = (t: TensorDesc, from: number, n: number): TensorDesc => ({
        ...t,
        byteOffset: t.byteOffset + from * (t.strides[1] as number) * (t.dtype === "f32" ? 4 : 2),
        shape: [t.shape[0] as number, n, ...t.shape.slice(2)],
      });
      const outs: TensorDesc[] = [];
      const lses: TensorDesc[] = [];
      let from = 0;
      for (const n of ranges) {
        outs.push(placement.output(`out${outs.length}`, "f32", problem.outShape));
        lses.push(placement.output(`lse${lses.length}`, "f32", problem.lseShape));
        const desc = {
          q,
          k: part(k, from, n),
          v: part(v, from, n),
          out: outs.at(-1) as TensorDesc,
          lse: lses.at(-1) as TensorDesc,
        };
        await context.attention({ ...desc, kernel: kernel.name });
        from += n;
      }
      await context.merge({
        outs,
        lses,
        out: placement.output("out", c.outType, problem.outShape),
        lse: placement.output("lse", "f32", problem.lseShape),
      });
      const out = worst(
        await placement.result("out"),
        c.outType,
        truth.out,
        2 * truth.outBound + halfStep[c.outType] * 4,
      );
      const lse = worst(await placement.result("lse"), "f32", truth.lse, (want) => 2 * truth.lseBound(want));
      const off = out ? describe("out", out, problem.outShape) : lse ? describe("lse", lse, problem.lseShape) : null;
      if (off) record.fail(layout, kernel.name, "result", off);
      else record.pass(kernel.name);
    } catch (error) {
      if (isTesseraError(error) && error.code === "unsupported") record.unsupported(layout, kernel.name, error.message);
      else record.fail(layout, kernel.name, "error", textOf(error));
    } finally {
      placement.dispose();
    }
  }
}
