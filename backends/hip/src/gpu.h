// One GPU, as long as the process lives: its code objects, its memory, and whether an error has made it useless.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "code_objects.h"
#include "hip.h"
#include "kernels.h"
#include "probe.h"
#include "tessera/common/error.h"
#include "tessera/common/forked.h"

namespace tsr::hip::host {

class Gpu {
 public:
  /// The GPU of a usable device, its code objects loaded (at the first call that succeeds; never unloaded).
  static Verdict open(const Device& device, Gpu** gpu);

  int index() const { return index_; }

  /// What HIP says, as a verdict of the call that `what` names. Clears it, so that the next call works; but after an error
  /// that leaves the device useless, every later call says so.
  Verdict check(hipError_t error, const char* what) { return error == hipSuccess ? Verdict{} : failed(error, what); }
  /// Not ok once the device is lost, as it is in a forked child.
  Verdict alive() const { return is_lost() ? lost() : Verdict{}; }
  bool is_lost() const { return forked() || lost_.load(std::memory_order_relaxed) != hipSuccess; }

  /// Enqueues the kernels, in order. Their arguments are copied.
  Verdict launch(Launches& launches, hipStream_t stream);

  /// Whether a stream is being captured, by us or by its owner.
  Verdict check_capturing(hipStream_t stream, bool* capturing);

  // Memory. A freed block is used again only when the work is done that the owner's own stream had at that time.
  Verdict allocate(uint64_t bytes, const char* what, void** data);
  void free(void* data, ErrorKey owner);
  void add_owner(ErrorKey owner, hipStream_t own);
  /// The own stream has nothing left to do.
  void remove_owner(ErrorKey owner);

  /// Page-locked memory that is free to go, from a callback in which HIP can't be called.
  void discard_pinned(void* data);
  void collect_pinned();

 private:
  struct Freed {
    void* data;
    ErrorKey owner;
    hipEvent_t after;  ///< NULL: could not be recorded yet, the stream was being captured
  };

  explicit Gpu(int index) : index_(index) {}
  Verdict prepare(const Device& device);
  Verdict load(const Device& device);
  Verdict failed(hipError_t error, const char* what);
  Verdict lost() const;
  Verdict find(const char* kernel, hipFunction_t* function);
  hipError_t take(uint64_t bytes, void** data);
  void give_back(void* data);
  bool mark(Freed* freed);
  void collect(bool wait);

  const int index_;
  std::atomic<hipError_t> lost_{hipSuccess};
  bool ready_ = false;

  std::mutex functions_mutex_;
  std::vector<hipModule_t> modules_;
  std::map<std::string, hipFunction_t, std::less<>> functions_;

  std::mutex mutex_;
  bool pooled_ = false;
  hipMemPool_t pool_ = nullptr;
  hipStream_t memory_ = nullptr;  ///< where memory comes from and goes to; never waits for anything
  std::vector<Freed> freed_;
  std::vector<hipEvent_t> events_;
  std::vector<std::pair<ErrorKey, hipStream_t>> owners_;

  std::mutex pinned_mutex_;
  std::vector<void*> pinned_;
};

/// Makes a GPU this thread's current device, and then again what was.
class Current {
 public:
  explicit Current(const Gpu& gpu) {
    error_ = forked() ? hipErrorNotInitialized : hip().hipGetDevice(&before_);
    if (error_ == hipSuccess && before_ != gpu.index()) {
      error_ = hip().hipSetDevice(gpu.index());
      changed_ = error_ == hipSuccess;
    }
    if (error_ != hipSuccess && !forked()) hip().hipGetLastError();
  }
  ~Current() {
    if (changed_) hip().hipSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  Verdict verdict() const;

 private:
  int before_ = 0;
  bool changed_ = false;
  hipError_t error_ = hipSuccess;
};

/// Allows this thread what a stream capture that is going on elsewhere would forbid, such as allocating.
class Relaxed {
 public:
  Relaxed() { hip().hipThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { hip().hipThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
};

}  // namespace tsr::hip::host
