// The rows of kernels-hip, and what a checked problem looks like to a kernel.
#pragma once

#include <vector>

#include "kernels.h"
#include "tessera/common/check.h"
#include "tessera/common/select.h"

namespace tsr::hip::host {

constexpr int64_t kMaxHeadDim = 256;

std::vector<Variant> make_catalogue(const Limits& limits);

/// Matrix instructions before fp32 arithmetic, then the family that suits the shape, then the pipeline if its tiles are filled.
int preference(const Problem& problem, const Variant& row);

/// What a row runs as.
struct Kernel {
  const char* name;
  Plan (*plan)(const Attention& a, const Limits& limits);
  void (*launch)(const Attention& a, const Plan& plan, void* workspace, Launches* launches);
  bool matrix;
};
inline const Kernel& kernel_of(const Variant& row) { return *static_cast<const Kernel*>(row.implementation); }

}  // namespace tsr::hip::host
