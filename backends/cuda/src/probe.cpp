#include "probe.h"

#include <cuda_runtime_api.h>  // for CUDART_VERSION alone
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "driver.h"
#include "tessera/common/forked.h"
#include "tessera/common/opened_library.h"
#include "tessera/common/text.h"

namespace tsr::cuda::host {
namespace {

constexpr int32_t kLowestArch = 80;
constexpr const char* kWslDriver = "/usr/lib/wsl/lib/libcuda.so.1";

// A runtime works with every driver of its major version.
constexpr int kNeededVersion = CUDART_VERSION / 1000 * 1000;
constexpr const char* kNeededRelease = CUDART_VERSION >= 13000 ? "580" : "525";

std::string version_text(int version) { return text(version / 1000, ".", version % 1000 / 10); }

Survey failed(tsr_probe_state state, std::string reason, std::string fix) {
  Survey s;
  s.state = state;
  s.reason = std::move(reason);
  s.fix = std::move(fix);
  return s;
}

// GPUs that the machine has, whatever CUDA_VISIBLE_DEVICES says; -1 if that can't be told.
int physical_gpus() {
  if (void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    int (*init)() = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*shutdown)() = nullptr;
    const auto find = [&](auto& function, const char* name) {
      void* const symbol = dlsym(library, name);
      std::memcpy(&function, &symbol, sizeof symbol);
    };
    find(init, "nvmlInit_v2");
    find(count, "nvmlDeviceGetCount_v2");
    find(shutdown, "nvmlShutdown");
    unsigned found = 0;
    if (init && count && shutdown && init() == 0) {
      const bool told = count(&found) == 0;
      shutdown();
      if (told) return static_cast<int>(found);
    }
  }
  DIR* const folder = opendir("/proc/driver/nvidia/gpus");
  if (folder == nullptr) return -1;
  int found = 0;
  while (const dirent* entry = readdir(folder)) found += entry->d_name[0] != '.';
  closedir(folder);
  return found;
}

Survey no_device() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const int gpus = physical_gpus();
  if (visible != nullptr && gpus != 0) {
    const std::string machine = gpus > 0 ? text("this machine has ", gpus, gpus == 1 ? " GPU" : " GPUs")
                                         : std::string("whether this machine has a GPU can't be told");
    return failed(
        TSR_PROBE_HIDDEN_BY_ENVIRONMENT,
        text("CUDA_VISIBLE_DEVICES is \"", std::string(visible).substr(0, 100), "\" and hides every GPU; ", machine),
        "unset CUDA_VISIBLE_DEVICES, or set it to the index or UUID of a GPU (nvidia-smi -L lists them)");
  }
  if (gpus > 0) {
    return failed(TSR_PROBE_NO_DEVICE,
                  text("the driver knows ", gpus, gpus == 1 ? " GPU" : " GPUs", ", but CUDA shows this process none"),
                  "give this process access to the GPU (in a container: start it with --gpus all; in MIG mode: make a "
                  "compute instance)");
  }
  return failed(TSR_PROBE_NO_DEVICE, "the NVIDIA driver is there, but it finds no GPU",
                "check that nvidia-smi lists a GPU; in a container, start it with --gpus all");
}

Survey init_failed(const Driver& driver, CUresult error) {
  if (error == CUDA_ERROR_NO_DEVICE) return no_device();
  const std::string reason = text("cuInit: ", driver.describe(error));
  switch (error) {
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return failed(TSR_PROBE_ERROR, reason,
                    "restart the machine: the driver's library and its kernel module are of different releases");
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return failed(TSR_PROBE_ERROR, reason, "start the services that the GPUs need (nvidia-fabricmanager)");
    case CUDA_ERROR_STUB_LIBRARY:
      return failed(TSR_PROBE_ERROR, reason,
                    "take the CUDA toolkit's stubs folder off LD_LIBRARY_PATH: its libcuda.so.1 is for linking only");
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return failed(TSR_PROBE_ERROR, reason,
                    "take the cuda-compat package off LD_LIBRARY_PATH, or install a newer NVIDIA driver");
    case CUDA_ERROR_OUT_OF_MEMORY:
      return failed(TSR_PROBE_OUT_OF_MEMORY, reason, "end other programs that use the GPU (nvidia-smi lists them)");
    default:
      return failed(
          TSR_PROBE_ERROR, reason,
          "check that nvidia-smi works; if it doesn't, load the kernel modules (nvidia, nvidia_uvm) or install "
          "the driver again");
  }
}

std::string uuid_text(const CUuuid& uuid) {
  std::string all = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) all += "-";
    all += digits;
  }
  return all;
}

Device describe_device(const Driver& driver, int index) {
  Device d;
  d.index = index;
  const auto broken = [&](const char* call, CUresult error) {
    d.state = TSR_PROBE_ERROR;
    d.reason = text(call, ": ", driver.describe(error));
    d.fix = "check the device with nvidia-smi";
    return d;
  };
  CUdevice device = 0;
  if (const CUresult error = driver.device(&device, index)) return broken("cuDeviceGet", error);
  char name[128] = "";
  if (const CUresult error = driver.device_name(name, sizeof name, device)) return broken("cuDeviceGetName", error);
  name[sizeof name - 1] = '\0';
  d.name = name;
  CUuuid uuid{};
  if (driver.device_uuid(&uuid, device) == CUDA_SUCCESS) d.id = uuid_text(uuid);
  size_t bytes = 0;
  if (const CUresult error = driver.device_memory(&bytes, device)) return broken("cuDeviceTotalMem", error);
  d.memory_bytes = bytes;
  int major = 0, minor = 0;
  const struct {
    int* value;
    CUdevice_attribute attribute;
  } wanted[] = {{&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                {&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
                {&d.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
                {&d.shared_per_block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
                {&d.shared_per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR}};
  for (const auto& [value, attribute] : wanted) {
    if (const CUresult error = driver.device_attribute(value, attribute, device)) {
      return broken("cuDeviceGetAttribute", error);
    }
  }
  d.arch = 10 * major + minor;
  judge(this_build(), &d);
  return d;
}

std::vector<int32_t> numbers(const char* list) {
  std::vector<int32_t> all;
  for (const char* at = list; *at != '\0';) {
    char* end = nullptr;
    const long value = std::strtol(at, &end, 10);
    if (end == at) break;
    all.push_back(static_cast<int32_t>(value));
    at = *end == ',' ? end + 1 : end;
  }
  return all;
}

}  // namespace

Code Build::code_for(int32_t arch) const {
  Code best;
  for (const int32_t code : machine_code) {
    if (code / 10 == arch / 10 && code <= arch && code > best.arch) best = {code, false};
  }
  if (best.arch != 0) return best;
  for (const int32_t code : ptx) {
    if (code <= arch && code > best.arch) best = {code, true};
  }
  return best;
}

std::string Build::list() const {
  std::string all;
  for (const int32_t code : machine_code) all += text(all.empty() ? "" : ", ", "sm_", code);
  std::string virtuals;
  for (const int32_t code : ptx) virtuals += text(virtuals.empty() ? "PTX of compute_" : ", compute_", code);
  return all.empty() ? virtuals : virtuals.empty() ? all : text(all, " and ", virtuals);
}

const Build& this_build() {
  static const Build& build = *new Build{numbers(TSR_CUDA_MACHINE_CODE), numbers(TSR_CUDA_PTX)};
  return build;
}

void judge(const Build& build, Device* d) {
  if (d->arch < kLowestArch) {
    d->state = TSR_PROBE_ARCH_NOT_IN_BUILD;
    d->reason =
        text("found sm_", d->arch, " (", d->name, "), needs compute capability 8.0 or newer; built for ", build.list());
    d->fix = "use an NVIDIA GPU of the Ampere generation or newer, or the cpu back end";
  } else if (build.code_for(d->arch).arch == 0) {
    d->state = TSR_PROBE_ARCH_NOT_IN_BUILD;
    d->reason = text("found sm_", d->arch, " (", d->name, "), built for ", build.list());
    d->fix = text("build it for this device: node scripts/build-native.mjs cuda ", d->arch);
  } else {
    d->state = TSR_PROBE_USABLE;
  }
}

Surroundings surroundings() {
  Surroundings around;
  std::string version;
  std::getline(std::ifstream("/proc/version"), version);
  around.wsl = version.find("icrosoft") != std::string::npos || access("/dev/dxg", F_OK) == 0;
  around.wsl_driver = access(kWslDriver, F_OK) == 0;
  return around;
}

std::string missing_driver_fix(const Surroundings& around) {
  if (!around.wsl) {
    return text("install the NVIDIA driver, release ", kNeededRelease,
                " or newer; in a container, start it with --gpus all so that it gets the host's");
  }
  if (around.wsl_driver) {
    return text("add /usr/lib/wsl/lib to LD_LIBRARY_PATH: the driver of WSL2 is ", kWslDriver,
                ", which the loader doesn't find by itself here");
  }
  return text("install the NVIDIA driver on Windows, release ", kNeededRelease, " or newer, which brings ", kWslDriver,
              " into WSL2 (then: wsl --shutdown); install none inside WSL2");
}

Survey survey() {
  if (forked()) return failed(TSR_PROBE_ERROR, forked_reason("CUDA"), kForkedFix);
  const Driver& driver = host::driver();
  if (!driver.loaded()) {
    return failed(TSR_PROBE_DRIVER_MISSING, text("no NVIDIA driver: ", driver.missing),
                  fix_of_incomplete(driver.file, missing_driver_fix(surroundings())));
  }
  int version = 0;
  if (const CUresult error = driver.version(&version)) return init_failed(driver, error);
  if (version < kNeededVersion) {
    return failed(TSR_PROBE_DRIVER_TOO_OLD,
                  text("the NVIDIA driver is for CUDA ", version_text(version), ", this build needs one for CUDA ",
                       version_text(kNeededVersion), " or newer"),
                  text("install an NVIDIA driver of release ", kNeededRelease, " or newer"));
  }
  watch_forks();
  if (const CUresult error = driver.init(0)) return init_failed(driver, error);
  int count = 0;
  if (const CUresult error = driver.device_count(&count)) return init_failed(driver, error);
  if (count == 0) return no_device();

  Survey s;
  for (int i = 0; i < count; ++i) s.devices.push_back(describe_device(driver, i));
  for (const Device& d : s.devices) {
    if (d.state == TSR_PROBE_USABLE) return s;
  }
  s.state = s.devices[0].state;
  s.reason = s.devices[0].reason;
  s.fix = s.devices[0].fix;
  return s;
}

}  // namespace tsr::cuda::host
