// From checked problems to what GPU kernels are told: by value, strides in bytes, nothing allocated.
#pragma once

#include "tessera/common/check.h"
#include "tessera/common/device_problem.h"

namespace tsr::device {

/// Fails for extents that don't fit the kernels' 32 bits.
Verdict translate(const Problem& problem, Attention* attention);
Verdict translate(const AppendProblem& problem, Append* append);
Verdict translate(const MergeProblem& problem, Merge* merge);

}  // namespace tsr::device
