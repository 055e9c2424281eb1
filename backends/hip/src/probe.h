// What devices there are, and why they can't be used. Asks for names and numbers alone: no stream, memory or code object
// comes to be, so that a probe costs no device memory and can't be the call that crashes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/common/problem.h"

namespace tsr::hip::host {

struct Device {
  int index = 0;
  tsr_probe_state state = TSR_PROBE_USABLE;
  std::string reason, fix;
  std::string name;
  std::string id;     ///< "GPU-…", as ROCR_VISIBLE_DEVICES takes it; the PCI address of a device that has none
  std::string arch;   ///< "gfx942": what code objects are chosen by
  std::string modes;  ///< what gcnArchName says behind that: ":sramecc+:xnack-"
  uint64_t memory_bytes = 0;
  int32_t compute_units = 0;
  int32_t lds_bytes = 0;  ///< that a block may have
};

struct Survey {
  /// Usable if one device is; else what stands in the way.
  tsr_probe_state state = TSR_PROBE_USABLE;
  std::string reason, fix;
  std::vector<Device> devices;
};
Survey survey();

struct Build {
  std::vector<std::string> architectures;  ///< that this library has code objects for
  std::vector<std::string> known;          ///< that it could be built for
};
/// This library's own, as CMake was told.
const Build& this_build();
/// Sets the device's state, reason and fix from its architecture.
void judge(const Build& build, Device* device);
/// HSA_OVERRIDE_GFX_VERSION; empty if it isn't set. The runtime has obeyed it by the time that it names a device.
std::string overridden_arch();

/// What the machine shows without the HIP runtime.
struct Surroundings {
  enum Access {
    kAbsent,
    kForbidden,
    kOpen
  };
  Access kfd = kAbsent;   ///< /dev/kfd, the amdgpu kernel driver's
  std::string kfd_group;  ///< whose members may open it
  bool wsl = false;
  /// Architectures of the GPUs that the kernel driver lists, whatever the environment hides: "gfx942".
  std::vector<std::string> gpus;
  std::string rocm;  ///< a folder with the HIP runtime that the loader doesn't look into; empty: none
};
/// `root` is put before each path that is looked at: tests have a machine in a folder.
Surroundings look_around(const std::string& root = "");

/// Why the runtime's library isn't there, or isn't good; and why it shows no device.
Survey no_runtime(const Surroundings& around);
Survey no_device(const Surroundings& around);

}  // namespace tsr::hip::host
