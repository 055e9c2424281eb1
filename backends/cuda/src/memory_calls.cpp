#include <memory>

#include "api.h"
#include "context.h"

namespace tsr::cuda::host {
namespace {

// CUDA copies this much from pageable memory to the device without waiting for the stream.
constexpr uint64_t kTakenAtOnce = 64 << 10;

Verdict check_range(const char* name, const void* data, uint64_t bytes) {
  if (data == nullptr && bytes > 0) return invalid(name, ": is NULL, must not be for ", bytes, " bytes");
  return {};
}

cudaMemcpyKind native_kind(tsr_copy_kind kind) {
  return kind == TSR_COPY_HOST_TO_DEVICE   ? cudaMemcpyHostToDevice
         : kind == TSR_COPY_DEVICE_TO_HOST ? cudaMemcpyDeviceToHost
                                           : cudaMemcpyDeviceToDevice;
}

}  // namespace

tsr_status buffer_create(tsr_context* context, uint64_t bytes, tsr_buffer** buffer) {
  return enter_device(context, [&]() -> Verdict {
    TSR_NOT_NULL(buffer);
    *buffer = nullptr;
    if (bytes > context->device.memory_bytes) {
      return {TSR_OUT_OF_MEMORY,
              text("bytes: is ", bytes, ", device ", context->device.index, " has ", context->device.memory_bytes)};
    }
    auto made = std::make_unique<tsr_buffer>(tsr_buffer{context->key, context->gpu, nullptr, bytes, true});
    TSR_TRY(context->gpu->allocate(bytes > 0 ? bytes : 1, "bytes", &made->data));
    *buffer = made.release();
    return {};
  });
}

tsr_status buffer_wrap(tsr_context* context, void* data, uint64_t bytes, tsr_buffer** buffer) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(buffer);
    *buffer = nullptr;
    TSR_TRY(check_range("data", data, bytes));
    *buffer = new tsr_buffer{context->key, context->gpu, data, bytes, false};
    return {};
  });
}

void buffer_destroy(tsr_buffer* buffer) {
  const std::unique_ptr<tsr_buffer> dying(buffer);
  if (dying == nullptr || !dying->owned || dying->gpu->is_lost()) return;
  guarded(0, [&]() -> Verdict {
    const Current current(*dying->gpu);
    if (current.error() != CUDA_SUCCESS) return current_failed(current.error());
    dying->gpu->free(dying->data, dying->owner);
    return {};
  });
}

void* buffer_data(const tsr_buffer* buffer) { return buffer ? buffer->data : nullptr; }
uint64_t buffer_bytes(const tsr_buffer* buffer) { return buffer ? buffer->bytes : 0; }

tsr_status copy(tsr_context* context, tsr_stream* stream, void* dst, const void* src, uint64_t bytes,
                tsr_copy_kind kind) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    if (kind < TSR_COPY_HOST_TO_DEVICE || kind > TSR_COPY_DEVICE_TO_DEVICE) {
      return invalid("kind: is ", kind, ", must be 1 (host to device), 2 (device to host) or 3 (device to device)");
    }
    TSR_TRY(check_range("dst", dst, bytes));
    TSR_TRY(check_range("src", src, bytes));
    if (bytes == 0) return {};
    if (kind != TSR_COPY_DEVICE_TO_DEVICE) {
      const bool to_host = kind == TSR_COPY_DEVICE_TO_HOST;
      bool capturing = false;
      TSR_TRY(context->gpu->check_capturing(on.native, &capturing));
      const bool at_once = !to_host && bytes <= kTakenAtOnce && !capturing;
      if (!at_once && is_pageable(to_host ? dst : src)) {
        return copy_pageable(*context->gpu, on.staging, on.native, dst, src, bytes, to_host);
      }
    }
    return context->gpu->check(cudaMemcpyAsync(dst, src, bytes, native_kind(kind), on.native), "copy: cudaMemcpyAsync");
  });
}

tsr_status fill(tsr_context* context, tsr_stream* stream, void* dst, uint8_t value, uint64_t bytes) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    TSR_TRY(check_range("dst", dst, bytes));
    if (bytes == 0) return {};
    return context->gpu->check(cudaMemsetAsync(dst, value, bytes, on.native), "fill: cudaMemsetAsync");
  });
}

}  // namespace tsr::cuda::host
