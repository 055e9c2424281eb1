// One GPU, as long as the process lives: its primary context, its memory, and whether an error has made it useless.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "driver.h"
#include "tessera/common/error.h"
#include "tessera/common/forked.h"
#include "tessera/common/problem.h"

namespace tsr::cuda::host {

class Gpu {
 public:
  /// The GPU of this index, its primary context retained (at the first call; never released, as the CUDA runtime in this
  /// library keeps what it loaded there).
  static Verdict open(int index, const char* name, Gpu** gpu);

  int index() const { return index_; }
  CUcontext primary() const { return primary_; }

  /// What CUDA says, as a verdict of the call that `what` names. Clears it, so that the next call works; but after an
  /// error that ends a CUDA context, every later call says so.
  Verdict check(cudaError_t error, const char* what) { return error == cudaSuccess ? Verdict{} : failed(error, what); }
  /// Whether a stream is being captured, by us or by its owner.
  Verdict check_capturing(cudaStream_t stream, bool* capturing);
  /// Not ok once the CUDA context is lost, as it is in a forked child.
  Verdict alive() const { return is_lost() ? lost() : Verdict{}; }
  bool is_lost() const { return forked() || lost_.load(std::memory_order_relaxed) != cudaSuccess; }

  // Memory. A freed block is used again only when the work is done that the owner's own stream had at that time.
  Verdict allocate(uint64_t bytes, const char* what, void** data);
  void free(void* data, ErrorKey owner);
  void add_owner(ErrorKey owner, cudaStream_t own);
  /// The own stream has nothing left to do.
  void remove_owner(ErrorKey owner);

  /// Page-locked memory that is free to go, from a callback in which CUDA can't be called.
  void discard_pinned(void* data);
  void collect_pinned();

 private:
  struct Freed {
    void* data;
    ErrorKey owner;
    cudaEvent_t after;  ///< NULL: could not be recorded yet, the stream was being captured
  };

  Gpu(int index, CUcontext primary) : index_(index), primary_(primary) {}
  Verdict prepare();
  Verdict failed(cudaError_t error, const char* what);
  Verdict lost() const;
  cudaError_t take(uint64_t bytes, void** data);
  void give_back(void* data);
  bool mark(Freed* freed);
  void collect(bool wait);

  const int index_;
  const CUcontext primary_;
  std::atomic<cudaError_t> lost_{cudaSuccess};

  bool ready_ = false;  ///< under the lock of open()

  std::mutex mutex_;
  bool pooled_ = false;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t memory_ = nullptr;  ///< where memory comes from and goes to; never waits for anything
  std::vector<Freed> freed_;
  std::vector<cudaEvent_t> events_;
  std::vector<std::pair<ErrorKey, cudaStream_t>> owners_;

  std::mutex pinned_mutex_;
  std::vector<void*> pinned_;
};

/// Makes a GPU's primary context this thread's current one, and then again what was, which may be none.
class Current {
 public:
  explicit Current(const Gpu& gpu)
      : error_(forked() ? CUDA_ERROR_NOT_INITIALIZED : driver().push_current(gpu.primary())) {}
  ~Current() {
    CUcontext own;
    if (error_ == CUDA_SUCCESS) driver().pop_current(&own);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  CUresult error() const { return error_; }

 private:
  const CUresult error_;
};

/// Allows this thread what a stream capture that is going on elsewhere would forbid, such as allocating.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tsr::cuda::host
