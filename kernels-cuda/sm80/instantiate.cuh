// What every prefill_*.cu includes: makes an Instance of a Shape.
#pragma once

#include <iterator>

#include "../common/shared_memory.h"
#include "instances.h"
#include "prefill.cuh"

namespace tsr::cuda::sm80 {

template <class Shape>
cudaError_t launch(const Attention& a, const Order& order, int64_t blocks, bool aligned, cudaStream_t stream) {
  static std::atomic<uint64_t> allowed{0};
  const auto kernel = prefill<Shape>;
  if (const cudaError_t error = allow_shared(reinterpret_cast<const void*>(kernel), Shape::kSharedBytes, allowed);
      error != cudaSuccess) {
    return error;
  }
  kernel<<<static_cast<unsigned>(blocks), Shape::kThreads, Shape::kSharedBytes, stream>>>(a, order, aligned);
  return cudaPeekAtLastError();
}

template <class Shape>
constexpr Instance instance() {
  return {Shape::kDim,     Shape::kValueDim, Shape::kRows,        Shape::kKeys,
          Shape::kThreads, Shape::kStages,   Shape::kSharedBytes, launch<Shape>};
}

// T, D, Dv, rows, keys, warps, stages, options. docs/kernels/cuda.md has what was measured.
template <class T>
constexpr Instance kPlain[] = {
    instance<Shape<T, 64, 64, 128, 128, 4, 2, false>>(),  instance<Shape<T, 96, 96, 128, 64, 4, 2, false>>(),
    instance<Shape<T, 128, 128, 128, 64, 4, 2, false>>(), instance<Shape<T, 128, 128, 128, 32, 4, 2, false>>(),
    instance<Shape<T, 192, 128, 128, 64, 8, 1, false>>(), instance<Shape<T, 192, 192, 128, 64, 8, 2, false>>(),
    instance<Shape<T, 192, 192, 64, 64, 4, 1, false>>(),  instance<Shape<T, 256, 256, 128, 64, 8, 1, false>>(),
    instance<Shape<T, 256, 256, 64, 32, 4, 2, false>>(),
};
template <class T>
constexpr Instance kOptions[] = {
    instance<Shape<T, 64, 64, 64, 64, 4, 2, true>>(),
    instance<Shape<T, 128, 128, 64, 64, 4, 1, true>>(),
    instance<Shape<T, 256, 256, 64, 32, 4, 1, true>>(),
};

}  // namespace tsr::cuda::sm80
