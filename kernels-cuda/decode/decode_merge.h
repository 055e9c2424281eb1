// The second kernel of a split decode.
#pragma once

#include <cuda_runtime.h>

#include "decode_layout.cuh"

namespace tsr::cuda::decode {

cudaError_t launch_merge(const Parameters& p, int dim, Variant variant, cudaStream_t stream);

}  // namespace tsr::cuda::decode
