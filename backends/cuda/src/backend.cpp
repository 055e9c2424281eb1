// The table, and the one exported symbol.
#include "api.h"

namespace {

// Constant-initialised: there from the moment the library is loaded until the process is gone.
const tsr_backend kBackend = {
    sizeof(tsr_backend),
    TSR_ABI_VERSION,
    "cuda",
    TSR_VERSION,
    tsr::cuda::host::probe,
    tsr::cuda::host::device_info,
    tsr::cuda::host::context_create,
    tsr::cuda::host::context_destroy,
    tsr::cuda::host::last_error_text,
    tsr::cuda::host::stream_create,
    tsr::cuda::host::stream_wrap,
    tsr::cuda::host::stream_destroy,
    tsr::cuda::host::stream_native,
    tsr::cuda::host::stream_synchronize,
    tsr::cuda::host::event_create,
    tsr::cuda::host::event_destroy,
    tsr::cuda::host::event_record,
    tsr::cuda::host::event_synchronize,
    tsr::cuda::host::event_elapsed,
    tsr::cuda::host::stream_wait,
    tsr::cuda::host::buffer_create,
    tsr::cuda::host::buffer_wrap,
    tsr::cuda::host::buffer_destroy,
    tsr::cuda::host::buffer_data,
    tsr::cuda::host::buffer_bytes,
    tsr::cuda::host::copy,
    tsr::cuda::host::fill,
    tsr::cuda::host::kernel_count,
    tsr::cuda::host::kernel_info,
    tsr::cuda::host::supports,
    tsr::cuda::host::explain,
    tsr::cuda::host::attention_workspace,
    tsr::cuda::host::attention,
    tsr::cuda::host::kv_append,
    tsr::cuda::host::decode_workspace,
    tsr::cuda::host::decode,
    tsr::cuda::host::merge,
    tsr::cuda::host::graph_begin,
    tsr::cuda::host::graph_end,
    tsr::cuda::host::graph_launch,
    tsr::cuda::host::graph_destroy,
};

}  // namespace

extern "C" const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  return abi_version == TSR_ABI_VERSION ? &kBackend : nullptr;
}
