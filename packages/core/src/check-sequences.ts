/** How sequences lie in q, k and v: padded, packed or paged; and what lengths, starts and pages may be. */
import type { AttentionDesc, TensorDesc } from "./backend.js";
import { checkRange, type Mutable, type Options } from "./check-scores.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { type CheckedInts, int32, intsLength, intsOf, type Owner, operandOf } from "./operands.js";
import { shapeText } from "./strides.js";
import { isTensor } from "./tensor-brand.js";

/** What may not go together, before any shape is looked at. */
export function checkCombinations(options: Options): void {
  const given = (name: string) => options[name] !== undefined;
  const clash = (one: string, other: string) => {
    if (given(one) && given(other)) throw invalid(`${one} and ${other} are both given; allowed: one of them`);
  };
  clash("seqLensQ", "cuSeqLensQ");
  clash("seqLensK", "cuSeqLensK");
  clash("pageTable", "cuSeqLensK");
  if (given("pageTable") && !given("seqLensK")) {
    throw invalid("pageTable is given without seqLensK; required: the keys of each sequence, as pages don't tell");
  }
}

/** Number of sequences that packed starts tell. */
export function batchOfStarts(starts: unknown, name: string): number {
  const length = intsLength(starts);
  if (length === undefined)
    throw invalid(`${name} is ${describe(starts)}; allowed: number[], Int32Array or an i32 tensor of B + 1`);
  if (length === 0) throw invalid(`${name} has 0 values; allowed: B + 1`);
  return length - 1;
}

/** Packed starts: from 0, never falling, to `rows`. Returns the longest sequence if the host can tell. */
export function checkStarts(ints: CheckedInts, name: string, rows: number): number | undefined {
  const starts = ints.values;
  if (!starts) return undefined;
  if (starts[0] !== 0) throw invalid(`${name}[0] is ${starts[0]}; allowed: 0`);
  let longest = 0;
  for (let b = 1; b < starts.length; b++) {
    const length = starts[b]! - starts[b - 1]!;
    if (length < 0)
      throw invalid(`${name}[${b}] is ${starts[b]}, less than ${starts[b - 1]} before it; allowed: rising or equal`);
    longest = Math.max(longest, length);
  }
  const last = starts[starts.length - 1];
  if (last !== rows) throw invalid(`${name} ends with ${last}; allowed: ${rows}, the rows that are packed`);
  return longest;
}

/** [B, pages per sequence] as i32; ragged rows are filled up with page 0, which is never read there. */
export function pageTableOf(value: unknown, batch: number, owner: Owner): CheckedInts {
  let desc: TensorDesc;
  if (Array.isArray(value)) {
    const rows = value.map((row, b) => int32(row, `pageTable[${b}]`));
    const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
    const data = new Int32Array(rows.length * width);
    for (const [b, row] of rows.entries()) data.set(row, b * width);
    desc = { data, byteOffset: 0, dtype: "i32", shape: [rows.length, width], strides: [width, 1] };
  } else {
    desc = operandOf(value, "pageTable", ["i32"], owner);
  }
  if (desc.shape.length !== 2 || desc.shape[0] !== batch) {
    throw invalid(`pageTable has shape ${shapeText(desc.shape)}; allowed: [${batch}, pages per sequence]`);
  }
  return { desc, values: isTensor(value) ? undefined : (desc.data as Int32Array) };
}

/** Every page that a sequence reaches exists. */
export function checkPages(table: CheckedInts, lengths: CheckedInts, pageSize: number, pages: number): void {
  if (!table.values || !lengths.values) return;
  const stride = table.desc.strides[0]!;
  for (let b = 0; b < lengths.values.length; b++) {
    const used = Math.ceil(lengths.values[b]! / pageSize);
    for (let n = 0; n < used; n++) {
      const page = table.values[b * stride + n]!;
      if (page < 0 || page >= pages)
        throw invalid(`pageTable[${b}][${n}] is ${page}; allowed: 0 to ${pages - 1}, the pages of k`);
    }
  }
}

/** Lengths, starts and offsets into `desc`. */
export function checkSequences(
  options: Options,
  desc: Mutable<AttentionDesc>,
  batch: number,
  queryRows: number,
  keyRows: number,
  owner: Owner,
): void {
  const { seqLensQ, seqLensK, cuSeqLensQ, cuSeqLensK, queryOffset, pageTable } = options;
  if (seqLensQ !== undefined) {
    const lengths = intsOf(seqLensQ, "seqLensQ", batch, owner);
    checkRange(lengths, "seqLensQ", queryRows, "the rows of q");
    desc.seqLensQ = lengths.desc;
  }
  if (cuSeqLensQ !== undefined) {
    const starts = intsOf(cuSeqLensQ, "cuSeqLensQ", batch + 1, owner);
    const longest = checkStarts(starts, "cuSeqLensQ", queryRows);
    desc.cuSeqLensQ = starts.desc;
    if (longest) desc.maxSeqLenQ = longest;
  }
  if (cuSeqLensK !== undefined) {
    const starts = intsOf(cuSeqLensK, "cuSeqLensK", batch + 1, owner);
    const longest = checkStarts(starts, "cuSeqLensK", keyRows);
    desc.cuSeqLensK = starts.desc;
    if (longest) desc.maxSeqLenK = longest;
  }
  const table = pageTable === undefined ? undefined : pageTableOf(pageTable, batch, owner);
  if (table) desc.pageTable = table.desc;
  if (seqLensK !== undefined) {
    const lengths = intsOf(seqLensK, "seqLensK", batch, owner);
    const capacity = table ? table.desc.shape[1]! * keyRows : keyRows;
    checkRange(lengths, "seqLensK", capacity, table ? "the capacity of pageTable" : "the rows of k");
    desc.seqLensK = lengths.desc;
    if (table) checkPages(table, lengths, keyRows, desc.k.shape[0]!);
  }
  if (queryOffset !== undefined) desc.queryOffset = intsOf(queryOffset, "queryOffset", batch, owner).desc;
}
