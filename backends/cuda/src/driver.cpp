#include "driver.h"

#include <dlfcn.h>

#include "tessera/common/opened_library.h"
#include "tessera/common/text.h"

namespace tsr::cuda::host {
namespace {

Driver open_driver() {
  Driver d;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    d.missing = why ? why : "libcuda.so.1 can't be opened";
    return d;
  }
  d.file = path_of_library(library, "libcuda.so.1");
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr && d.missing.empty()) d.missing = text(d.file, " has no ", name);
    std::memcpy(&function, &symbol, sizeof symbol);
  };
  find(d.init, "cuInit");
  find(d.version, "cuDriverGetVersion");
  find(d.error_name, "cuGetErrorName");
  find(d.error_text, "cuGetErrorString");
  find(d.device_count, "cuDeviceGetCount");
  find(d.device, "cuDeviceGet");
  find(d.device_name, "cuDeviceGetName");
  find(d.device_uuid, "cuDeviceGetUuid");
  find(d.device_memory, "cuDeviceTotalMem_v2");
  find(d.device_attribute, "cuDeviceGetAttribute");
  find(d.primary_retain, "cuDevicePrimaryCtxRetain");
  find(d.push_current, "cuCtxPushCurrent_v2");
  find(d.pop_current, "cuCtxPopCurrent_v2");
  return d;
}

}  // namespace

std::string Driver::describe(CUresult error) const {
  const char *name = nullptr, *words = nullptr;
  if (error_name == nullptr || error_name(error, &name) != CUDA_SUCCESS || name == nullptr)
    return text("CUDA error ", static_cast<int>(error));
  if (error_text == nullptr || error_text(error, &words) != CUDA_SUCCESS || words == nullptr) return name;
  return text(name, " (", words, ")");
}

const Driver& driver() {
  static const Driver& opened = *new Driver(open_driver());  // lives until the process is gone
  return opened;
}

}  // namespace tsr::cuda::host
