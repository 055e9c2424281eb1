// What every prefill_*.cu includes.
#pragma once

#include <iterator>

#include "../common/shared_memory.h"
#include "instances.h"
#include "prefill.cuh"

namespace tsr::cuda::sm90 {

template <class Shape>
cudaError_t launch(const Attention& a, const Maps& maps, const Launch& launch, int blocks, cudaStream_t stream) {
  static std::atomic<uint64_t> allowed{0};
  const auto kernel = prefill<Shape>;
  if (const cudaError_t error = allow_shared(reinterpret_cast<const void*>(kernel), Shape::kSharedBytes, allowed);
      error != cudaSuccess) {
    return error;
  }
  kernel<<<blocks, Shape::kThreads, Shape::kSharedBytes, stream>>>(a, maps, launch);
  return cudaPeekAtLastError();
}

template <class Shape>
constexpr Instance instance() {
  return {Shape::kDim, Shape::kKeys, Shape::kSharedBytes, launch<Shape>};
}

// T, D, Dv, keys of a tile.
template <class T>
constexpr Instance kInstances[] = {
    instance<Shape<T, 64, 64, 128>>(),
    instance<Shape<T, 128, 128, 128>>(),
    instance<Shape<T, 256, 256, 64>>(),
};

}  // namespace tsr::cuda::sm90
