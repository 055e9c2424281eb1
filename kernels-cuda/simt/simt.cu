// Which instantiation of simt.cuh a problem gets, and its launch.
#include "../common/shared_memory.h"
#include "../kernels.h"
#include "simt.cuh"

namespace tsr::cuda {
namespace {

// Blocks that an SM runs at a time, by registers: what the choice of splits counts with.
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kLeastSplitKeys = 256;

int padded_dim(const Attention& a) {
  const int dim = a.dim > a.value_dim ? a.dim : a.value_dim;
  return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}

int tile_rows(const Attention& a) {
  if (a.max_queries * a.group <= 16) return 16;
  return padded_dim(a) == 256 ? 32 : 64;
}

Tiling tiling_of(const Attention& a, const Plan& plan) {
  Tiling t;
  t.rows = plan.tile_q;
  t.tiles = static_cast<int32_t>((a.max_queries * a.group + t.rows - 1) / t.rows);
  divide_keys(a, simt::kKeys, plan.splits, &t);
  return t;
}

template <int kDim, int kRows>
cudaError_t launch(const Attention& a, const Tiling& t, float* partials, cudaStream_t stream) {
  static std::atomic<uint64_t> allowed{0};
  constexpr int bytes = simt::shared_bytes<kDim, kRows>();
  const auto kernel = simt::attention<kDim, kRows>;
  if (const cudaError_t error = allow_shared(reinterpret_cast<const void*>(kernel), bytes, allowed);
      error != cudaSuccess) {
    return error;
  }
  const int64_t blocks = blocks_of(a, t);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  kernel<<<static_cast<unsigned>(blocks), simt::kThreads, bytes, stream>>>(a, t, partials);
  const cudaError_t error = cudaPeekAtLastError();
  return error != cudaSuccess || t.splits == 1 ? error : launch_merge_splits(a, t, partials, stream);
}

}  // namespace

Plan plan_simt(const Attention& a, const Limits& limits) {
  Plan plan;
  plan.tile_q = tile_rows(a);
  plan.tile_k = simt::kKeys;
  plan.threads = simt::kThreads;
  const int dim = padded_dim(a);
  plan.shared_bytes = dim == 64 ? (plan.tile_q == 16 ? simt::shared_bytes<64, 16>() : simt::shared_bytes<64, 64>())
                      : dim == 128
                          ? (plan.tile_q == 16 ? simt::shared_bytes<128, 16>() : simt::shared_bytes<128, 64>())
                          : (plan.tile_q == 16 ? simt::shared_bytes<256, 16>() : simt::shared_bytes<256, 32>());
  const int64_t slots = static_cast<int64_t>(limits.multiprocessors) * kBlocksPerMultiprocessor;
  plan.splits =
      choose_splits(blocks_of(a, tiling_of(a, plan)), slots, a.max_keys, simt::kKeys, kLeastSplitKeys, a.num_splits);
  const Tiling t = tiling_of(a, plan);
  plan.workspace_bytes = partial_bytes(a, t);
  return plan;
}

cudaError_t launch_simt(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream) {
  const Tiling t = tiling_of(a, plan);
  auto* const partials = static_cast<float*>(workspace);
  const bool few = t.rows == 16;
  switch (padded_dim(a)) {
    case 64:
      return few ? launch<64, 16>(a, t, partials, stream) : launch<64, 64>(a, t, partials, stream);
    case 128:
      return few ? launch<128, 16>(a, t, partials, stream) : launch<128, 64>(a, t, partials, stream);
    default:
      return few ? launch<256, 16>(a, t, partials, stream) : launch<256, 32>(a, t, partials, stream);
  }
}

}  // namespace tsr::cuda
