// Every usable kernel of the CPU back end that computes with queries as they are, in a context of two threads.
#pragma once

#include <tessera/tessera.h>

#include "count.h"

namespace tsr::check {

/// Calls each(backend, context, name) for one kernel after the other.
template <class Each>
void each_exact_kernel(Each&& each) {
  const tsr_backend& backend = *tsr_backend_entry(TSR_ABI_VERSION);
  tsr_context_desc description{};
  description.struct_size = sizeof description;
  description.threads = 2;
  tsr_context* context = nullptr;
  CHECK(backend.context_create(&description, &context) == TSR_OK);
  for (int32_t i = 0; i < backend.kernel_count(context); i++) {
    tsr_kernel_info info{};
    info.struct_size = sizeof info;
    backend.kernel_info(context, i, &info);
    if (!info.usable || (info.flags & TSR_KERNEL_ROUNDS_Q) != 0) continue;
    each(backend, context, info.name);
  }
  backend.context_destroy(context);
}

}  // namespace tsr::check
