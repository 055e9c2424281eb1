// The objects behind the contract's opaque handles, and what every entry point begins with.
#pragma once

#include <atomic>
#include <vector>

#include "gpu.h"
#include "kernels.h"
#include "probe.h"
#include "staging.h"
#include "tessera/common/catalogue.h"
#include "tessera/common/error.h"
#include "tessera/common/text.h"

struct tsr_stream {
  tsr::ErrorKey owner;  ///< the context's key: contexts may go first
  tsr::hip::host::Gpu* gpu;
  tsr::hip::host::hipStream_t native;
  bool owned;
  tsr::hip::host::Staging staging{};
};

struct tsr_context {
  tsr::ErrorKey key = tsr::new_error_key();
  tsr::hip::host::Device device;
  tsr::hip::host::Gpu* gpu = nullptr;
  tsr::hip::Limits limits;
  std::vector<tsr::Variant> rows;
  tsr_stream own{};
};

struct tsr_event {
  tsr::hip::host::Gpu* gpu;
  tsr::hip::host::hipEvent_t native;
  std::atomic<bool> recorded{false};
};

struct tsr_buffer {
  tsr::ErrorKey owner;
  tsr::hip::host::Gpu* gpu;
  void* data;
  uint64_t bytes;
  bool owned;
};

struct tsr_graph {
  tsr::hip::host::Gpu* gpu;
  tsr::hip::host::hipGraphExec_t native;
};

namespace tsr::hip::host {

/// An entry point of a context that asks nothing of the device: the body's verdict, its text kept for last_error. No
/// exception gets past.
template <class F>
tsr_status enter(tsr_context* context, F&& body) noexcept {
  if (context == nullptr) {
    return guarded(0, [] { return invalid("context: is NULL, must be one of context_create"); });
  }
  return guarded(context->key, [&]() -> Verdict {
    TSR_TRY(context->gpu->alive());
    return body();
  });
}

/// One that calls HIP: the device is current in the body, and what was current is so again behind it.
template <class F>
tsr_status enter_device(tsr_context* context, F&& body) noexcept {
  return enter(context, [&]() -> Verdict {
    const Current current(*context->gpu);
    TSR_TRY(current.verdict());
    return body();
  });
}

/// One that works on a stream: body(tsr_stream&). NULL is the context's own.
template <class F>
tsr_status enter_stream(tsr_context* context, tsr_stream* stream, F&& body) noexcept {
  return enter_device(context, [&]() -> Verdict {
    tsr_stream& on = stream ? *stream : context->own;
    if (on.owner != context->key) return invalid("stream: is of another context, must be one of this context");
    return body(on);
  });
}

/// For results by pointer.
#define TSR_NOT_NULL(pointer) \
  if ((pointer) == nullptr) return ::tsr::invalid(#pointer ": is NULL, must not be")

}  // namespace tsr::hip::host
