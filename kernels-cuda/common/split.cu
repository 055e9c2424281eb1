// Merges the partials of a split attention: one warp for each query row and head, lanes along the head dim.
#include "split.cuh"

namespace tsr::cuda {
namespace {

constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps * 32)
    merge_splits(const __grid_constant__ Attention a, const __grid_constant__ Tiling t, const float* partials) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
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
    if (lane == 0) store_lse(a, w.batch, i, head, TSR_NEG_INF);
    return;
  }

  const int64_t step = static_cast<int64_t>(t.rows) * t.partial;
  const float* const first = partials + tile_id * t.splits * step + static_cast<int64_t>(row_of_tile) * t.partial;
  float maximum = TSR_NEG_INF;
  for (int split = lane; split < t.splits; split += 32) maximum = fmaxf(maximum, first[split * step]);
  for (int lanes = 16; lanes > 0; lanes /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, lanes));
  const float base = maximum == TSR_NEG_INF ? 0.0f : maximum;
  float sum = 0, out[8] = {};  // head dims lane, lane + 32, ...: up to 256
  for (int split = 0; split < t.splits; ++split) {
    const float* const partial = first + split * step;
    if (partial[1] == 0) continue;  // saw nothing: its maximum is -inf
    const float weight = exp2_fast(partial[0] - base);
    sum += weight * partial[1];
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int d = c * 32 + lane;
      if (d < a.value_dim) out[c] += weight * partial[kPartialHead + d];
    }
  }
  const Ending ending = end_row(a, head, maximum, sum);
  char* const to = a.out.at(w.batch, s.query_row + i, head);
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const int d = c * 32 + lane;
    if (d < a.value_dim) store_1(a.out.type, to, d, out[c] * ending.factor);
  }
  if (lane == 0) store_lse(a, w.batch, s.query_row + i, head, ending.lse);
}

}  // namespace

cudaError_t launch_merge_splits(const Attention& a, const Tiling& t, const float* partials, cudaStream_t stream) {
  const int64_t items = static_cast<int64_t>(a.batch) * a.kv_heads * t.tiles * t.rows;
  const int64_t blocks = (items + kWarps - 1) / kWarps;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  merge_splits<<<static_cast<unsigned>(blocks), kWarps * 32, 0, stream>>>(a, t, partials);
  return cudaPeekAtLastError();
}

}  // namespace tsr::cuda
