// A split attention on the device: where partials go, and merging them. device_split.h has the arithmetic.
#pragma once

#include "attention.h"
#include "output.cuh"
#include "tessera/common/device_split.h"

namespace tsr::cuda {

struct Partial {
  float* head;  ///< maximum, sum
  float* out;
};
__device__ __forceinline__ Partial partial_of(const Tiling& t, float* partials, int64_t block, int row_of_tile) {
  float* const at = partials + (block * t.rows + row_of_tile) * t.partial;
  return {at, at + kPartialHead};
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

/// Enqueues the merge of a tiling's partials into out and lse.
cudaError_t launch_merge_splits(const Attention& a, const Tiling& t, const float* partials, cudaStream_t stream);

}  // namespace tsr::cuda
