// The arguments of a call, as the contract's structs. They own what the structs point at.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "tessera/tessera.h"

namespace tessera {

struct Arguments {
  Arguments() = default;
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /** As new, but for memory that the next call may have. */
  void clear() {
    tensors.clear();
    keep.clear();
    keeps = true;
    hostViews = false;
    kernel.clear();
    outs.clear();
    lses.clear();
    attention = {};
    append = {};
    rope = {};
    decode = {};
    merge = {};
  }

  /** Reserved before the first one is read: the structs below hold addresses of its elements. */
  std::vector<tsr_tensor> tensors;
  /** Buffers that the call uses, if it may outlast the one that made it. */
  std::vector<std::shared_ptr<Buffer>> keep;
  bool keeps = true;
  /** Some tensors are JavaScript's own memory. */
  bool hostViews = false;
  std::string kernel;
  std::vector<const tsr_tensor*> outs;
  std::vector<const tsr_tensor*> lses;

  tsr_attention_desc attention{};
  tsr_append_desc append{};
  tsr_rope_desc rope{};
  tsr_decode_desc decode{};
  tsr_merge_desc merge{};
};

}  // namespace tessera
