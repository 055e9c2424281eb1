// What the kernels of a code object take, by value: for host and device.
#pragma once

#include "common/attributes.h"
// The attributes first.
#include "tessera/common/device_problem.h"
#include "tessera/common/device_split.h"

namespace tsr::hip {

using namespace tsr::device;

struct AttentionArguments {
  Attention attention;
  Tiling tiling;
  float* partials = nullptr;
  int32_t chiplets = 1;  ///< of a device whose blocks they take in turn
};

struct AppendArguments {
  Append append;
  double ratio = 0;  ///< theta^(-2 / dims): pair i turns by position * scale * ratio^i
};

}  // namespace tsr::hip
