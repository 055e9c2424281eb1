#include <algorithm>
#include <memory>

#include "api.h"
#include "catalogue.h"
#include "context.h"

namespace tsr::hip::host {
namespace {

// The device of an index, or why there is none.
Verdict find_device(int32_t index, Device* device) {
  const Survey found = survey();
  const auto count = static_cast<int32_t>(found.devices.size());
  const auto with_fix = [](const std::string& reason, const std::string& fix) -> Verdict {
    return {TSR_DEVICE_UNAVAILABLE, fix.empty() ? reason : text(reason, ". What to do: ", fix)};
  };
  if (count == 0) return with_fix(found.reason, found.fix);
  if (index < 0 || index >= count) {
    return {TSR_DEVICE_UNAVAILABLE,
            text("device: is ", index, ", must be 0", count > 1 ? text(" to ", count - 1) : "",
                 count > 1 ? ": HIP shows " : ": HIP shows one GPU", count > 1 ? text(count, " GPUs") : "")};
  }
  *device = found.devices[static_cast<size_t>(index)];
  return {};
}

}  // namespace

tsr_status probe(tsr_probe_result* result) {
  return guarded(0, [&] {
    const Survey found = survey();
    tsr_probe_result r{};
    r.state = found.state;
    r.device_count = static_cast<int32_t>(found.devices.size());
    copy_text(r.reason, found.reason.c_str());
    copy_text(r.fix, found.fix.c_str());
    return write_struct(r, "result", result);
  });
}

tsr_status device_info(int32_t device, tsr_device_info* info) {
  return guarded(0, [&]() -> Verdict {
    Device d;
    TSR_TRY(find_device(device, &d));
    tsr_device_info i{};
    i.index = d.index;
    i.state = d.state;
    i.caps = TSR_DEVICE_ASYNC | TSR_DEVICE_GRAPHS;
    copy_text(i.name, d.name.c_str());
    copy_text(i.arch, text(d.arch, d.modes).c_str());
    copy_text(i.id, d.id.c_str());
    i.memory_bytes = d.memory_bytes;
    i.compute_units = d.compute_units;
    i.shared_bytes = d.lds_bytes;
    copy_text(i.reason, d.reason.c_str());
    copy_text(i.fix, d.fix.c_str());
    return write_struct(i, "info", info);
  });
}

tsr_status context_create(const tsr_context_desc* desc, tsr_context** context) {
  return guarded(0, [&]() -> Verdict {
    TSR_NOT_NULL(context);
    *context = nullptr;
    tsr_context_desc d;
    TSR_TRY(read_struct(desc, "desc", &d));
    if (d.reserved != 0) return unsupported("reserved: is ", d.reserved, ", must be 0");
    auto made = std::make_unique<tsr_context>();
    TSR_TRY(find_device(d.device, &made->device));
    if (made->device.state != TSR_PROBE_USABLE) {
      return {TSR_DEVICE_UNAVAILABLE,
              text("device ", d.device, ": ", made->device.reason, ". What to do: ", made->device.fix)};
    }
    TSR_TRY(Gpu::open(made->device, &made->gpu));
    made->limits.compute_units = made->device.compute_units;
    made->limits.lds_bytes = made->device.lds_bytes;
    if (!set_architecture(made->device.arch.c_str(), &made->limits))
      return {TSR_DEVICE_ERROR,
              text("kernels-hip doesn't know ", made->device.arch, ", though this build has code for it")};
    made->rows = make_catalogue(made->limits);

    const Current current(*made->gpu);
    TSR_TRY(current.verdict());
    made->own.owner = made->key;
    made->own.gpu = made->gpu;
    made->own.owned = true;
    TSR_TRY(made->gpu->check(hip().hipStreamCreateWithFlags(&made->own.native, hipStreamNonBlocking),
                             "context_create: hipStreamCreateWithFlags"));
    made->gpu->add_owner(made->key, made->own.native);
    *context = made.release();
    return {};
  });
}

void context_destroy(tsr_context* context) {
  const std::unique_ptr<tsr_context> dying(context);
  if (dying == nullptr) return;
  guarded(0, [&]() -> Verdict {
    const Current current(*dying->gpu);
    TSR_TRY(current.verdict());
    hip().hipStreamSynchronize(dying->own.native);
    dying->own.staging.release();
    dying->gpu->remove_owner(dying->key);
    dying->gpu->collect_pinned();
    hip().hipStreamDestroy(dying->own.native);
    hip().hipGetLastError();
    return {};
  });
}

const char* last_error_text(const tsr_context* context) { return last_error(context ? context->key : 0); }

}  // namespace tsr::hip::host
