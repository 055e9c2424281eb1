// A split attention on the device: where partials go, rows without a query, and merging. device_split.h has the arithmetic.
#pragma once

#include "score.h"
#include "tessera/common/device_split.h"

namespace tsr::hip {

struct Partial {
  float* head;  ///< maximum, sum
  float* out;
};
TSR_DEVICE Partial partial_of(const Tiling& t, float* partials, int64_t block, int row_of_tile) {
  float* const at = partials + (block * t.rows + row_of_tile) * t.partial;
  return {at, at + kPartialHead};
}

/// Rows [first, first + count) of a KV head that have no query but a place in the (padded) output: out 0, lse -inf.
TSR_DEVICE void clear_rows(const Attention& a, const Sequence& s, const Work& w, int64_t first, int count,
                           int threads) {
  if (a.packed_q) return;
  for (int64_t r = first; r < first + count; ++r) {
    const int64_t i = r / a.group;
    if (i < s.queries || i >= a.query_rows) continue;
    const int64_t head = static_cast<int64_t>(w.kv_head) * a.group + r % a.group;
    char* const to = a.out.at(w.batch, i, head);
    for (int d = thread_index(); d < a.value_dim; d += threads) store_1(a.out.type, to, d, 0.0f);
    if (thread_index() == 0) store_lse(a, w.batch, i, head, negative_infinity());
  }
}

constexpr int kMergeThreads = 256;
constexpr int kMergeRows = kMergeThreads / 32;  ///< 32 lanes for each row and head, whatever the wavefront is

/// Merges the partials of a split attention into out and lse: 32 lanes along the head dim.
TSR_DEVICE void merge_splits(const Attention& a, const Tiling& t, const float* partials) {
  const int lane = thread_index() % 32;
  const int64_t item = static_cast<int64_t>(block_index()) * kMergeRows + thread_index() / 32;
  const int64_t tile_id = item / t.rows;
  const int row_of_tile = static_cast<int>(item % t.rows);
  if (tile_id >= static_cast<int64_t>(a.batch) * a.kv_heads * t.tiles) return;
  const Work w = work_of(a, t, tile_id * t.splits);
  const Sequence s = sequence_of(a, w.batch);
  const int64_t row = static_cast<int64_t>(w.tile) * t.rows + row_of_tile;
  const int64_t i = row / a.group;
  const int64_t head = static_cast<int64_t>(w.kv_head) * a.group + row % a.group;
  if (i >= s.queries) {
    if (a.packed_q || i >= a.query_rows) return;
    for (int d = lane; d < a.value_dim; d += 32) store_1(a.out.type, a.out.at(w.batch, i, head), d, 0.0f);
    if (lane == 0) store_lse(a, w.batch, i, head, negative_infinity());
    return;
  }
  const int64_t step = static_cast<int64_t>(t.rows) * t.partial;
  const float* const first = partials + tile_id * t.splits * step + static_cast<int64_t>(row_of_tile) * t.partial;
  float maximum = negative_infinity();
  for (int split = 0; split < t.splits; ++split) maximum = larger(maximum, first[split * step]);
  const float base = maximum == negative_infinity() ? 0.0f : maximum;
  float sum = 0, out[8] = {};  // head dims lane, lane + 32, ...: up to 256
  for (int split = 0; split < t.splits; ++split) {
    const float* const partial = first + split * step;
    if (partial[1] == 0) continue;  // saw nothing: its maximum is -inf
    const float weight = exp2_fast(partial[0] - base);
    sum += weight * partial[1];
    TSR_UNROLL for (int c = 0; c < 8; ++c) {
      const int d = c * 32 + lane;
      if (d < a.value_dim) out[c] += weight * partial[kPartialHead + d];
    }
  }
  const Ending ending = end_row(a, head, maximum, sum);
  char* const to = a.out.at(w.batch, s.query_row + i, head);
  TSR_UNROLL for (int c = 0; c < 8; ++c) {
    const int d = c * 32 + lane;
    if (d < a.value_dim) store_1(a.out.type, to, d, out[c] * ending.factor);
  }
  if (lane == 0) store_lse(a, w.batch, s.query_row + i, head, ending.lse);
}

}  // namespace tsr::hip
