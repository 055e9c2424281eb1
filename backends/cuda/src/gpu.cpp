#include "gpu.h"

#include <algorithm>

#include "tessera/common/text.h"

namespace tsr::cuda::host {
namespace {

// Freed memory that is kept for the next buffers. More than that goes back to the device.
constexpr uint64_t kKept = uint64_t{64} << 20;

// After these a CUDA context answers every call with the same error until the process ends.
bool ends_context(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsClientTerminated:
      return true;
    default:
      return false;
  }
}

std::string describe(cudaError_t error) { return text(cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"); }

}  // namespace

Verdict Gpu::check_capturing(cudaStream_t stream, bool* capturing) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TSR_TRY(check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing"));
  *capturing = status != cudaStreamCaptureStatusNone;
  return {};
}

Verdict Gpu::open(int index, const char* name, Gpu** gpu) {
  static std::mutex& mutex = *new std::mutex;
  static std::vector<Gpu*>& all = *new std::vector<Gpu*>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Gpu* g) { return g->index_ == index; });
  if (found != all.end()) {
    TSR_TRY((*found)->alive());
    TSR_TRY((*found)->prepare());
    *gpu = *found;
    return {};
  }

  const Driver& driver = host::driver();
  CUdevice device = 0;
  CUcontext primary = nullptr;
  CUresult error = driver.device(&device, index);
  if (error == CUDA_SUCCESS) error = driver.primary_retain(&primary, device);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) {
    return {TSR_OUT_OF_MEMORY,
            text("device ", index, " (", name,
                 ") has too little free memory for a CUDA context, which takes some "
                 "hundred MB: end other programs that use it (nvidia-smi lists them), or use another device")};
  }
  if (error != CUDA_SUCCESS) {
    return {TSR_DEVICE_ERROR,
            text("device ", index, " (", name, "): cuDevicePrimaryCtxRetain: ", driver.describe(error))};
  }
  all.push_back(new Gpu(index, primary));
  TSR_TRY(all.back()->prepare());
  *gpu = all.back();
  return {};
}

// What it got as far as it came is there at the next attempt.
Verdict Gpu::prepare() {
  if (ready_) return {};
  const Current current(*this);
  if (current.error() != CUDA_SUCCESS) {
    return {TSR_DEVICE_ERROR, text("cuCtxPushCurrent: ", driver().describe(current.error()))};
  }
  const Relaxed relaxed;
  int pools = 0;
  TSR_TRY(check(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index_), "cudaDeviceGetAttribute"));
  if (pools == 0) {
    ready_ = true;
    return {};
  }
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = index_;
  if (pool_ == nullptr) TSR_TRY(check(cudaMemPoolCreate(&pool_, &props), "cudaMemPoolCreate"));
  uint64_t kept = kKept;
  TSR_TRY(check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept), "cudaMemPoolSetAttribute"));
  TSR_TRY(check(cudaStreamCreateWithFlags(&memory_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  pooled_ = ready_ = true;
  return {};
}

Verdict Gpu::failed(cudaError_t error, const char* what) {
  cudaGetLastError();
  if (ends_context(error)) {
    lost_.store(error, std::memory_order_relaxed);
    return {TSR_DEVICE_ERROR, text(what, ": ", describe(error), "; the CUDA context of device ", index_,
                                   " is lost with it, and everything in its memory: start the process again")};
  }
  return {error == cudaErrorMemoryAllocation ? TSR_OUT_OF_MEMORY : TSR_DEVICE_ERROR, text(what, ": ", describe(error))};
}

Verdict Gpu::lost() const {
  if (forked()) return {TSR_DEVICE_ERROR, text(forked_reason("CUDA"), ": ", kForkedFix)};
  return {TSR_DEVICE_ERROR, text("the CUDA context of device ", index_, " was lost to an earlier ",
                                 describe(lost_.load(std::memory_order_relaxed)), ": start the process again")};
}

cudaError_t Gpu::take(uint64_t bytes, void** data) {
  if (!pooled_) return cudaMalloc(data, bytes);
  const cudaError_t taken = cudaMallocFromPoolAsync(data, bytes, pool_, memory_);
  if (taken != cudaSuccess) return taken;
  // Nothing waits on that stream, so this only makes the memory good for all other streams.
  const cudaError_t good = cudaStreamSynchronize(memory_);
  if (good != cudaSuccess) give_back(*data);
  return good;
}

void Gpu::give_back(void* data) {
  const cudaError_t error = pooled_ ? cudaFreeAsync(data, memory_) : cudaFree(data);
  if (error != cudaSuccess) failed(error, "");
}

// False while the owner's stream is being captured: an event would become part of the graph.
bool Gpu::mark(Freed* freed) {
  const auto owner =
      std::find_if(owners_.begin(), owners_.end(), [&](const auto& o) { return o.first == freed->owner; });
  if (owner == owners_.end()) return true;  // gone, and its stream was done by then
  bool capturing = true;
  if (!check_capturing(owner->second, &capturing).ok() || capturing) return false;
  if (events_.empty()) {
    cudaEvent_t event = nullptr;
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    events_.push_back(event);
  }
  if (cudaEventRecord(events_.back(), owner->second) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  freed->after = events_.back();
  events_.pop_back();
  return true;
}

void Gpu::collect(bool wait) {
  const auto done = [&](Freed& freed) {
    if (freed.after == nullptr && !mark(&freed)) return false;
    if (freed.after != nullptr) {
      const cudaError_t state = wait ? cudaEventSynchronize(freed.after) : cudaEventQuery(freed.after);
      if (state != cudaSuccess) {  // not reached, or nobody knows: work may still use it
        failed(state, "");
        return false;
      }
      events_.push_back(freed.after);
    }
    give_back(freed.data);
    return true;
  };
  freed_.erase(std::remove_if(freed_.begin(), freed_.end(), done), freed_.end());
}

Verdict Gpu::allocate(uint64_t bytes, const char* what, void** data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Relaxed relaxed;
  collect(false);
  cudaError_t error = take(bytes, data);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    collect(true);
    if (pooled_) {
      cudaStreamSynchronize(memory_);
      cudaMemPoolTrimTo(pool_, 0);
    }
    error = take(bytes, data);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    return {TSR_OUT_OF_MEMORY,
            text(what, ": is ", bytes, ", device ", index_, " has ", free, " of ", total, " bytes free")};
  }
  return check(error, pooled_ ? "cudaMallocFromPoolAsync" : "cudaMalloc");
}

void Gpu::free(void* data, ErrorKey owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Relaxed relaxed;
  if (!pooled_) {  // cudaFree waits by itself
    give_back(data);
    return;
  }
  freed_.push_back({data, owner, nullptr});
  mark(&freed_.back());
  collect(false);
}

void Gpu::add_owner(ErrorKey owner, cudaStream_t own) {
  const std::lock_guard<std::mutex> lock(mutex_);
  owners_.emplace_back(owner, own);
}

void Gpu::remove_owner(ErrorKey owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Relaxed relaxed;
  owners_.erase(std::remove_if(owners_.begin(), owners_.end(), [&](const auto& o) { return o.first == owner; }),
                owners_.end());
  collect(false);
  if (owners_.empty() && pooled_) {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    events_.clear();
    cudaStreamSynchronize(memory_);
    cudaMemPoolTrimTo(pool_, 0);
    cudaGetLastError();
  }
}

void Gpu::discard_pinned(void* data) {
  const std::lock_guard<std::mutex> lock(pinned_mutex_);
  pinned_.push_back(data);
}

void Gpu::collect_pinned() {
  std::vector<void*> all;
  {
    const std::lock_guard<std::mutex> lock(pinned_mutex_);
    all.swap(pinned_);
  }
  if (all.empty()) return;
  const Relaxed relaxed;
  for (void* data : all) {
    if (cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
  }
}

}  // namespace tsr::cuda::host
