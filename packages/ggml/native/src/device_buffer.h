// Device memory that grows to what was last asked for.
#pragma once

#include "tessera/tessera.h"

#include <algorithm>

namespace tsr::ggml {

class DeviceBuffer {
 public:
  DeviceBuffer(const tsr_backend& table, tsr_context* context) : table_(table), context_(context) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { table_.buffer_destroy(buffer_); }

  /** `grown`: the contents are new, and anything. */
  tsr_status at_least(uint64_t bytes, void** data, bool* grown = nullptr) {
    if (grown != nullptr) *grown = false;
    if (buffer_ == nullptr || table_.buffer_bytes(buffer_) < bytes) {
      table_.buffer_destroy(buffer_);
      buffer_ = nullptr;
      const tsr_status status = table_.buffer_create(context_, std::max<uint64_t>(bytes, 256), &buffer_);
      if (status != TSR_OK) return status;
      if (grown != nullptr) *grown = true;
    }
    *data = table_.buffer_data(buffer_);
    return TSR_OK;
  }

 private:
  const tsr_backend& table_;
  tsr_context* context_;
  tsr_buffer* buffer_ = nullptr;
};

}  // namespace tsr::ggml
