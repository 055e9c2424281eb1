// Launches the instantiation of one format that a plan chose.
#pragma once

#include <algorithm>

#include "../common/shared_memory.h"
#include "decode_plain.cuh"
#include "decode_launch.h"

namespace tsr::cuda::decode {

template <class L, bool kPlain>
cudaError_t launch_one(Parameters p, const Launch& launch, cudaStream_t stream) {
  static std::atomic<uint64_t> done{0};
  const auto kernel = [] {
    if constexpr (kPlain) {
      return plain_kernel<L>;
    } else {
      return decode_kernel<L>;
    }
  }();
  if (const cudaError_t error = allow_shared(reinterpret_cast<const void*>(kernel), launch.most_shared_bytes, done);
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.y = static_cast<unsigned>(p.splits);
  attribute.val.clusterDim.x = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = p.clustered != 0 ? 1 : 0;
  constexpr unsigned kMost = 65535;  // of a grid's z
  for (unsigned first = 0; first < launch.batch; first += kMost) {
    p.first_batch = static_cast<int32_t>(first);
    config.gridDim = dim3(launch.units, static_cast<unsigned>(p.splits), std::min(kMost, launch.batch - first));
    if (const cudaError_t error = cudaLaunchKernelEx(&config, kernel, p); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <Format kFormat, int kDim, Variant kVariant>
cudaError_t launch_kind(const Parameters& p, const Launch& launch, cudaStream_t stream) {
  using L = Layout<kFormat, kDim, kVariant>;
  if (launch.plain) return launch_one<L, true>(p, launch, stream);
  if constexpr (kDim != 96 && (kVariant == Variant::kOneTile || kVariant == Variant::kTwoTiles)) {
    return launch_one<L, false>(p, launch, stream);
  }
  return cudaErrorInvalidConfiguration;
}

template <Format kFormat, int kDim>
cudaError_t launch_variant(const Parameters& p, const Launch& launch, cudaStream_t stream) {
  if (launch.variant == Variant::kOneTile) return launch_kind<kFormat, kDim, Variant::kOneTile>(p, launch, stream);
  if constexpr (exists(kFormat, kDim, Variant::kTwoTiles)) {
    if (launch.variant == Variant::kTwoTiles) return launch_kind<kFormat, kDim, Variant::kTwoTiles>(p, launch, stream);
  }
  if constexpr (exists(kFormat, kDim, Variant::kFourTiles)) {
    if (launch.variant == Variant::kFourTiles)
      return launch_kind<kFormat, kDim, Variant::kFourTiles>(p, launch, stream);
  }
  if constexpr (exists(kFormat, kDim, Variant::kTwoHeads)) {
    if (launch.variant == Variant::kTwoHeads) return launch_kind<kFormat, kDim, Variant::kTwoHeads>(p, launch, stream);
    if (launch.variant == Variant::kEightHeads) {
      return launch_kind<kFormat, kDim, Variant::kEightHeads>(p, launch, stream);
    }
    return launch_kind<kFormat, kDim, Variant::kAdjoiningKeys>(p, launch, stream);
  }
  return cudaErrorInvalidConfiguration;
}

template <Format kFormat>
cudaError_t launch_format(const Parameters& p, const Launch& launch, cudaStream_t stream) {
  if (launch.dim == 64) return launch_variant<kFormat, 64>(p, launch, stream);
  if constexpr (exists(kFormat, 96, Variant::kOneTile)) {
    if (launch.dim == 96) return launch_variant<kFormat, 96>(p, launch, stream);
  }
  if (launch.dim == 128) return launch_variant<kFormat, 128>(p, launch, stream);
  return launch_variant<kFormat, 256>(p, launch, stream);
}

}  // namespace tsr::cuda::decode
