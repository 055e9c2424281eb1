// What every prefill_*.cu includes.
#pragma once

#include <iterator>

#include "../common/shared_memory.h"
#include "instances.h"
#include "prefill.cuh"

namespace tsr::cuda::sm90 {

/// A kernel and not a memset, because kernels may overlap: the other starts while this one does, and waits for it before it
/// looks at the counter.
template <class T>
__global__ void reset(uint32_t* counter) {
  let_later_kernel_start();
  *counter = 0;
}

template <class Shape>
cudaError_t launch(const Attention& a, const Maps& maps, const Launch& launch, int blocks, cudaStream_t stream) {
  static std::atomic<uint64_t> allowed{0};
  const auto kernel = prefill<Shape>;
  if (const cudaError_t error = allow_shared(reinterpret_cast<const void*>(kernel), Shape::kSharedBytes, allowed);
      error != cudaSuccess) {
    return error;
  }
  const bool counts = launch.counter != nullptr;
  if (counts) {
    reset<typename Shape::Element><<<1, 1, 0, stream>>>(launch.counter);
    if (const cudaError_t error = cudaPeekAtLastError(); error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = Shape::kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = counts ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, a, maps, launch);
}

template <class Shape>
constexpr Instance instance() {
  return {Shape::kDim,     Shape::kValueDim,    Shape::kKeys, Shape::kRows,
          Shape::kThreads, Shape::kSharedBytes, launch<Shape>};
}

// T, D, Dv, keys of a tile, consumers. What `choose` in prefill.cu takes is the first that fits.
template <class T, bool kScored>
constexpr Instance kInstances[] = {
    instance<Shape<T, 64, 64, 128, 3, kScored>>(),   instance<Shape<T, 64, 64, 128, 2, kScored>>(),
    instance<Shape<T, 128, 128, 128, 2, kScored>>(), instance<Shape<T, 192, 128, 96, 2, kScored>>(),
    instance<Shape<T, 192, 192, 80, 2, kScored>>(),  instance<Shape<T, 256, 256, 64, 2, kScored>>(),
};

}  // namespace tsr::cuda::sm90
