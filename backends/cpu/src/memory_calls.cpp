#include <cstring>
#include <memory>

#include "api.h"
#include "context.h"
#include "system.h"

namespace tsr::cpu {
namespace {

Verdict check_range(const char* name, const void* data, uint64_t bytes) {
  if (data == nullptr && bytes > 0) return invalid(name, ": is NULL, must not be for ", bytes, " bytes");
  return {};
}

}  // namespace

tsr_status buffer_create(tsr_context* context, uint64_t bytes, tsr_buffer** buffer) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(buffer);
    *buffer = nullptr;
    // The system may promise more than there is and kill the process when it is touched: ask for no more than that.
    const uint64_t most = context->device.memory_bytes ? context->device.memory_bytes : uint64_t{PTRDIFF_MAX} / 2;
    if (bytes > most) {
      return {TSR_OUT_OF_MEMORY, text("bytes: is ", bytes, ", this machine has ", most)};
    }
    auto made = std::make_unique<tsr_buffer>(tsr_buffer{nullptr, bytes, true});
    made->data = system::allocate(bytes);
    if (made->data == nullptr)
      return {TSR_OUT_OF_MEMORY, text("bytes: is ", bytes, ", more than there is free memory for")};
    *buffer = made.release();
    return {};
  });
}

tsr_status buffer_wrap(tsr_context* context, void* data, uint64_t bytes, tsr_buffer** buffer) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(buffer);
    *buffer = nullptr;
    TSR_TRY(check_range("data", data, bytes));
    *buffer = new tsr_buffer{data, bytes, false};
    return {};
  });
}

void buffer_destroy(tsr_buffer* buffer) {
  if (buffer != nullptr && buffer->owned) system::release(buffer->data);
  delete buffer;
}

void* buffer_data(const tsr_buffer* buffer) { return buffer ? buffer->data : nullptr; }
uint64_t buffer_bytes(const tsr_buffer* buffer) { return buffer ? buffer->bytes : 0; }

tsr_status copy(tsr_context* context, tsr_stream*, void* dst, const void* src, uint64_t bytes, tsr_copy_kind kind) {
  return enter(context, [&]() -> Verdict {
    if (kind < TSR_COPY_HOST_TO_DEVICE || kind > TSR_COPY_DEVICE_TO_DEVICE) {
      return invalid("kind: is ", kind, ", must be 1 (host to device), 2 (device to host) or 3 (device to device)");
    }
    TSR_TRY(check_range("dst", dst, bytes));
    TSR_TRY(check_range("src", src, bytes));
    if (bytes > 0) std::memmove(dst, src, bytes);
    return {};
  });
}

tsr_status fill(tsr_context* context, tsr_stream*, void* dst, uint8_t value, uint64_t bytes) {
  return enter(context, [&]() -> Verdict {
    TSR_TRY(check_range("dst", dst, bytes));
    if (bytes > 0) std::memset(dst, value, bytes);
    return {};
  });
}

}  // namespace tsr::cpu
