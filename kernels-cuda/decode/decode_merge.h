// The second kernel of a split decode.
#pragma once

#include <cuda_runtime.h>

#include "decode_layout.cuh"

namespace tsr::cuda::decode {

/// Whether the code that runs on the current device was compiled for sm_90 or above (not: translated from an older PTX). Asked
/// once for each device.
bool has_clusters();

cudaError_t launch_merge(const Parameters& p, int dim, Variant variant, cudaStream_t stream);

}  // namespace tsr::cuda::decode
