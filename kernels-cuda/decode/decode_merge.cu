// Merges the splits of a decode: a block for each row, a warp for every eighth split, lanes along the head dim; the warps' sums
// are added in order. Starts while the last blocks of the first kernel still run, where the device can (sm_90 and up).
#include <atomic>

#include "decode_merge.h"
#include "decode_rows.cuh"

namespace tsr::cuda::decode {
namespace {

constexpr int kWarps = 8;

template <int kDim>
__global__ void __launch_bounds__(kWarps * 32, 4) merge_kernel(const __grid_constant__ Parameters p, Variant variant) {
  constexpr int kAtOnce = kDim <= 128 ? 8 : 4;  // splits whose loads are under way together
  __shared__ float weights[kWarps][kMostSplits + kWarps * kAtOnce], outs[kWarps][kDim];
  __shared__ RowEnd end;
  const int rows = 8 * tiles_of(variant);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned unit = blockIdx.x / rows, tile_of_all = unit / p.head_units;
  const int batch = static_cast<int>(tile_of_all / p.row_tiles);
  const int tile = static_cast<int>(tile_of_all - batch * p.row_tiles);
  const RowId id = row_id(p.a, variant, tile, static_cast<int>(unit - tile_of_all * p.head_units),
                          static_cast<int>(blockIdx.x % rows));
  wait_for_previous_kernel();  // every block: whatever comes after this kernel may rely on the first one's end
  if (id.query >= p.a.max_queries) return;
  const Sequence s = sequence_of(p.a, batch);

  float maximum = TSR_NEG_INF, sum = 0;
  float out[kDim / 32] = {};
  if (id.query < s.queries) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * p.splits;
    const float2* const stats = reinterpret_cast<const float2*>(p.partial_stats) + first;
    float2 each[kMostSplits / 32];
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      const int split = lane + 32 * i;
      each[i] = split < p.splits ? stats[split] : make_float2(TSR_NEG_INF, 0.0f);
      maximum = fmaxf(maximum, each[i].x);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, lanes));
    const float base = maximum == TSR_NEG_INF ? 0.0f : maximum;
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      const float weight = exp2_fast(each[i].x - base);
      weights[warp][lane + 32 * i] = weight;
      sum += weight * each[i].y;
    }
    for (int i = lane; i < kWarps * kAtOnce; i += 32) weights[warp][kMostSplits + i] = 0;
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    __syncwarp();
    const float* const partials = p.partial_out + first * kDim + lane;
    for (int split0 = warp; split0 < p.splits; split0 += kWarps * kAtOnce) {
      float x[kAtOnce][kDim / 32];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int split = min(split0 + kWarps * i, p.splits - 1);
#pragma unroll
        for (int c = 0; c < kDim / 32; ++c) x[i][c] = partials[static_cast<int64_t>(split) * kDim + 32 * c];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float weight = weights[warp][split0 + kWarps * i];  // 0 past the last
#pragma unroll
        for (int c = 0; c < kDim / 32; ++c) out[c] += weight * x[i][c];
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kDim / 32; ++c) outs[warp][lane + 32 * c] = out[c];
  if (threadIdx.x == 0) end = end_of_row(p.a, s, batch, id, maximum, sum, true);
  __syncthreads();
  for (int dim = threadIdx.x; dim < kDim; dim += kWarps * 32) {
    float value = 0;
    for (int i = 0; i < kWarps; ++i) value += outs[i][dim];
    store_dim(p.a, end, dim, value);
  }
}

}  // namespace

bool has_clusters() {
  static std::atomic<uint64_t> known{0}, has{0};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= 64) return false;
  const uint64_t bit = uint64_t{1} << device;
  if ((known.load(std::memory_order_acquire) & bit) == 0) {
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, merge_kernel<64>) != cudaSuccess) return false;
    if (attributes.ptxVersion >= 90) has.fetch_or(bit, std::memory_order_relaxed);
    known.fetch_or(bit, std::memory_order_release);
  }
  return (has.load(std::memory_order_relaxed) & bit) != 0;
}

cudaError_t launch_merge(const Parameters& p, int dim, Variant variant, cudaStream_t stream) {
  const int64_t blocks = static_cast<int64_t>(p.a.batch) * p.row_tiles * p.head_units * (8 * tiles_of(variant));
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kWarps * 32);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = has_clusters() ? 1 : 0;  // and with them this attribute
  const auto kernel = dim == 64    ? merge_kernel<64>
                      : dim == 96  ? merge_kernel<96>
                      : dim == 128 ? merge_kernel<128>
                                   : merge_kernel<256>;
  return cudaLaunchKernelEx(&config, kernel, p, variant);
}

}  // namespace tsr::cuda::decode
