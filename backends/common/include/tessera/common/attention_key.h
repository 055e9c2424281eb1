// All of an attention descriptor but where its tensors' elements are: two of equal keys are checked, chosen for and planned alike. For
// back ends that can't read what lengths and pages hold. Checking takes some 2 us, about as long as a launch, and a model's layers
// and steps mostly repeat each other.
#pragma once

#include <cstdint>

#include "tessera/common/device_problem.h"
#include "tessera/common/error.h"
#include "tessera/tessera.h"

namespace tsr {

constexpr int kAttentionTensors = 17;

class AttentionKey {
 public:
  /// False, and equal to no other, if this one has to be looked at in full: it names a kernel, lacks an address, or has a struct_size
  /// that isn't this version's. `context` is what the answer hangs on besides.
  bool read(ErrorKey context, const tsr_attention_desc* desc);
  bool operator==(const AttentionKey& other) const;

 private:
  bool whole_ = false;
  ErrorKey context_ = 0;
  uint32_t given_ = 0;  ///< a bit for each tensor
  // Not cleared, which would take longer than reading: nothing looks at more than `whole_` and `given_` say.
  tsr_attention_desc options_;             ///< without pointers
  tsr_tensor tensors_[kAttentionTensors];  ///< those given; of the address only what alignment shows
};

/// Puts a descriptor's addresses into what was translated from another of equal key.
void set_addresses(const tsr_attention_desc& desc, device::Attention* attention);

}  // namespace tsr
