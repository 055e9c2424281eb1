// What the merge kernel is told. See tsr_merge_desc in tessera.h.
#pragma once

#include "attention.h"

namespace tsr::cuda {

/// Parts that one launch takes; a call with more is TSR_UNSUPPORTED. (Kernel parameters may have 32,764 bytes.)
constexpr int kMergeParts = 128;

struct Merge {
  View outs[kMergeParts];
  View lses[kMergeParts];
  int32_t count = 0;
  View out;
  View lse;  ///< may be not given

  int32_t batch = 0;
  int32_t heads = 0;
  int32_t value_dim = 0;
  int64_t rows = 0;
};

}  // namespace tsr::cuda
