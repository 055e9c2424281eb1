// The instantiations of prefill.cuh, and how a launch finds one. Each file prefill_*.cu defines those of one type and kind.
#pragma once

#include "../kernels.h"
#include "order.cuh"

namespace tsr::cuda::sm80 {

/// One instantiation: the head dims that its tiles hold, its shape, its launch.
struct Instance {
  int32_t dim;
  int32_t value_dim;
  int32_t rows;
  int32_t keys;
  int32_t threads;
  int32_t stages;
  int32_t shared_bytes;
  cudaError_t (*launch)(const Attention& a, const Order& order, int64_t blocks, bool aligned, cudaStream_t stream);
};

struct InstanceList {
  const Instance* begin;
  const Instance* end;
};

/// In the order of preference for a head dim.
InstanceList plain_f16();
InstanceList plain_bf16();
InstanceList options_f16();
InstanceList options_bf16();

}  // namespace tsr::cuda::sm80
