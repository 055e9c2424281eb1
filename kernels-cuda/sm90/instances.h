// The instantiations of prefill.cuh. Each file prefill_*.cu defines those of one type, for plain scores or those with a soft cap or ALiBi; they are compiled for sm_90a alone.
#pragma once

#include "../kernels.h"
#include "launch.h"

namespace tsr::cuda::sm90 {

struct Instance {
  int32_t dim;        ///< of q and k: what a tile holds
  int32_t value_dim;  ///< of v
  int32_t keys;
  int32_t rows;
  int32_t threads;
  int32_t shared_bytes;
  cudaError_t (*launch)(const Attention& a, const Maps& maps, const Launch& launch, int blocks, cudaStream_t stream);
};

/// Narrowest first.
struct InstanceList {
  const Instance* begin = nullptr;
  const Instance* end = nullptr;
};
InstanceList plain_f16();
InstanceList plain_bf16();
InstanceList scored_f16();
InstanceList scored_bf16();

}  // namespace tsr::cuda::sm90
