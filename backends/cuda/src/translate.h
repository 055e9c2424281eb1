// From the checked problems of backends/common to what kernels are told: by value, strides in bytes, nothing allocated.
#pragma once

#include "kernels.h"
#include "tessera/common/check.h"

namespace tsr::cuda::host {

/// Fails for extents that don't fit the kernels' 32 bits.
Verdict translate(const Problem& problem, Attention* attention);
Verdict translate(const AppendProblem& problem, Append* append);
Verdict translate(const MergeProblem& problem, Merge* merge);

}  // namespace tsr::cuda::host
