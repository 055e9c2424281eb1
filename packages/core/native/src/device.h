// One context of a back end, and what it owns. No Node in here; safe to use from any thread.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "failure.h"
#include "tessera/tessera.h"

namespace tessera {

class Device;

/** Memory of a device. Goes when the last call that uses it is done. */
class Buffer {
 public:
  Buffer(std::shared_ptr<Device> device, uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Device> device_;
  tsr_buffer* buffer_ = nullptr;
  void* data_ = nullptr;
  uint64_t bytes_;
};

/** A tsr_context. Destroyed after the last of its buffers, events and graphs. */
class Device {
 public:
  Device(const tsr_backend* backend, int32_t index, int32_t threads);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const tsr_backend* backend() const { return backend_; }
  tsr_context* context() const { return context_; }
  const tsr_device_info& info() const { return info_; }
  bool async() const { return (info_.caps & TSR_DEVICE_ASYNC) != 0; }
  bool hostMemory() const { return (info_.caps & TSR_DEVICE_HOST_MEMORY) != 0; }
  bool graphs() const { return (info_.caps & TSR_DEVICE_GRAPHS) != 0; }
  uint64_t bytesInUse() const { return bytes_.load(std::memory_order_relaxed); }

  /** Throws the text of the call that failed; on the thread that made the call. */
  void check(tsr_status status) const {
    if (status != TSR_OK) raise(status);
  }
  [[noreturn]] void raise(tsr_status status) const;

  /** Events are kept and used again: creating one may synchronise a GPU. */
  tsr_event* takeEvent();
  void giveEvent(tsr_event* event);

 private:
  friend class Buffer;
  const tsr_backend* backend_;
  tsr_context* context_ = nullptr;
  tsr_device_info info_{};
  std::atomic<uint64_t> bytes_{0};
  std::mutex eventsMutex_;
  std::vector<tsr_event*> events_;
};

}  // namespace tessera
