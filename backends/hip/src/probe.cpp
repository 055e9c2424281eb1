#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "hip.h"
#include "tessera/common/forked.h"
#include "tessera/common/opened_library.h"
#include "tessera/common/text.h"

namespace tsr::hip::host {
namespace {

constexpr const char* kWantedRelease = "ROCm 6.0 or newer";

// Variables that hide devices: ROCR's from the HSA runtime, the others from HIP alone. HIP obeys CUDA's too.
constexpr const char* kHiding[] = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
                                   "CUDA_VISIBLE_DEVICES"};

Survey failed(tsr_probe_state state, std::string reason, std::string fix) {
  Survey s;
  s.state = state;
  s.reason = std::move(reason);
  s.fix = std::move(fix);
  return s;
}

std::string join(const std::vector<std::string>& all) {
  std::string joined;
  for (const std::string& one : all) joined += text(joined.empty() ? "" : ", ", one);
  return joined;
}

std::string gpus_text(const Surroundings& around) {
  const size_t count = around.gpus.size();
  return text(count, count == 1 ? " GPU (" : " GPUs (", join(around.gpus), ")");
}

// gfx_target_version of the kernel driver: 90402 is gfx942, 110001 gfx1101, 90010 gfx90a.
std::string arch_of_version(long version) {
  char name[32];
  std::snprintf(name, sizeof name, "gfx%ld%lx%lx", version / 10000, version / 100 % 100, version % 100);
  return name;
}

// One file for each node of the machine; CPUs are nodes too, without SIMD units.
std::vector<std::string> listed_gpus(const std::string& root) {
  std::vector<std::pair<long, std::string>> found;
  const std::string nodes = root + "/sys/class/kfd/kfd/topology/nodes";
  DIR* const folder = opendir(nodes.c_str());
  if (folder == nullptr) return {};
  while (const dirent* entry = readdir(folder)) {
    std::ifstream properties(nodes + "/" + entry->d_name + "/properties");
    std::string key, value;  // some values have more bits than a number here
    long simds = 0, version = 0;
    while (properties >> key >> value) {
      if (key == "simd_count") simds = std::strtol(value.c_str(), nullptr, 10);
      if (key == "gfx_target_version") version = std::strtol(value.c_str(), nullptr, 10);
    }
    if (simds > 0) found.emplace_back(std::strtol(entry->d_name, nullptr, 10), arch_of_version(version));
  }
  closedir(folder);
  std::sort(found.begin(), found.end());
  std::vector<std::string> gpus;
  for (auto& [node, arch] : found) gpus.push_back(std::move(arch));
  return gpus;
}

Surroundings::Access kfd_access(const std::string& path, std::string* group) {
  struct stat about{};
  if (stat(path.c_str(), &about) != 0) return Surroundings::kAbsent;
  const ::group* const owner = getgrgid(about.st_gid);
  *group = owner ? owner->gr_name : std::to_string(about.st_gid);
  // Opened, not asked for: a container's device rules forbid what the file's mode allows.
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return Surroundings::kForbidden;
  close(file);
  return Surroundings::kOpen;
}

std::string rocm_folder(const std::string& root) {
  const char* const given = std::getenv("ROCM_PATH");
  for (const std::string& place : {std::string(given ? given : ""), std::string("/opt/rocm")}) {
    if (place.empty()) continue;
    for (const char* name : kLibraries) {
      if (access(text(root, place, "/lib/", name).c_str(), F_OK) == 0) return place + "/lib";
    }
  }
  return "";
}

Survey count_failed(hipError_t error) {
  if (error == hipErrorNoDevice) return no_device(look_around());
  const std::string reason = text("hipGetDeviceCount: ", hip().describe(error));
  if (error == hipErrorOutOfMemory)
    return failed(TSR_PROBE_OUT_OF_MEMORY, reason,
                  "end other programs that use the GPU (rocm-smi --showpids lists them)");
  return failed(TSR_PROBE_ERROR, reason, "check that rocminfo works; if it doesn't, install ROCm again or restart");
}

std::string uuid_text(const hipUUID& uuid) {
  const std::string digits(uuid.bytes, strnlen(uuid.bytes, sizeof uuid.bytes));
  const bool plain = std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  return plain && !digits.empty() ? "GPU-" + digits : "";
}

Device describe_device(int index) {
  const Hip& hip = host::hip();
  Device d;
  d.index = index;
  const auto broken = [&](const char* call, hipError_t error) {
    d.state = TSR_PROBE_ERROR;
    d.reason = text(call, ": ", hip.describe(error));
    d.fix = "check the device with rocminfo";
    return d;
  };
  Names names;
  if (const hipError_t error = hip.names(index, &names)) return broken("hipGetDeviceProperties", error);
  d.name = names.device;
  const size_t end = std::min(names.arch.find(':'), names.arch.size());
  d.arch = names.arch.substr(0, end);
  d.modes = names.arch.substr(end);
  hipUUID uuid{};
  if (hip.hipDeviceGetUuid(&uuid, index) == hipSuccess) d.id = uuid_text(uuid);
  char address[64] = "";
  if (d.id.empty() && hip.hipDeviceGetPCIBusId(address, sizeof address, index) == hipSuccess) d.id = address;
  size_t bytes = 0;
  if (const hipError_t error = hip.hipDeviceTotalMem(&bytes, index)) return broken("hipDeviceTotalMem", error);
  d.memory_bytes = bytes;
  const struct {
    int* value;
    hipDeviceAttribute_t attribute;
  } wanted[] = {{&d.compute_units, hipDeviceAttributeMultiprocessorCount},
                {&d.lds_bytes, hipDeviceAttributeMaxSharedMemoryPerBlock}};
  for (const auto& [value, attribute] : wanted) {
    if (const hipError_t error = hip.hipDeviceGetAttribute(value, attribute, index))
      return broken("hipDeviceGetAttribute", error);
  }
  judge(this_build(), &d);
  return d;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> all;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    all.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// An architecture whose code an unlisted one is known to run, as HSA_OVERRIDE_GFX_VERSION says it. AMD doesn't support it.
const char* override_for(const Build& build, const std::string& arch) {
  const auto built = [&](const char* name) { return has(build.architectures, name); };
  if (arch.rfind("gfx103", 0) == 0 && built("gfx1030")) return "10.3.0";
  if (arch == "gfx1103" && built("gfx1102")) return "11.0.2";
  if ((arch == "gfx1152" || arch == "gfx1153") && built("gfx1150")) return "11.5.0";
  return nullptr;
}

}  // namespace

const Build& this_build() {
  static const Build& build = *new Build{split(TSR_HIP_ARCHITECTURES), split(TSR_HIP_KNOWN)};
  return build;
}

std::string overridden_arch() {
  const char* const version = std::getenv("HSA_OVERRIDE_GFX_VERSION");
  return version ? std::string(version).substr(0, 40) : "";
}

void judge(const Build& build, Device* d) {
  if (has(build.architectures, d->arch)) {
    d->state = TSR_PROBE_USABLE;
    return;
  }
  const std::string version = overridden_arch();
  d->state = TSR_PROBE_ARCH_NOT_IN_BUILD;
  d->reason = text("found ", d->arch, " (", d->name, "), built for [", join(build.architectures), "]");
  if (!version.empty()) {
    d->reason += text("; HSA_OVERRIDE_GFX_VERSION is ", version);
    d->fix = "unset HSA_OVERRIDE_GFX_VERSION, or set it to the version of an architecture of the build";
  } else if (has(build.known, d->arch)) {
    d->fix = text("build it for this device: node scripts/build-native.mjs hip ", d->arch);
  } else if (const char* const other = override_for(build, d->arch)) {
    d->fix =
        text("try HSA_OVERRIDE_GFX_VERSION=", other, ", which makes ROCm take it for an architecture of the build; ",
             "or use the cpu back end: there are no kernels for ", d->arch, " itself");
  } else {
    d->fix = text("use another GPU or the cpu back end: there are no kernels for ", d->arch);
  }
}

Surroundings look_around(const std::string& root) {
  Surroundings around;
  around.kfd = kfd_access(root + "/dev/kfd", &around.kfd_group);
  around.wsl = access((root + "/dev/dxg").c_str(), F_OK) == 0;
  around.gpus = listed_gpus(root);
  around.rocm = rocm_folder(root);
  return around;
}

Survey no_runtime(const Surroundings& around) {
  const Hip& hip = host::hip();
  if (!hip.library.empty()) {
    return failed(TSR_PROBE_DRIVER_TOO_OLD, text("the ROCm runtime is too old: ", hip.missing),
                  fix_of_incomplete(hip.file, text("install ", kWantedRelease)));
  }
  std::string reason = text("no ROCm runtime: ", hip.missing);
  if (!around.rocm.empty()) {
    return failed(TSR_PROBE_RUNTIME_MISSING, text(reason, ", though ", around.rocm, " has one"),
                  text("add ", around.rocm, " to LD_LIBRARY_PATH, or to a file of /etc/ld.so.conf.d (then: ldconfig)"));
  }
  if (!around.gpus.empty()) reason += text("; this machine has ", gpus_text(around));
  return failed(TSR_PROBE_RUNTIME_MISSING, reason,
                text("install ", kWantedRelease, " (its package hip-runtime-amd has the library)"));
}

Survey no_device(const Surroundings& around) {
  if (around.kfd == Surroundings::kForbidden) {
    return failed(
        TSR_PROBE_DRIVER_MISSING, text("this process may not open /dev/kfd, which is of the group ", around.kfd_group),
        text("add the user to the groups render and video (sudo usermod -aG render,video \"$USER\", then log in "
             "again); in a container, start it with --device=/dev/kfd --device=/dev/dri --group-add ",
             around.kfd_group));
  }
  for (const char* name : kHiding) {
    const char* const value = std::getenv(name);
    if (value == nullptr || (around.kfd == Surroundings::kOpen && around.gpus.empty())) continue;
    if (around.kfd == Surroundings::kAbsent && !around.wsl) continue;
    return failed(TSR_PROBE_HIDDEN_BY_ENVIRONMENT,
                  text(name, " is \"", std::string(value).substr(0, 100), "\" and hides every GPU; ",
                       around.gpus.empty() ? "whether this machine has a GPU can't be told"
                                           : text("this machine has ", gpus_text(around))),
                  text("unset ", name, ", or set it to the index of a GPU",
                       std::string(name) == "ROCR_VISIBLE_DEVICES" ? " or its UUID (rocminfo lists them)" : ""));
  }
  if (around.kfd == Surroundings::kAbsent) {
    if (around.wsl) {
      return failed(TSR_PROBE_DRIVER_MISSING, "the ROCm runtime finds no GPU in WSL2",
                    "install AMD's driver for WSL2 on Windows, and ROCm for WSL in here (amdgpu-install "
                    "--usecase=wsl,rocm --no-dkms)");
    }
    return failed(TSR_PROBE_DRIVER_MISSING, "no amdgpu kernel driver: /dev/kfd isn't there",
                  "load or install the amdgpu kernel module (sudo modprobe amdgpu); in a container, start it with "
                  "--device=/dev/kfd --device=/dev/dri");
  }
  if (!around.gpus.empty()) {
    return failed(
        TSR_PROBE_NO_DEVICE,
        text("the kernel driver lists ", gpus_text(around), ", but the ROCm runtime shows this process none"),
        "give this process access to /dev/dri/renderD* (groups render and video; in a container, start it with "
        "--device=/dev/dri), and check that rocminfo lists the GPU");
  }
  return failed(TSR_PROBE_NO_DEVICE, "the amdgpu kernel driver is there, but it lists no GPU",
                "check that lspci lists an AMD GPU, and that this release of ROCm supports it");
}

Survey survey() {
  if (forked()) return failed(TSR_PROBE_ERROR, forked_reason("HIP"), kForkedFix);
  const Hip& hip = host::hip();
  if (!hip.loaded()) return no_runtime(look_around());
  watch_forks();
  int count = 0;
  const hipError_t error = hip.hipGetDeviceCount(&count);
  hip.hipGetLastError();
  if (error != hipSuccess) return count_failed(error);
  if (count == 0) return no_device(look_around());

  Survey s;
  for (int i = 0; i < count; ++i) s.devices.push_back(describe_device(i));
  hip.hipGetLastError();
  for (const Device& d : s.devices) {
    if (d.state == TSR_PROBE_USABLE) return s;
  }
  s.state = s.devices[0].state;
  s.reason = s.devices[0].reason;
  s.fix = s.devices[0].fix;
  return s;
}

}  // namespace tsr::hip::host
