#include <atomic>
#include <iterator>

#include "../common/shared_memory.h"
#include "ladder.cuh"
#include "steps.h"

namespace tsr::cuda {
namespace {

using namespace ladder;

struct Instance {
  int32_t rows;
  int32_t keys;
  int32_t threads;
  int32_t shared_bytes;
  cudaError_t (*launch)(const Attention& a, cudaStream_t stream);
};

template <class Step>
cudaError_t launch(const Attention& a, cudaStream_t stream) {
  static std::atomic<uint64_t> allowed{0};
  const auto kernel = prefill<Step>;
  if (const cudaError_t error = allow_shared(reinterpret_cast<const void*>(kernel), Step::kSharedBytes, allowed);
      error != cudaSuccess) {
    return error;
  }
  const int64_t tiles = (a.query_rows + Step::kRows - 1) / Step::kRows;
  const int64_t blocks = tiles * a.batch * a.heads;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  kernel<<<static_cast<unsigned>(blocks), Step::kThreads, Step::kSharedBytes, stream>>>(a,
                                                                                        static_cast<uint32_t>(tiles));
  return cudaPeekAtLastError();
}

template <class Step>
constexpr Instance instance() {
  return {Step::kRows, Step::kTileKeys, Step::kThreads, Step::kSharedBytes, launch<Step>};
}

template <bool... kSteps>
using Small = Step<64, 64, 4, kSteps...>;
template <bool... kSteps>
using Medium = Step<128, 128, 4, kSteps...>;
template <bool... kSteps>
using Large = Step<256, 128, 8, kSteps...>;

// Fast math, split, reversed.
constexpr Instance kInstances[] = {
    instance<Small<false, false, false>>(),  //
    instance<Medium<false, false, false>>(), instance<Large<false, false, false>>(),
    instance<Medium<true, false, false>>(),  instance<Large<true, false, false>>(),
    instance<Medium<true, true, false>>(),   instance<Large<true, true, false>>(),
    instance<Medium<true, true, true>>(),    instance<Large<true, true, true>>(),
    instance<Small<true, true, true>>(),
};
constexpr int kSmall = 0, kMedium = 1, kLarge = 2, kFast = 3, kSplit = 5, kReversed = 7, kTunedSmall = 9;

Plan plan_of(int config) {
  const Instance& chosen = kInstances[config];
  Plan plan;
  plan.tile_q = chosen.rows;
  plan.tile_k = chosen.keys;
  plan.threads = chosen.threads;
  plan.shared_bytes = chosen.shared_bytes;
  plan.config = config;
  return plan;
}
template <int kConfig>
Plan plan(const Attention&, const Limits& limits) {
  return kInstances[kConfig].shared_bytes <= limits.shared_per_block ? plan_of(kConfig) : Plan{};
}
/// Of a pair with 128 and 256 query rows, the larger if it fits: on sm_86, 89 and 120 the steps go on from 128 x 128.
template <int kPair>
Plan plan_pair(const Attention&, const Limits& limits) {
  const bool large = kInstances[kPair + 1].shared_bytes <= limits.shared_per_block;
  return kInstances[kPair].shared_bytes <= limits.shared_per_block ? plan_of(kPair + large) : Plan{};
}

constexpr LadderStep kSteps[] = {
    {"ladder-64x64", "Ladder: tiles of 64 queries and 64 keys, each operation rounded, every tile masked", plan<kSmall>,
     kInstances[kSmall].shared_bytes},
    {"ladder-128x128", "Ladder: as ladder-64x64 with tiles of 128 x 128", plan<kMedium>,
     kInstances[kMedium].shared_bytes},
    {"ladder-256x128", "Ladder: as ladder-64x64 with tiles of 256 x 128", plan<kLarge>,
     kInstances[kLarge].shared_bytes},
    {"ladder-fast-math",
     "Ladder: as ladder-256x128 (128x128 where that doesn't fit), with approximate exp2 and division and the scale in "
     "an FMA",
     plan_pair<kFast>, kInstances[kFast].shared_bytes},
    {"ladder-split", "Ladder: as ladder-fast-math, and only tiles that not all rows see are masked", plan_pair<kSplit>,
     kInstances[kSplit].shared_bytes},
    {"ladder-reversed", "Ladder: as ladder-split, tiles with the most keys first", plan_pair<kReversed>,
     kInstances[kReversed].shared_bytes},
    {"ladder-tuned-64x64", "Ladder: as ladder-reversed with tiles of 64 x 64, a candidate of the tuned step",
     plan<kTunedSmall>, kInstances[kTunedSmall].shared_bytes},
    {"ladder-tuned-128x128", "Ladder: as ladder-reversed with tiles of 128 x 128, a candidate of the tuned step",
     plan<kReversed>, kInstances[kReversed].shared_bytes},
};

}  // namespace

LadderSteps ladder_steps() { return {std::begin(kSteps), std::end(kSteps)}; }

cudaError_t launch_ladder(const Attention& a, const Plan& plan, void*, cudaStream_t stream) {
  if (plan.threads == 0) return cudaErrorInvalidConfiguration;
  return kInstances[plan.config].launch(a, stream);
}

}  // namespace tsr::cuda
