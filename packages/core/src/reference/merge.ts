/** Attention results over disjoint keys, combined by their LSE. An empty part (-inf) is the neutral element. */
import type { MergeDesc } from "../backend.js";
import { writeElements } from "../codec.js";
import type { FloatDType } from "../dtype.js";
import { lseView, readRow, rowsView } from "../problem.js";
import { memoryOf } from "./memory.js";

/** Merges row by row; yields after each head of each batch entry. */
export function* merge(desc: MergeDesc): Generator<void, void> {
  const [rows, heads, dim] = desc.out.shape.slice(-3) as [number, number, number];
  const batch = desc.out.shape.length === 4 ? desc.out.shape[0]! : 1;
  const outs = desc.outs.map((out) => rowsView(out, memoryOf));
  const lses = desc.lses.map((lse) => lseView(lse, memoryOf));
  const out = rowsView(desc.out, memoryOf);
  const lse = desc.lse && lseView(desc.lse, memoryOf);
  const row = new Float64Array(dim);
  const total = new Float64Array(dim);

  for (let b = 0; b < batch; b++) {
    for (let head = 0; head < heads; head++) {
      for (let i = 0; i < rows; i++) {
        const parts = lses.map(
          (part) => part.elements[b * part.batchStride + head * part.headStride + i * part.rowStride]!,
        );
        let max = Number.NEGATIVE_INFINITY;
        for (const part of parts) if (part > max || Number.isNaN(part)) max = part;
        let sum = 0;
        total.fill(0);
        for (const [n, part] of parts.entries()) {
          if (part === Number.NEGATIVE_INFINITY) continue;
          const weight = Math.exp(part - max);
          const from = outs[n]!;
          readRow(from, b * from.batchStride + i * from.rowStride + head * from.headStride, dim, row, 0);
          sum += weight;
          for (let d = 0; d < dim; d++) total[d]! += weight * row[d]!;
        }
        if (sum !== 0) for (let d = 0; d < dim; d++) total[d]! /= sum;
        const at = b * out.batchStride + i * out.rowStride + head * out.headStride;
        writeElements(out.dtype as FloatDType, out.elements, at, dim, total, 0);
        if (lse) lse.elements[b * lse.batchStride + head * lse.headStride + i * lse.rowStride] = max + Math.log(sum);
      }
      yield;
    }
  }
}
