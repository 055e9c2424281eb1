// The objects behind the contract's opaque handles, and what every entry point begins with.
#pragma once

#include <chrono>
#include <new>
#include <vector>

#include "catalogue.h"
#include "device.h"
#include "tessera/common/error.h"
#include "tessera/common/text.h"
#include "thread_pool.h"

struct tsr_context {
  tsr_context(const tsr::cpu::Device& on, int threads) : device(on), pool(threads) {}
  const tsr::ErrorKey key = tsr::new_error_key();
  const tsr::cpu::Device device;
  std::vector<tsr::Variant> rows;
  tsr::cpu::ThreadPool pool;
};

// Calls compute before they return, so a stream holds nothing; it only has to be an object of its own.
struct tsr_stream {
  void* native;
};

struct tsr_event {
  bool recorded = false;
  std::chrono::steady_clock::time_point when{};
};

struct tsr_buffer {
  void* data;
  uint64_t bytes;
  bool owned;
};

namespace tsr::cpu {

/// An entry point of a context: the body's verdict, its text kept for last_error. No exception gets past.
template <class F>
tsr_status enter(const tsr_context* context, F&& body) noexcept {
  if (context == nullptr) {
    return guarded(0, [] { return invalid("context: is NULL, must be one of context_create"); });
  }
  return guarded(context->key, body);
}

/// For results by pointer.
#define TSR_NOT_NULL(pointer) \
  if ((pointer) == nullptr) return ::tsr::invalid(#pointer ": is NULL, must not be")

}  // namespace tsr::cpu
