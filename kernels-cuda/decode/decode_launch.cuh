// Launches the instantiation of one format that a plan chose.
#pragma once

#include "../common/shared_memory.h"
#include "decode_kernel.cuh"
#include "decode_launch.h"

namespace tsr::cuda::decode {

template <class L>
cudaError_t launch_one(const Parameters& p, const Launch& launch, cudaStream_t stream) {
  static std::atomic<uint64_t> done{0};
  const auto kernel = decode_kernel<L>;
  // Every plan for this instantiation and device asks for the same.
  if (const cudaError_t error = allow_shared(reinterpret_cast<const void*>(kernel), launch.shared_bytes, done);
      error != cudaSuccess) {
    return error;
  }
  kernel<<<launch.blocks, launch.threads, launch.shared_bytes, stream>>>(p);
  return cudaPeekAtLastError();
}

template <Format kFormat, int kDim>
cudaError_t launch_variant(const Parameters& p, const Launch& launch, cudaStream_t stream) {
  if (launch.variant == Variant::kOneTile)
    return launch_one<Layout<kFormat, kDim, Variant::kOneTile>>(p, launch, stream);
  if constexpr (exists(kFormat, kDim, Variant::kTwoHeads)) {
    if (launch.variant == Variant::kTwoHeads) {
      return launch_one<Layout<kFormat, kDim, Variant::kTwoHeads>>(p, launch, stream);
    }
  }
  if constexpr (exists(kFormat, kDim, Variant::kTwoTiles)) {
    return launch_one<Layout<kFormat, kDim, Variant::kTwoTiles>>(p, launch, stream);
  }
  return cudaErrorInvalidConfiguration;
}

template <Format kFormat>
cudaError_t launch_format(const Parameters& p, const Launch& launch, cudaStream_t stream) {
  if (launch.dim == 64) return launch_variant<kFormat, 64>(p, launch, stream);
  if (launch.dim == 128) return launch_variant<kFormat, 128>(p, launch, stream);
  return launch_variant<kFormat, 256>(p, launch, stream);
}

}  // namespace tsr::cuda::decode
