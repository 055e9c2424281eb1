// The steps of the ladder as the back end's catalogue lists them.
#pragma once

#include "../kernels.h"

namespace tsr::cuda {

constexpr int32_t kLadderHeadDim = 128;

/// One row of the catalogue. fp16 q, k, v and out, 16-byte aligned; the one head dim; scale above 0; padded batches with contiguous
/// keys, masked by causality and lengths alone.
struct LadderStep {
  const char* name;
  const char* summary;
  Plan (*plan)(const Attention& a, const Limits& limits);
  int32_t shared_bytes;  ///< that a block needs at least
};

struct LadderSteps {
  const LadderStep* begin;
  const LadderStep* end;
};

LadderSteps ladder_steps();
cudaError_t launch_ladder(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream);

}  // namespace tsr::cuda
