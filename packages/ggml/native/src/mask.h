// What a mask of FLASH_ATTN_EXT hides by its shape. llama.cpp has no other way to say "causal": it fills a [queries, keys]
// matrix with 0 and -inf, for every batch. Read once per call, cell by cell, so that keys which nobody sees are skipped and a
// mask that is nothing but shape isn't read by the kernels at all.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tsr::ggml {

/** [heads, queries, keys] of fp16 in host memory; the last is contiguous. Strides in bytes. */
struct MaskView {
  const void* data;
  int64_t heads, queries, keys;
  size_t head_stride, query_stride;
};

/**
 * Query i sees no key but those with i + offset - left <= j <= i + offset and j < keys; of these it sees every one with a bias
 * of zero if `exact`. left is -1 where nothing is hidden on that side. keys is 0 if nobody sees anything.
 */
struct MaskShape {
  int64_t offset, left, keys;
  bool exact;
};

/** Keys [first, last] of query i by a shape; first > last if there are none. */
struct KeyRange {
  int64_t first, last;
};
KeyRange visible(const MaskShape& shape, int64_t query);

/** The visible cells of one row: the first, the last (before the first: none), and whether each between is a plain zero. */
struct MaskRow {
  int64_t first, last;
  bool zeros;
};

/** Of all shapes the narrowest that hides no visible cell of any head. `rows`: those of the first head, of the next, … */
MaskShape shape_of(const MaskRow* rows, int64_t heads, int64_t queries);
MaskShape shape_of(const MaskView& mask);

}  // namespace tsr::ggml
