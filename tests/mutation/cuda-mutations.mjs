// Defects of the CUDA kernels that the conformance table must see on a GPU. As mutations.mjs: `find` occurs exactly once in
// `file`. `kernels`: those whose answers it spoils; `cases`: which part of the table is tried first. A barrier or a wait left
// out isn't here: whether that shows is a matter of luck, and of compute-sanitizer's racecheck.
const sm80 = "kernels-cuda/sm80/prefill.cuh";
const walk = "kernels-cuda/sm80/walk.cuh";
const ladder = "kernels-cuda/ladder/ladder.cuh";
const score = "kernels-cuda/common/score.cuh";
const output = "kernels-cuda/common/output.cuh";
const append = "kernels-cuda/common/append.cu";
const merge = "kernels-cuda/common/merge.cu";
const mma = ["prefill-mma"];
const plain = ["prefill-simt"];

export const mutations = [
  {
    name: "mma-causal-off-by-one",
    breaks: "on partial tiles a row sees one key more",
    file: walk,
    find: "const bool visible = n * 8 + e >= begin && n * 8 + e < end;",
    replace: "const bool visible = n * 8 + e >= begin && n * 8 + e <= end;",
    cases: "causal|align|window",
    kernels: mma,
  },
  {
    name: "mma-tile-taken-for-whole",
    breaks: "tiles of which some rows see only a part aren't masked",
    file: sm80,
    find: "key < mine.z || key + kKeys > mine.w",
    replace: "key < mine.z || key + kKeys > mine.w + kKeys",
    cases: "^(causal|length)/",
    kernels: mma,
  },
  {
    name: "mma-swizzle",
    breaks: "fragments of K are read from other places than they were written to",
    file: walk,
    find: "load_matrix_x4(b, k_tile + n * 16 * Tile::kBytes + ((2 * d ^ twist_b) << 4));",
    replace: "load_matrix_x4(b, k_tile + n * 16 * Tile::kBytes + ((2 * d ^ lane_b.chunk) << 4));",
    cases: "^dim/",
    kernels: mma,
  },
  {
    name: "mma-rescale",
    breaks: "O isn't rescaled when only an earlier row's maximum grows",
    file: walk,
    find: "moves = moves || next[m][half] > w.maximum[m][half];",
    replace: "moves = next[m][half] > w.maximum[m][half];",
    cases: ".",
    kernels: mma,
  },
  {
    name: "mma-padding",
    breaks: "rows past a sequence's queries aren't cleared",
    file: walk,
    find: "if (i >= s.queries) ending = {0.0f, TSR_NEG_INF};",
    replace: "",
    cases: "length|packed|padded|seq",
    kernels: mma,
  },
  {
    name: "mma-negative-scale",
    breaks: "a negative scale negates one of two elements",
    file: sm80,
    find: "^= 0x80008000u",
    replace: "^= 0x80000000u",
    cases: "scale",
    kernels: mma,
  },
  {
    name: "mma-page",
    breaks: "every key of a page is the page's first",
    file: sm80,
    find: "return base + page * view.batch + j % page_size * view.row;",
    replace: "return base + page * view.batch;",
    cases: "page",
    kernels: ["prefill-mma", "prefill-mma-unaligned"],
  },
  {
    name: "ladder-mask",
    breaks: "key tiles that end behind what all rows see aren't masked",
    file: ladder,
    find: "first_key + kKeys > block.common_end",
    replace: "first_key > block.common_end",
    cases: "^causal/",
    kernels: ["ladder-split", "ladder-reversed"],
  },
  {
    name: "score-alibi-sign",
    breaks: "distance helps instead of hurting",
    file: score,
    find: "score -= o.slope *",
    replace: "score += o.slope *",
    cases: "alibi",
    kernels: plain,
  },
  {
    name: "score-bias-clamp",
    breaks: "a bias of 3e38 isn't clamped",
    file: score,
    find: "score += bias > kBiasLimit && bias != -TSR_NEG_INF ? kBiasLimit : bias;",
    replace: "score += bias;",
    cases: "bias",
    kernels: plain,
  },
  {
    name: "sink-left-out",
    breaks: "the sink moves the maximum but isn't in the sum",
    file: output,
    find: "sum = sum * factor + exp2_fast(sink - base);",
    replace: "sum = sum * factor;",
    cases: "sink",
    kernels: ["prefill-simt", "prefill-mma"],
  },
  {
    name: "append-rotation",
    breaks: "the second of a pair turns the other way",
    file: append,
    find: "second = x * angles[i].y + y * angles[i].x;",
    replace: "second = y * angles[i].x - x * angles[i].y;",
    cases: "append|rope",
    kernels: plain,
  },
  {
    name: "append-advance",
    breaks: "one token a sequence leaves the length where it was",
    file: append,
    find: "static_cast<int32_t>(clamped(slot + 1, 0, p.capacity))",
    replace: "static_cast<int32_t>(clamped(slot, 0, p.capacity))",
    cases: "append|decode",
    kernels: plain,
  },
  {
    name: "merge-lse",
    breaks: "the lse of a merge is the largest part's",
    file: merge,
    find: "largest + logf(sum)",
    replace: "largest",
    cases: "merge",
    kernels: plain,
  },
];
