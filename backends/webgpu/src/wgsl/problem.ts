/**
 * What attention kernels know of a call: shapes, strides, options, and which keys a query sees. The shader's half of
 * packages/core/src/problem.ts and visibility.ts.
 *
 * Small vectors (lengths, slopes, scales, page tables) lie in one buffer, `aux`; a parameter `at…` is the place of one,
 * `none` if it isn't given. Lengths and page numbers are the device's, so they are clamped here.
 */
import type { Fields } from "./fields.js";

export const none = 0xffff_ffff;

/**
 * A tensor seen through its binding: byte `Base` of it is element `First`, what a dispatch touches begins there. Strides
 * in elements. All is modulo 2^32: what is bound is smaller.
 */
function view<N extends string>(name: N) {
  const u32 = "u32" as const;
  return {
    [`${name}Base`]: u32,
    [`${name}First`]: u32,
    [`${name}Batch`]: u32,
    [`${name}Row`]: u32,
    [`${name}Head`]: u32,
  } as { readonly [K in `${N}${ViewMember}`]: "u32" };
}

export type ViewMember = "Base" | "First" | "Batch" | "Row" | "Head";

/** Parameters of the attention kernels and of those that join their parts. */
export const attentionFields = {
  batch: "u32",
  heads: "u32",
  /** Query heads that share a KV head. */
  group: "u32",
  dim: "u32",
  valueDim: "u32",
  /** Rows of q and out: padded ones in one entry, packed ones in all. */
  queryRows: "u32",
  keyRows: "u32",
  ...view("q"),
  ...view("k"),
  ...view("v"),
  ...view("out"),
  ...view("lse"),
  ...view("bias"),
  ...view("mask"),
  scale: "f32",
  softcap: "f32",
  /** Keys to the left and right of a query's position; causality is right = 0. */
  left: "i32",
  right: "i32",
  topLeft: "u32",
  /** 0: none, 1: f32, 2: f16, 3: bf16. */
  biasType: "u32",
  hasMask: "u32",
  hasLse: "u32",
  atSeqLensQ: "u32",
  atSeqLensK: "u32",
  atCuSeqLensQ: "u32",
  atCuSeqLensK: "u32",
  atQueryOffset: "u32",
  atAlibi: "u32",
  atSinks: "u32",
  atKScale: "u32",
  atVScale: "u32",
  atPages: "u32",
  pagesStride: "u32",
  pagesPerSequence: "u32",
  /** 0: not paged. */
  pageSize: "u32",
  /** Pages of this dispatch: keys elsewhere are another one's. */
  firstPage: "u32",
  endPage: "u32",
  /** Heads, entries and queries of this dispatch. */
  firstHead: "u32",
  headCount: "u32",
  firstBatch: "u32",
  batchCount: "u32",
  firstQuery: "u32",
  endQuery: "u32",
  /** Keys of this dispatch, and of one split of it. */
  firstKey: "u32",
  endKey: "u32",
  splitKeys: "u32",
  splits: "u32",
  /** Where its splits come among all parts of a row. */
  firstPart: "u32",
  parts: "u32",
  /** Workgroups of the whole and before this dispatch, and how many a row of its grid has. */
  tasks: "u32",
  firstTask: "u32",
  gridWidth: "u32",
  /** 1, which compilers can't know. */
  one: "u32",
} as const satisfies Record<string, "u32" | "i32" | "f32">;

export type AttentionFields = { readonly [K in keyof typeof attentionFields]: number };

attentionFields satisfies Fields;

/** Functions over `p` and `aux`. */
export const sequences = /* wgsl */ `
const none = ${none}u;

struct Sequence {
  queries: i32,
  queryRow: u32,
  keys: i32,
  keyRow: u32,
  offset: i32,
}

fn sequence_of(b: u32) -> Sequence {
  var s = Sequence();
  s.queries = i32(p.queryRows);
  s.keys = i32(p.keyRows);
  if (p.pageSize != 0u) { s.keys = i32(p.pagesPerSequence * p.pageSize); }
  if (p.atCuSeqLensQ != none) {
    s.queryRow = min(aux[p.atCuSeqLensQ + b], p.queryRows);
    s.queries = i32(clamp(aux[p.atCuSeqLensQ + b + 1u], s.queryRow, p.queryRows) - s.queryRow);
  } else if (p.atSeqLensQ != none) {
    s.queries = clamp(bitcast<i32>(aux[p.atSeqLensQ + b]), 0, s.queries);
  }
  if (p.atCuSeqLensK != none) {
    s.keyRow = min(aux[p.atCuSeqLensK + b], p.keyRows);
    s.keys = i32(clamp(aux[p.atCuSeqLensK + b + 1u], s.keyRow, p.keyRows) - s.keyRow);
  } else if (p.atSeqLensK != none) {
    s.keys = clamp(bitcast<i32>(aux[p.atSeqLensK + b]), 0, s.keys);
  }
  s.offset = select(s.keys - s.queries, 0, p.topLeft == 1u);
  if (p.atQueryOffset != none) { s.offset = clamp(bitcast<i32>(aux[p.atQueryOffset + b]), -0x3fffffff, 0x3fffffff); }
  return s;
}

/** Keys that query i sees by structure: from x up to, not including, y. */
fn visible_keys(s: Sequence, i: i32) -> vec2<i32> {
  let position = i + s.offset;
  let begin = max(position - p.left, 0);
  let end = min(position + p.right + 1, s.keys);
  return vec2<i32>(begin, max(end, begin));
}

fn task_of(group: vec3<u32>) -> u32 { return p.firstTask + group.x + group.y * p.gridWidth; }
`;

/** Keys of a tile, those that its first and last query bound, of this split. Wants `s`, `firstQuery`, `lastQuery` and `split`. */
export const keysOfTile = /* wgsl */ `
  var keyBegin = 0;
  var keyEnd = 0;
  if (lastQuery >= firstQuery) {
    keyBegin = visible_keys(s, firstQuery).x;
    keyEnd = visible_keys(s, lastQuery).y;
  }
  let splitBegin = i32(p.firstKey + split * p.splitKeys);
  keyBegin = max(keyBegin, splitBegin);
  keyEnd = min(keyEnd, min(splitBegin + i32(p.splitKeys), i32(p.endKey)));
`;
