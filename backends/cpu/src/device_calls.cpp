#include "api.h"
#include "context.h"

namespace tsr::cpu {

tsr_status probe(tsr_probe_result* result) {
  return guarded(0, [&] {
    tsr_probe_result r{};
    r.state = TSR_PROBE_USABLE;  // there is always a CPU
    r.device_count = 1;
    return write_struct(r, "result", result);
  });
}

tsr_status device_info(int32_t device, tsr_device_info* info) {
  return guarded(0, [&]() -> Verdict {
    if (device != 0) return {TSR_DEVICE_UNAVAILABLE, text("device: is ", device, ", must be 0: there is one CPU")};
    const Device found = probe_device();
    tsr_device_info i{};
    i.state = TSR_PROBE_USABLE;
    i.caps = TSR_DEVICE_HOST_MEMORY;
    copy_text(i.name, found.name.c_str());
    copy_text(i.arch, found.arch.c_str());
    i.memory_bytes = found.memory_bytes;
    i.compute_units = found.cores;
    return write_struct(i, "info", info);
  });
}

tsr_status context_create(const tsr_context_desc* desc, tsr_context** context) {
  return guarded(0, [&]() -> Verdict {
    TSR_NOT_NULL(context);
    *context = nullptr;
    tsr_context_desc d;
    TSR_TRY(read_struct(desc, "desc", &d));
    if (d.device != 0) return {TSR_DEVICE_UNAVAILABLE, text("device: is ", d.device, ", must be 0: there is one CPU")};
    if (d.reserved != 0) return unsupported("reserved: is ", d.reserved, ", must be 0");
    if (d.threads < 0 || d.threads > kMaxThreads) {
      return invalid("threads: is ", d.threads, ", must be 0 to ", kMaxThreads,
                     " (0: TESSERA_THREADS, else all cores)");
    }
    const Device device = probe_device();
    std::vector<Variant> rows;
    TSR_TRY(make_catalogue(device, &rows));
    int threads = d.threads;
    if (threads == 0) TSR_TRY(threads_of_environment(&threads));
    if (threads == 0) threads = device.cores;
    *context = new tsr_context(device, threads);
    (*context)->rows = std::move(rows);
    return {};
  });
}

void context_destroy(tsr_context* context) { delete context; }

const char* last_error_text(const tsr_context* context) { return last_error(context ? context->key : 0); }

}  // namespace tsr::cpu
