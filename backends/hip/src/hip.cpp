#include "hip.h"

#include <dlfcn.h>

#include "tessera/common/opened_library.h"
#include "tessera/common/text.h"

namespace tsr::hip::host {
namespace {

// hipDeviceProp_t of HIP 6 and newer, and of HIP 5: the device's name is at 0 in both.
constexpr size_t kArchR0600 = 1160, kArchR0000 = 396, kArchBytes = 256;

void* open_library(Hip* h) {
  for (const char* name : kLibraries) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      h->library = name;
      return library;
    }
    const char* const words = dlerror();
    const std::string why = words ? words : "";
    // One that is there and can't be opened, for want of another library, say, is worth more words than "not found".
    if (why.rfind(text(name, ": cannot open shared object file: No such file"), 0) == 0) continue;
    h->missing += text(h->missing.empty() ? "" : "; ", name, " can't be opened: ", why);
  }
  if (h->missing.empty()) {
    h->missing = "none of";
    for (const char* name : kLibraries) h->missing += text(name == kLibraries[0] ? " " : ", ", name);
    h->missing += " is found";
  }
  return nullptr;
}

Hip open_hip() {
  Hip h;
  void* const library = open_library(&h);
  if (library == nullptr) return h;
  h.missing.clear();
  h.file = path_of_library(library, h.library.c_str());
  const auto find = [&](auto& function, const char* name, bool needed = true) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr && needed && h.missing.empty()) h.missing = text(h.file, " has no ", name);
    std::memcpy(&function, &symbol, sizeof symbol);
  };
#define TSR_HIP_FIND(result, name, parameters) find(h.name, #name);
  TSR_HIP_FUNCTIONS(TSR_HIP_FIND)
#undef TSR_HIP_FIND
  find(h.hipGetDevicePropertiesR0600, "hipGetDevicePropertiesR0600", false);
  find(h.hipGetDevicePropertiesR0000, "hipGetDevicePropertiesR0000", false);
  find(h.hipGetDeviceProperties, "hipGetDeviceProperties",
       h.hipGetDevicePropertiesR0600 == nullptr && h.hipGetDevicePropertiesR0000 == nullptr);
  return h;
}

}  // namespace

hipError_t Hip::names(int device, Names* names) const {
  alignas(16) char properties[4096] = {};  // more than any of them
  const bool new_layout = hipGetDevicePropertiesR0600 != nullptr;
  const auto get = new_layout                    ? hipGetDevicePropertiesR0600
                   : hipGetDevicePropertiesR0000 ? hipGetDevicePropertiesR0000
                                                 : hipGetDeviceProperties;
  const hipError_t error = get(properties, device);
  if (error != hipSuccess) return error;
  const char* const arch = properties + (new_layout ? kArchR0600 : kArchR0000);
  names->device.assign(properties, strnlen(properties, kArchBytes));
  names->arch.assign(arch, strnlen(arch, kArchBytes));
  return hipSuccess;
}

std::string Hip::describe(hipError_t error) const {
  const char* const name = hipGetErrorName ? hipGetErrorName(error) : nullptr;
  const char* const words = hipGetErrorString ? hipGetErrorString(error) : nullptr;
  if (name == nullptr) return text("HIP error ", error);
  return words == nullptr ? name : text(name, " (", words, ")");
}

const Hip& hip() {
  static const Hip& opened = *new Hip(open_hip());  // lives until the process is gone
  return opened;
}

}  // namespace tsr::hip::host
