/** Lengths, starts and pages that came in tensors: the engine can't see into those, so they are checked here. */
import { invalid } from "../invalid.js";
import type { Problem } from "../problem.js";

function within(values: Int32Array | undefined, count: number, most: number, name: string): void {
  for (let b = 0; values && b < count; b++) {
    if (values[b]! < 0 || values[b]! > most) throw invalid(`${name}[${b}] is ${values[b]}; allowed: 0 to ${most}`);
  }
}

export function rising(starts: Int32Array | undefined, count: number, rows: number, name: string): void {
  if (!starts) return;
  if (starts[0] !== 0) throw invalid(`${name}[0] is ${starts[0]}; allowed: 0`);
  for (let b = 1; b <= count; b++) {
    if (starts[b]! < starts[b - 1]!)
      throw invalid(`${name}[${b}] is ${starts[b]}, less than ${starts[b - 1]} before it; allowed: rising or equal`);
  }
  if (starts[count] !== rows)
    throw invalid(`${name} ends with ${starts[count]}; allowed: ${rows}, the rows that are packed`);
}

/** @throws TesseraError `invalid-argument` */
export function checkContents(p: Problem): void {
  within(p.seqLensQ, p.batch, p.queryRows, "seqLensQ");
  rising(p.cuSeqLensQ, p.batch, p.queryRows, "cuSeqLensQ");
  rising(p.cuSeqLensK, p.batch, p.keyRows, "cuSeqLensK");
  if (p.pageSize === 0) {
    within(p.seqLensK, p.batch, p.keyRows, "seqLensK");
    return;
  }
  within(p.seqLensK, p.batch, p.pagesPerSequence * p.pageSize, "seqLensK");
  for (let b = 0; b < p.batch; b++)
    checkPagesOf(p.pageTable!, b * p.pageTableStride, p.seqLensK![b]!, p.pageSize, p.pageCount, b);
}

/** Every page that a sequence of `length` reaches exists. */
export function checkPagesOf(
  table: Int32Array,
  at: number,
  length: number,
  pageSize: number,
  pages: number,
  b: number,
): void {
  const used = Math.ceil(length / pageSize);
  for (let n = 0; n < used; n++) {
    const page = table[at + n]!;
    if (page < 0 || page >= pages) throw invalid(`pageTable[${b}][${n}] is ${page}; allowed: 0 to ${pages - 1}`);
  }
}
