// Which instantiation a problem gets, its grid, its launch.
#include "../kernels.h"
#include "instances.h"

namespace tsr::cuda {
namespace {

using namespace sm80;

/// Keys and values of the heads of one section stay in the L2 cache together if they are no more than this.
constexpr int64_t kSectionBytes = int64_t{32} << 20;
/// What a block needs of shared memory beside its own.
constexpr int64_t kReservedBytes = 1024;

InstanceList instances(const Attention& a, bool aligned) {
  const bool f16 = a.q.type == Type::kF16;
  if (aligned && a.plain_score()) return f16 ? plain_f16() : plain_bf16();
  return f16 ? options_f16() : options_bf16();
}

/// The narrowest that holds the head dims; of those the first of which two blocks fit on a multiprocessor, else the first that
/// fits at all.
const Instance* choose(InstanceList list, const Attention& a, const Limits& limits) {
  const Instance* best = nullptr;
  const auto twice = [&](const Instance& i) {
    return i.threads > 128 || 2 * (i.shared_bytes + kReservedBytes) <= limits.shared_per_multiprocessor;
  };
  for (const Instance* i = list.begin; i != list.end; ++i) {
    if (i->dim < a.dim || i->value_dim < a.value_dim || i->shared_bytes > limits.shared_per_block) continue;
    const bool narrower = best != nullptr && i->dim + i->value_dim < best->dim + best->value_dim;
    const bool roomier =
        best != nullptr && i->dim == best->dim && i->value_dim == best->value_dim && !twice(*best) && twice(*i);
    if (best == nullptr || narrower || roomier) best = i;
  }
  return best;
}

struct Grid {
  Order order;
  int64_t blocks;
};

Grid grid_of(const Attention& a, int64_t rows) {
  const int64_t tiles = a.packed_q ? a.query_rows / rows + a.batch : (a.query_rows + rows - 1) / rows;
  const int64_t lanes = a.packed_q ? a.heads : static_cast<int64_t>(a.batch) * a.heads;
  const int64_t head_bytes = (a.packed_k ? a.key_rows : a.max_keys) * (a.dim + a.value_dim) * 2;
  const int64_t kv_heads = head_bytes > 0 ? kSectionBytes / head_bytes : lanes;
  const int64_t section_lanes = clamped((kv_heads > 0 ? kv_heads : 1) * a.group, 1, lanes);
  return {{static_cast<uint32_t>(tiles), static_cast<uint32_t>(lanes), static_cast<uint32_t>(section_lanes)},
          tiles * lanes};
}

}  // namespace

Plan plan_mma(const Attention& a, const Limits& limits, bool aligned) {
  const InstanceList list = instances(a, aligned);
  const Instance* const instance = choose(list, a, limits);
  Plan plan;
  if (instance == nullptr) return plan;
  plan.tile_q = instance->rows;
  plan.tile_k = instance->keys;
  plan.stages = instance->stages;
  plan.threads = instance->threads;
  plan.shared_bytes = instance->shared_bytes;
  plan.config = static_cast<int32_t>(instance - list.begin) * 2 + (aligned ? 1 : 0);
  return plan;
}

cudaError_t launch_mma(const Attention& a, const Plan& plan, void*, cudaStream_t stream) {
  if (plan.threads == 0) return cudaErrorInvalidConfiguration;
  const bool aligned = plan.config % 2 == 1;
  const Instance& instance = instances(a, aligned).begin[plan.config / 2];
  const Grid grid = grid_of(a, instance.rows);
  if (grid.blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  return instance.launch(a, grid.order, grid.blocks, aligned, stream);
}

}  // namespace tsr::cuda
