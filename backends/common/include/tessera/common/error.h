// What tsr_backend::last_error returns: a text for each thread and context.
#pragma once

#include <cstdint>

#include "tessera/common/problem.h"

namespace tsr {

/// Identifies a context for error texts; 0 is "no context". Never reused, unlike an address.
using ErrorKey = uint64_t;
ErrorKey new_error_key();

/// Keeps the text for this thread. A thread's texts of the 8 contexts that failed last are kept, cut to 2 kB: the store is
/// plain thread-local memory with no destructor, so that it also works while the process exits.
void set_last_error(ErrorKey key, const char* text);
/// Never NULL.
const char* last_error(ErrorKey key);

/// For guarded(): turns the exception being handled into a status, its text set. Call in a catch block.
tsr_status status_of_exception(ErrorKey key) noexcept;

/// Runs the body of a contract function: body() returns a Verdict; its text, or that of an exception, becomes the last
/// error. No exception gets past.
template <class F>
tsr_status guarded(ErrorKey key, F&& body) noexcept {
  try {
    const Verdict verdict = body();
    if (!verdict.ok()) set_last_error(key, verdict.text.c_str());
    return verdict.status;
  } catch (...) {
    return status_of_exception(key);
  }
}

}  // namespace tsr
