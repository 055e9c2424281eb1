// What devices there are, and why they can't be used. Asks the driver alone: no CUDA context comes to be, so that a probe
// costs no device memory and can't be the call that crashes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/common/problem.h"

namespace tsr::cuda::host {

struct Device {
  int index = 0;
  tsr_probe_state state = TSR_PROBE_USABLE;
  std::string reason, fix;
  std::string name;
  std::string id;    ///< "GPU-…", as CUDA_VISIBLE_DEVICES takes it
  int32_t arch = 0;  ///< 80, 86, 90, ...
  uint64_t memory_bytes = 0;
  int32_t multiprocessors = 0;
  int32_t shared_per_block = 0;  ///< bytes that a block may opt in to
  int32_t shared_per_multiprocessor = 0;
};

struct Survey {
  /// Usable if one device is; else what stands in the way.
  tsr_probe_state state = TSR_PROBE_USABLE;
  std::string reason, fix;
  std::vector<Device> devices;
};
Survey survey();

/// What of a build a device of this architecture runs: machine code of the same major version and no newer minor one, or
/// else PTX of an architecture that isn't newer.
struct Code {
  int32_t arch = 0;  ///< 0: none
  bool ptx = false;
};
struct Build {
  std::vector<int32_t> machine_code;
  std::vector<int32_t> ptx;
  Code code_for(int32_t arch) const;
  /// "sm_80, sm_90 and PTX of compute_80"
  std::string list() const;
};
/// This library's own, as CMake was told.
const Build& this_build();
/// Sets the device's state, reason and fix from its architecture.
void judge(const Build& build, Device* device);

/// Where things are that only Windows' subsystem for Linux has; a parameter so that tests can stand in for it.
struct Surroundings {
  bool wsl = false;
  bool wsl_driver = false;  ///< /usr/lib/wsl/lib/libcuda.so.1 is there
};
Surroundings surroundings();
std::string missing_driver_fix(const Surroundings& around);

}  // namespace tsr::cuda::host
