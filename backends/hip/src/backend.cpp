// The table, and the one exported symbol.
#include "api.h"

namespace {

// Constant-initialised: there from the moment the library is loaded until the process is gone.
const tsr_backend kBackend = {
    sizeof(tsr_backend),
    TSR_ABI_VERSION,
    "hip",
    TSR_VERSION,
    tsr::hip::host::probe,
    tsr::hip::host::device_info,
    tsr::hip::host::context_create,
    tsr::hip::host::context_destroy,
    tsr::hip::host::last_error_text,
    tsr::hip::host::stream_create,
    tsr::hip::host::stream_wrap,
    tsr::hip::host::stream_destroy,
    tsr::hip::host::stream_native,
    tsr::hip::host::stream_synchronize,
    tsr::hip::host::event_create,
    tsr::hip::host::event_destroy,
    tsr::hip::host::event_record,
    tsr::hip::host::event_synchronize,
    tsr::hip::host::event_elapsed,
    tsr::hip::host::stream_wait,
    tsr::hip::host::buffer_create,
    tsr::hip::host::buffer_wrap,
    tsr::hip::host::buffer_destroy,
    tsr::hip::host::buffer_data,
    tsr::hip::host::buffer_bytes,
    tsr::hip::host::copy,
    tsr::hip::host::fill,
    tsr::hip::host::kernel_count,
    tsr::hip::host::kernel_info,
    tsr::hip::host::supports,
    tsr::hip::host::explain,
    tsr::hip::host::attention_workspace,
    tsr::hip::host::attention,
    tsr::hip::host::kv_append,
    tsr::hip::host::decode_workspace,
    tsr::hip::host::decode,
    tsr::hip::host::merge,
    tsr::hip::host::graph_begin,
    tsr::hip::host::graph_end,
    tsr::hip::host::graph_launch,
    tsr::hip::host::graph_destroy,
};

}  // namespace

extern "C" const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  return abi_version == TSR_ABI_VERSION ? &kBackend : nullptr;
}
