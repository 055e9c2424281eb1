// Dividing the keys of a query among blocks, and merging what they find. Kernels whose rows are (query, head of the group)
// pairs of one KV head share this: simt/ and decode/.
//
// Partials are fp32 in the workspace, one for each block and row: {maximum (base 2), sum, 2 unused, value_dim unnormalised
// outs}. merge_splits adds them up in order, so results don't depend on timing.
#pragma once

#include "attention.h"
#include "output.cuh"

namespace tsr::cuda {

/// The grid: ((batch * kv_heads + head) * tiles + tile) * splits + split.
struct Tiling {
  int32_t rows = 0;        ///< of a tile
  int32_t tiles = 0;       ///< row tiles of one KV head
  int32_t splits = 1;      ///< of the key range
  int32_t partial = 0;     ///< floats of a partial
  int64_t split_keys = 0;  ///< keys of a split, a multiple of the key tile
};

struct Work {
  int32_t batch;
  int32_t kv_head;
  int32_t tile;
  int32_t split;
};

__device__ __forceinline__ Work work_of(const Attention& a, const Tiling& t, int64_t block) {
  Work w;
  w.split = static_cast<int32_t>(block % t.splits);
  block /= t.splits;
  w.tile = static_cast<int32_t>(block % t.tiles);
  block /= t.tiles;
  w.kv_head = static_cast<int32_t>(block % a.kv_heads);
  w.batch = static_cast<int32_t>(block / a.kv_heads);
  return w;
}

__device__ __forceinline__ Span split_span(const Tiling& t, int split) {
  return {split * t.split_keys, (split + 1) * t.split_keys};
}

__device__ __forceinline__ Span intersect(Span x, Span y) {
  const Span both{x.begin > y.begin ? x.begin : y.begin, x.end < y.end ? x.end : y.end};
  return both.empty() ? Span{0, 0} : both;
}

struct Partial {
  float* head;  ///< maximum, sum
  float* out;
};
__device__ __forceinline__ Partial partial_of(const Tiling& t, float* partials, int64_t block, int row_of_tile) {
  float* const at = partials + (block * t.rows + row_of_tile) * t.partial;
  return {at, at + 4};
}

/// Rows [first, first + count) of a KV head that have no query but a place in the (padded) output: out 0, lse -inf.
__device__ __forceinline__ void clear_rows(const Attention& a, const Sequence& s, const Work& w, int64_t first,
                                           int count, int threads) {
  if (a.packed_q) return;
  for (int64_t r = first; r < first + count; ++r) {
    const int64_t i = r / a.group;
    if (i < s.queries || i >= a.query_rows) continue;
    const int64_t head = static_cast<int64_t>(w.kv_head) * a.group + r % a.group;
    char* const to = a.out.at(w.batch, i, head);
    for (int d = threadIdx.x; d < a.value_dim; d += threads) store_1(a.out.type, to, d, 0.0f);
    if (threadIdx.x == 0) store_lse(a, w.batch, i, head, TSR_NEG_INF);
  }
}

/// Splits for a grid of `blocks` on a device that runs `slots` blocks at a time: none if that fills it, else the smallest
/// number within 15 % of the best use of whole waves, each split at least `least_keys` long. A function of shapes alone.
int32_t choose_splits(int64_t blocks, int64_t slots, int64_t keys, int64_t tile_keys, int64_t least_keys,
                      int32_t forced);

/// Sets splits, split_keys and partial of a tiling whose rows and tiles are known.
void divide_keys(const Attention& a, int64_t tile_keys, int32_t splits, Tiling* t);

/// The workspace that `blocks` blocks of a tiling need.
inline uint64_t partial_bytes(const Tiling& t, int64_t blocks) {
  return t.splits > 1
             ? static_cast<uint64_t>(blocks) * static_cast<uint64_t>(t.rows) * static_cast<uint64_t>(t.partial) * 4
             : 0;
}

/// Enqueues the merge of a tiling's partials into out and lse.
cudaError_t launch_merge_splits(const Attention& a, const Tiling& t, const float* partials, cudaStream_t stream);

}  // namespace tsr::cuda
