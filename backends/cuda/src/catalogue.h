// The rows of kernels-cuda, and what a checked problem looks like to a kernel.
#pragma once

#include <vector>

#include "kernels.h"
#include "tessera/common/check.h"
#include "tessera/common/select.h"

namespace tsr::cuda::host {

/// Head dims and extents that the kernels' 32-bit members can tell.
constexpr int64_t kMaxHeadDim = 256;

std::vector<Variant> make_catalogue(const Limits& limits);

/// Tensor cores before fp32 arithmetic, then the family that suits the shape, then the wider copies.
int preference(const Problem& problem, const Variant& row);

/// What a row runs as.
struct Kernel {
  const char* name;
  Plan (*plan)(const Attention& a, const Limits& limits);
  cudaError_t (*launch)(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream);
  int32_t lowest_arch;
  bool tensor_cores;
};
inline const Kernel& kernel_of(const Variant& row) { return *static_cast<const Kernel*>(row.implementation); }

}  // namespace tsr::cuda::host
