#include "gpu.h"

#include <algorithm>

#include "tessera/common/text.h"

namespace tsr::hip::host {
namespace {

// Freed memory that is kept for the next buffers. More than that goes back to the device.
constexpr uint64_t kKept = uint64_t{64} << 20;

// After these the device answers every call with an error until the process ends, if the runtime hasn't ended it itself.
bool ends_device(hipError_t error) {
  switch (error) {
    case hipErrorECCNotCorrectable:
    case hipErrorIllegalAddress:
    case hipErrorLaunchTimeOut:
    case hipErrorContextIsDestroyed:
    case hipErrorAssert:
    case hipErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

}  // namespace

Verdict Current::verdict() const {
  if (error_ == hipSuccess) return {};
  return {TSR_DEVICE_ERROR, text("hipSetDevice: ", hip().describe(error_))};
}

Verdict Gpu::open(const Device& device, Gpu** gpu) {
  static std::mutex& mutex = *new std::mutex;
  static std::vector<Gpu*>& all = *new std::vector<Gpu*>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = std::find_if(all.begin(), all.end(), [&](const Gpu* g) { return g->index_ == device.index; });
  if (found == all.end()) found = all.insert(all.end(), new Gpu(device.index));
  Gpu& g = **found;
  TSR_TRY(g.alive());
  if (!g.ready_) {
    const Verdict prepared = g.prepare(device);  // what it got as far as it came is there at the next attempt
    if (prepared.status == TSR_OUT_OF_MEMORY) {
      return {TSR_OUT_OF_MEMORY,
              text("device ", device.index, " (", device.name, ") has too little free memory for a context: end other ",
                   "programs that use it (rocm-smi --showpids lists them), or use another device; ", prepared.text)};
    }
    TSR_TRY(prepared);
    g.ready_ = true;
  }
  *gpu = &g;
  return {};
}

Verdict Gpu::prepare(const Device& device) {
  const Current current(*this);
  TSR_TRY(current.verdict());
  const Relaxed relaxed;
  if (modules_.empty()) TSR_TRY(load(device));
  int pools = 0;
  TSR_TRY(check(hip().hipDeviceGetAttribute(&pools, hipDeviceAttributeMemoryPoolsSupported, index_),
                "hipDeviceGetAttribute"));
  if (pools == 0) return {};
  hipMemPoolProps props;
  props.location.id = index_;
  if (pool_ == nullptr) TSR_TRY(check(hip().hipMemPoolCreate(&pool_, &props), "hipMemPoolCreate"));
  uint64_t kept = kKept;
  TSR_TRY(check(hip().hipMemPoolSetAttribute(pool_, hipMemPoolAttrReleaseThreshold, &kept), "hipMemPoolSetAttribute"));
  TSR_TRY(check(hip().hipStreamCreateWithFlags(&memory_, hipStreamNonBlocking), "hipStreamCreateWithFlags"));
  pooled_ = true;
  return {};
}

Verdict Gpu::check_capturing(hipStream_t stream, bool* capturing) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  TSR_TRY(check(hip().hipStreamIsCapturing(stream, &status), "hipStreamIsCapturing"));
  *capturing = status != hipStreamCaptureStatusNone;
  return {};
}

Verdict Gpu::load(const Device& device) {
  std::vector<hipModule_t> loaded;
  for (const CodeObject& code : code_objects()) {
    if (device.arch != code.architecture) continue;
    hipModule_t module = nullptr;
    const hipError_t error = hip().hipModuleLoadData(&module, code.image);
    if (error != hipSuccess) {
      const Verdict verdict = failed(error, "hipModuleLoadData");
      if (verdict.status == TSR_OUT_OF_MEMORY) return verdict;
      return {verdict.status,
              text("device ", index_, " (", device.name, ", ", device.arch, device.modes, "): ", verdict.text,
                   "; the code object of ", code.architecture, " is of version 5, which needs ROCm 6.0 or newer")};
    }
    loaded.push_back(module);
  }
  modules_ = std::move(loaded);
  return {};
}

Verdict Gpu::find(const char* kernel, hipFunction_t* function) {
  const std::lock_guard<std::mutex> lock(functions_mutex_);
  const auto known = functions_.find(kernel);
  if (known != functions_.end()) {
    *function = known->second;
    return {};
  }
  const Relaxed relaxed;
  hipError_t error = hipErrorNotFound;
  for (size_t i = 0; i < modules_.size() && error == hipErrorNotFound; ++i) {
    error = hip().hipModuleGetFunction(function, modules_[i], kernel);
  }
  TSR_TRY(check(error, text("hipModuleGetFunction of ", kernel).c_str()));
  functions_.emplace(kernel, *function);
  return {};
}

Verdict Gpu::launch(Launches& launches, hipStream_t stream) {
  for (int32_t i = 0; i < launches.count; ++i) {
    Launch& l = launches.of[i];
    hipFunction_t function = nullptr;
    TSR_TRY(find(l.kernel, &function));
    void* parameters[] = {&l.arguments};
    const hipError_t error =
        hip().hipModuleLaunchKernel(function, l.blocks, 1, 1, l.threads, 1, 1, 0, stream, parameters, nullptr);
    if (error != hipSuccess) return failed(error, text("hipModuleLaunchKernel of ", l.kernel).c_str());
  }
  return {};
}

Verdict Gpu::failed(hipError_t error, const char* what) {
  hip().hipGetLastError();
  if (ends_device(error)) {
    lost_.store(error, std::memory_order_relaxed);
    return {TSR_DEVICE_ERROR, text(what, ": ", hip().describe(error), "; device ", index_,
                                   " is lost with it, and everything in its memory: start the process again")};
  }
  return {error == hipErrorOutOfMemory ? TSR_OUT_OF_MEMORY : TSR_DEVICE_ERROR, text(what, ": ", hip().describe(error))};
}

Verdict Gpu::lost() const {
  if (forked()) return {TSR_DEVICE_ERROR, text(forked_reason("HIP"), ": ", kForkedFix)};
  return {TSR_DEVICE_ERROR, text("device ", index_, " was lost to an earlier ",
                                 hip().describe(lost_.load(std::memory_order_relaxed)), ": start the process again")};
}

hipError_t Gpu::take(uint64_t bytes, void** data) {
  if (!pooled_) return hip().hipMalloc(data, bytes);
  const hipError_t taken = hip().hipMallocFromPoolAsync(data, bytes, pool_, memory_);
  if (taken != hipSuccess) return taken;
  // Nothing waits on that stream, so this only makes the memory good for all other streams.
  const hipError_t good = hip().hipStreamSynchronize(memory_);
  if (good != hipSuccess) give_back(*data);
  return good;
}

void Gpu::give_back(void* data) {
  const hipError_t error = pooled_ ? hip().hipFreeAsync(data, memory_) : hip().hipFree(data);
  if (error != hipSuccess) failed(error, "");
}

// False while the owner's stream is being captured: an event would become part of the graph.
bool Gpu::mark(Freed* freed) {
  const auto owner =
      std::find_if(owners_.begin(), owners_.end(), [&](const auto& o) { return o.first == freed->owner; });
  if (owner == owners_.end()) return true;  // gone, and its stream was done by then
  bool capturing = true;
  if (!check_capturing(owner->second, &capturing).ok() || capturing) return false;
  if (events_.empty()) {
    hipEvent_t event = nullptr;
    if (hip().hipEventCreateWithFlags(&event, hipEventDisableTiming) != hipSuccess) {
      hip().hipGetLastError();
      return false;
    }
    events_.push_back(event);
  }
  if (hip().hipEventRecord(events_.back(), owner->second) != hipSuccess) {
    hip().hipGetLastError();
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
      const hipError_t state = wait ? hip().hipEventSynchronize(freed.after) : hip().hipEventQuery(freed.after);
      if (state != hipSuccess) {  // not reached, or nobody knows: work may still use it
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
  hipError_t error = take(bytes, data);
  if (error == hipErrorOutOfMemory) {
    hip().hipGetLastError();
    collect(true);
    if (pooled_) {
      hip().hipStreamSynchronize(memory_);
      hip().hipMemPoolTrimTo(pool_, 0);
    }
    error = take(bytes, data);
  }
  if (error == hipErrorOutOfMemory) {
    hip().hipGetLastError();
    size_t free = 0, total = 0;
    if (hip().hipMemGetInfo(&free, &total) != hipSuccess) hip().hipGetLastError();
    return {TSR_OUT_OF_MEMORY,
            text(what, ": is ", bytes, ", device ", index_, " has ", free, " of ", total, " bytes free")};
  }
  return check(error, pooled_ ? "hipMallocFromPoolAsync" : "hipMalloc");
}

void Gpu::free(void* data, ErrorKey owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Relaxed relaxed;
  if (!pooled_) {  // hipFree waits by itself
    give_back(data);
    return;
  }
  freed_.push_back({data, owner, nullptr});
  mark(&freed_.back());
  collect(false);
}

void Gpu::add_owner(ErrorKey owner, hipStream_t own) {
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
    for (hipEvent_t event : events_) hip().hipEventDestroy(event);
    events_.clear();
    hip().hipStreamSynchronize(memory_);
    hip().hipMemPoolTrimTo(pool_, 0);
    hip().hipGetLastError();
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
    if (hip().hipHostFree(data) != hipSuccess) hip().hipGetLastError();
  }
}

}  // namespace tsr::hip::host
