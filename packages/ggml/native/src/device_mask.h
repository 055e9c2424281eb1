// A mask in a device's memory, read there: only what is known of each row comes to the host, 16 bytes for any number of keys.
#pragma once

#include "device_buffer.h"
#include "op.h"

#include <string>
#include <vector>

namespace tsr::ggml {

class DeviceMask {
 public:
  DeviceMask(const tsr_backend& table, tsr_context* context)
      : table_(table), context_(context), rows_(table, context) {}

  DeviceMask(const DeviceMask&) = delete;
  DeviceMask& operator=(const DeviceMask&) = delete;
  ~DeviceMask();

  /** The shape for every batch; waits for what the context's stream has before. */
  tsr_status read(const AttentionOp& op, std::vector<MaskShape>* shapes, std::string* why);

 private:
  tsr_status read_rows(const AttentionOp& op, size_t count, std::string* why);
  int launch(const AttentionOp& op, size_t count, void* rows, void* stream);

  const tsr_backend& table_;
  tsr_context* context_;
  DeviceBuffer rows_;
  /** The kernel's; one for each of ggml's back end objects, which come and go with llama.cpp's contexts. */
  void* module_ = nullptr;
  void* function_ = nullptr;
  /** Page-locked: a copy to other memory goes through a thread of the driver's, and takes several times as long. */
  void* host_ = nullptr;
  size_t host_bytes_ = 0;
};

}  // namespace tsr::ggml
