// Copies between the device and pageable host memory that return at once. CUDA's own would wait for the stream's work
// (only up to 64 KB to the device don't), which stops an event loop for as long as a kernel runs. So the bytes go through
// page-locked memory, in pieces, and a function that the stream calls in its turn moves them between there and the
// caller's memory. Pieces of one stream are ordered by it, so they share the memory without anyone waiting.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>

#include "tessera/common/problem.h"

namespace tsr::cuda::host {

class Gpu;

class Staging {
 public:
  /// Frees the page-locked memory once the last copy is done. The device must be current.
  void release();

 private:
  friend Verdict copy_pageable(Gpu& gpu, Staging& staging, cudaStream_t stream, void* dst, const void* src,
                               uint64_t bytes, bool to_host);
  Verdict prepare(Gpu& gpu);

  std::mutex mutex_;
  void* memory_ = nullptr;
  cudaEvent_t done_ = nullptr;  ///< behind the last copy; the stream itself may be the caller's, and gone by then
};

/// Host memory that CUDA doesn't know: neither page-locked nor managed.
bool is_pageable(const void* host);

Verdict copy_pageable(Gpu& gpu, Staging& staging, cudaStream_t stream, void* dst, const void* src, uint64_t bytes,
                      bool to_host);

}  // namespace tsr::cuda::host
