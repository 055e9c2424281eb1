// Which instantiation a problem gets, its tensor maps, its grid, its launch. Host code: for any architecture.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cmath>

#include "../common/score.cuh"
#include "../kernels.h"
#include "instances.h"
#include "launch.h"

namespace tsr::cuda {
namespace {

using namespace sm90;

/// Keys and values of the heads of one section stay in the L2 cache together if they are no more than this.
constexpr int64_t kSectionBytes = int64_t{32} << 20;
constexpr int kWarpgroupRows = 64, kOutRows = 16, kCounterBytes = 64;

InstanceList instances([[maybe_unused]] bool f16, [[maybe_unused]] bool scored) {
#if defined(TSR_HAVE_SM90A)
  if (scored) return f16 ? scored_f16() : scored_bf16();
  return f16 ? plain_f16() : plain_bf16();
#else
  return {};
#endif
}

/// A page is whole key tiles, or a key tile is whole pages.
bool pages_fit(const Attention& a, int keys) {
  return !a.paged() || a.page_size % keys == 0 || keys % a.page_size == 0;
}

/// Query tiles at the start of a head see few keys, those at its end many; else all see about as many.
bool triangular(const Attention& a) { return a.causal && a.window_left < 0 && 2 * a.max_queries > a.max_keys; }

const Instance* choose(const Attention& a, const Limits& limits) {
  const InstanceList list = instances(a.q.type == Type::kF16, !a.plain_score());
  for (const Instance* i = list.begin; i != list.end; ++i) {
    if (i->dim < a.dim || i->value_dim < a.value_dim || i->shared_bytes > limits.shared_per_block) continue;
    if (!pages_fit(a, i->keys)) continue;
    if (i->rows > 128 && a.max_queries <= 128) continue;  // a third of the tile would be empty
    return i;
  }
  return nullptr;
}

// From the driver, so that nothing links libcuda.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function) : nullptr;
  }();
  return found;
}

struct Extents {
  int64_t columns, rows, heads, batch;
};

/// Boxes of 64 columns and `box_rows` rows, swizzled; what is outside the extents reads as zeros.
bool encode(CUtensorMap* map, const View& view, const Extents& e, int box_rows) {
  const auto stride = [](int64_t bytes, int64_t extent) { return static_cast<cuuint64_t>(extent > 1 ? bytes : 16); };
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(e.columns), static_cast<cuuint64_t>(e.rows),
                             static_cast<cuuint64_t>(e.heads), static_cast<cuuint64_t>(e.batch)};
  const cuuint64_t strides[] = {stride(view.row, e.rows), stride(view.head, e.heads), stride(view.batch, e.batch)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[] = {1, 1, 1, 1};
  const CUtensorMapDataType type =
      view.type == Type::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return encoder()(map, type, 4, view.data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int box_rows(const Attention& a, int keys) {
  return a.paged() && a.page_size < keys ? static_cast<int>(a.page_size) : keys;
}

/// Query tiles of a head (packed: of all sequences together, at most), and heads that have them.
struct TileCount {
  int64_t tiles, lanes;
};
TileCount tiles_of(const Attention& a, int64_t rows) {
  return {a.packed_q ? a.query_rows / rows + a.batch : (a.query_rows + rows - 1) / rows,
          a.packed_q ? a.heads : static_cast<int64_t>(a.batch) * a.heads};
}
/// Blocks take one tile each where there are as many: nothing has to be counted then.
bool counts(const TileCount& n, int64_t multiprocessors) { return n.tiles * n.lanes > multiprocessors; }

}  // namespace

bool has_wgmma() { return instances(true, false).begin != nullptr && encoder() != nullptr; }

Plan plan_wgmma(const Attention& a, const Limits& limits) {
  Plan plan;
  const Instance* const instance = choose(a, limits);
  if (instance == nullptr || encoder() == nullptr || a.key_rows > INT32_MAX || a.query_rows > INT32_MAX) return plan;
  plan.tile_q = instance->rows;
  plan.tile_k = instance->keys;
  plan.stages = 2;
  plan.threads = instance->threads;
  plan.shared_bytes = instance->shared_bytes;
  plan.workspace_bytes = counts(tiles_of(a, instance->rows), limits.multiprocessors) ? kCounterBytes : 0;
  plan.config = limits.multiprocessors;
  return plan;
}

namespace {

cudaError_t launch_instance(const Instance* instance, const Attention& a, int64_t section_bytes, int multiprocessors,
                            void* workspace, cudaStream_t stream) {
  const auto [tiles, lanes] = tiles_of(a, instance->rows);
  if (tiles * lanes > INT32_MAX) return cudaErrorInvalidConfiguration;
  const int64_t head_bytes = (a.packed_k ? a.key_rows : a.max_keys) * (a.dim + a.value_dim) * 2;
  const int64_t kv_heads = head_bytes > 0 ? section_bytes / head_bytes : lanes;
  Launch launch;
  launch.order = {static_cast<uint32_t>(tiles), static_cast<uint32_t>(lanes),
                  static_cast<uint32_t>(clamped((kv_heads > 0 ? kv_heads : 1) * a.group, 1, lanes))};
  launch.total = static_cast<uint32_t>(tiles * lanes);
  launch.box_rows = box_rows(a, instance->keys);
  // With ALiBi scores come in natural units, with a soft cap alone as its tanh. A scale of 0: no score notices, and 0 x -inf is NaN.
  const float unit = a.alibi_slopes != nullptr ? 1.0f : a.softcap > 0 ? a.softcap : std::fabs(a.scale);
  launch.factor = std::fmax(unit * kLog2e, 1e-37f);
  launch.power = power_of_two_below(launch.factor);
  if (counts({tiles, lanes}, multiprocessors)) launch.counter = static_cast<uint32_t*>(workspace);

  Maps maps;
  const int64_t q_batch = a.packed_q ? 1 : a.batch;
  const int64_t k_batch = a.paged() ? a.page_count : a.packed_k ? 1 : a.batch;
  const int64_t k_rows = a.paged() ? a.page_size : a.key_rows;
  if (!encode(&maps.q, a.q, {a.dim, a.query_rows, a.heads, q_batch}, kWarpgroupRows) ||
      !encode(&maps.k, a.k, {a.dim, k_rows, a.kv_heads, k_batch}, launch.box_rows) ||
      !encode(&maps.v, a.v, {a.value_dim, k_rows, a.kv_heads, k_batch}, launch.box_rows) ||
      !encode(&maps.out, a.out, {a.value_dim, a.query_rows, a.heads, q_batch}, kOutRows)) {
    return cudaErrorInvalidValue;
  }
  const int64_t blocks = tiles * lanes < multiprocessors ? tiles * lanes : multiprocessors;
  return instance->launch(a, maps, launch, static_cast<int>(blocks), stream);
}

}  // namespace

cudaError_t launch_wgmma(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream) {
  Limits limits;
  limits.shared_per_block = plan.shared_bytes;
  const Instance* const instance = choose(a, limits);
  if (instance == nullptr || plan.threads == 0) return cudaErrorInvalidConfiguration;
  return launch_instance(instance, a, triangular(a) ? kSectionBytes : 0, plan.config, workspace, stream);
}

}  // namespace tsr::cuda
