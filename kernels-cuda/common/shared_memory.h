// Kernels that want more than 48 KB of dynamic shared memory have to say so once for each device.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace tsr::cuda {

/// Raises the limit of `kernel` on the current device at the first call; later ones cost one load. One `done` for each kernel.
/// (A bit for each device: 64 of them, the rest ask every time.)
inline cudaError_t allow_shared(const void* kernel, int bytes, std::atomic<uint64_t>& done) {
  if (bytes <= 48 * 1024) return cudaSuccess;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((done.load(std::memory_order_acquire) & bit) != 0) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) done.fetch_or(bit, std::memory_order_release);
  return error;
}

}  // namespace tsr::cuda
