// The instantiations of the decode kernel, one file for each format.
#pragma once

#include <cuda_runtime.h>

#include "decode_layout.cuh"

namespace tsr::cuda::decode {

struct Launch {
  int dim = 0;  ///< padded: 64, 96, 128 or 256
  Variant variant = Variant::kOneTile;
  int threads = 0;
  int shared_bytes = 0;
  int most_shared_bytes = 0;  ///< that any plan for the instantiation asks for
  bool plain = false;         ///< the usual case's kernel
  unsigned units = 0;         ///< blocks of a batch entry and split
  unsigned batch = 0;
};

cudaError_t launch_f16(const Parameters& p, const Launch& launch, cudaStream_t stream);
cudaError_t launch_bf16(const Parameters& p, const Launch& launch, cudaStream_t stream);
cudaError_t launch_f8(const Parameters& p, const Launch& launch, cudaStream_t stream);
cudaError_t launch_q8(const Parameters& p, const Launch& launch, cudaStream_t stream);
cudaError_t launch_q4(const Parameters& p, const Launch& launch, cudaStream_t stream);

}  // namespace tsr::cuda::decode
