// The table, and the one exported symbol.
#include "api.h"

namespace {

// Constant-initialised: there from the moment the library is loaded until the process is gone.
const tsr_backend kBackend = {
    sizeof(tsr_backend),
    TSR_ABI_VERSION,
    "cpu",
    TSR_VERSION,
    tsr::cpu::probe,
    tsr::cpu::device_info,
    tsr::cpu::context_create,
    tsr::cpu::context_destroy,
    tsr::cpu::last_error_text,
    tsr::cpu::stream_create,
    tsr::cpu::stream_wrap,
    tsr::cpu::stream_destroy,
    tsr::cpu::stream_native,
    tsr::cpu::stream_synchronize,
    tsr::cpu::event_create,
    tsr::cpu::event_destroy,
    tsr::cpu::event_record,
    tsr::cpu::event_synchronize,
    tsr::cpu::event_elapsed,
    tsr::cpu::stream_wait,
    tsr::cpu::buffer_create,
    tsr::cpu::buffer_wrap,
    tsr::cpu::buffer_destroy,
    tsr::cpu::buffer_data,
    tsr::cpu::buffer_bytes,
    tsr::cpu::copy,
    tsr::cpu::fill,
    tsr::cpu::kernel_count,
    tsr::cpu::kernel_info,
    tsr::cpu::supports,
    tsr::cpu::explain,
    tsr::cpu::attention_workspace,
    tsr::cpu::attention,
    tsr::cpu::kv_append,
    tsr::cpu::decode_workspace,
    tsr::cpu::decode,
    tsr::cpu::merge,
    tsr::cpu::graph_begin,
    tsr::cpu::graph_end,
    tsr::cpu::graph_launch,
    tsr::cpu::graph_destroy,
};

}  // namespace

extern "C" const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  return abi_version == TSR_ABI_VERSION ? &kBackend : nullptr;
}
