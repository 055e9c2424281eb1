// Copies between the device and pageable host memory that return at once. HIP's own may wait for the stream's work, which
// stops an event loop for as long as a kernel runs. So the bytes go through page-locked memory, in pieces, and a function that the stream calls in its turn moves them between there and the
// caller's memory. Pieces of one stream are ordered by it, so they share the memory without anyone waiting.
#pragma once

#include <cstdint>
#include <mutex>

#include "hip.h"
#include "tessera/common/problem.h"

namespace tsr::hip::host {

class Gpu;

class Staging {
 public:
  /// Frees the page-locked memory once the last copy is done. The device must be current.
  void release();

 private:
  friend Verdict copy_pageable(Gpu& gpu, Staging& staging, hipStream_t stream, void* dst, const void* src,
                               uint64_t bytes, bool to_host);
  Verdict prepare(Gpu& gpu);

  std::mutex mutex_;
  void* memory_ = nullptr;
  hipEvent_t done_ = nullptr;  ///< behind the last copy; the stream itself may be the caller's, and gone by then
};

/// Host memory that HIP doesn't know: neither page-locked nor managed.
bool is_pageable(const void* host);

/// Up to 64 KiB to the device are taken before it returns.
Verdict copy_pageable(Gpu& gpu, Staging& staging, hipStream_t stream, void* dst, const void* src, uint64_t bytes,
                      bool to_host);

}  // namespace tsr::hip::host
