// Every reason for which HIP can't be used, each with its own fix, out of runtimes without a GPU (tests/runtime): they are
// found by LD_LIBRARY_PATH, so each case is a process of its own, this program once more.
#include "probe.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "count.h"
#include "hip.h"

namespace {

using tsr::hip::host::Device;
using tsr::hip::host::no_runtime;
using tsr::hip::host::Surroundings;
using tsr::hip::host::Survey;

const char* self;
const char* runtimes;  // folders of runtimes, less the version at the end
std::string arch;      // one that this build has code for

using Environment = std::vector<std::pair<const char*, std::string>>;

// What `<self> <runtimes> <arch> survey` prints with libamdhip64.so.<version>, or with none.
std::string survey_with(const Environment& environment, const char* version = "7") {
  int pipes[2];
  if (pipe(pipes) != 0) return "no pipe";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], 1);
    close(pipes[0]);
    for (const char* name : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
                             "CUDA_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "ROCM_PATH"})
      unsetenv(name);
    setenv("LD_LIBRARY_PATH", version ? (std::string(runtimes) + version).c_str() : "", 1);
    for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
    execl(self, self, runtimes, arch.c_str(), "survey", static_cast<char*>(nullptr));
    _exit(3);
  }
  close(pipes[1]);
  std::string said;
  char piece[4096];
  for (ssize_t n; (n = read(pipes[0], piece, sizeof piece)) > 0;) said.append(piece, static_cast<size_t>(n));
  close(pipes[0]);
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) && WEXITSTATUS(state) == 0 ? said : "the probe crashed";
}

std::string words(const Survey& s) {
  std::string all = "state " + std::to_string(s.state) + ", " + std::to_string(s.devices.size()) +
                    " devices\nreason: " + s.reason + "\nfix: " + s.fix + "\n";
  for (const Device& d : s.devices) {
    all += "device " + std::to_string(d.index) + ": " + d.name + ", " + d.arch + " " + d.modes + ", " + d.id + ", " +
           std::to_string(d.compute_units) + " CUs, " + std::to_string(d.lds_bytes) + " bytes of LDS, " +
           std::to_string(d.memory_bytes) + " bytes, state " + std::to_string(d.state) + ", reason: " + d.reason +
           ", fix: " + d.fix + "\n";
  }
  return all;
}

bool has(const std::string& text, std::initializer_list<std::string> words) {
  for (const std::string& word : words) {
    if (text.find(word) != std::string::npos) continue;
    std::printf("\"%s\" is not in: %s\n", word.c_str(), text.c_str());
    return false;
  }
  return true;
}

std::string state(tsr_probe_state s, int devices) {
  return "state " + std::to_string(s) + ", " + std::to_string(devices) + " devices";
}

void runtimes_there() {
  const std::string name = arch + ":sramecc+:xnack-";
  for (const char* version : {"7", "5"}) {  // of HIP 6 and newer, and of HIP 5: other structs
    CHECK(has(survey_with({{"STUB_DEVICES", name}}, version),
              {state(TSR_PROBE_USABLE, 1), "reason: \nfix: \n", "device 0: Played GPU 0, " + arch + " :sramecc+:xnack-",
               "GPU-00000000000000a0", " CUs, ", "1073741824 bytes"}));
  }
  CHECK(has(survey_with({{"STUB_DEVICES", name + "," + arch}, {"STUB_FAIL", "hipDeviceGetUuid=801"}}),
            {state(TSR_PROBE_USABLE, 2), "0000:03:00.0", "device 1: Played GPU 1, " + arch + " , 0000:04:00.0"}));
  CHECK(has(survey_with({}, "6"), {state(TSR_PROBE_DRIVER_TOO_OLD, 0), "the ROCm runtime is too old",
                                   "libamdhip64.so.6 has no hipGetErrorString", "fix: take /",
                                   " out of LD_LIBRARY_PATH", "; or install ROCm 6.0 or newer"}));
  CHECK(has(survey_with({{"STUB_FAIL", "hipGetDeviceCount=2"}, {"STUB_DEVICES", name}}),
            {state(TSR_PROBE_OUT_OF_MEMORY, 0), "hipGetDeviceCount: hipErrorOutOfMemory (words of the stub)",
             "rocm-smi --showpids"}));
  CHECK(has(survey_with({{"STUB_FAIL", "hipGetDeviceCount=999"}, {"STUB_DEVICES", name}}),
            {state(TSR_PROBE_ERROR, 0), "hipGetDeviceCount: hipErrorOfStub", "rocminfo"}));
  // A device that can't be described doesn't hide the others.
  CHECK(has(survey_with({{"STUB_FAIL", "hipDeviceTotalMem=999@1"}, {"STUB_DEVICES", name + "," + name}}),
            {state(TSR_PROBE_USABLE, 2), "reason: hipDeviceTotalMem: hipErrorOfStub", "device 1"}));
  for (const char* call : {"hipGetDevicePropertiesR0600", "hipDeviceTotalMem", "hipDeviceGetAttribute"}) {
    CHECK(has(survey_with({{"STUB_FAIL", std::string(call) + "=999"}, {"STUB_DEVICES", name}}),
              {state(TSR_PROBE_ERROR, 1), "hipErrorOfStub (words of the stub)", "check the device with rocminfo"}));
  }
}

void architectures() {
  const tsr::hip::host::Build build{{"gfx942", "gfx1030", "gfx1102", "gfx1150"},
                                    {"gfx942", "gfx1030", "gfx1102", "gfx1150", "gfx1201"}};
  const auto judged = [&](const char* found) {
    Device d;
    d.arch = found;
    d.name = "Card";
    judge(build, &d);
    return d;
  };
  CHECK(judged("gfx942").state == TSR_PROBE_USABLE && judged("gfx942").reason.empty());
  CHECK(judged("gfx90c").state == TSR_PROBE_ARCH_NOT_IN_BUILD);
  CHECK(judged("gfx90c").reason == "found gfx90c (Card), built for [gfx942, gfx1030, gfx1102, gfx1150]");
  CHECK(judged("gfx90c").fix == "use another GPU or the cpu back end: there are no kernels for gfx90c");
  CHECK(judged("gfx1201").fix == "build it for this device: node scripts/build-native.mjs hip gfx1201");
  CHECK(has(judged("gfx1036").fix, {"try HSA_OVERRIDE_GFX_VERSION=10.3.0", "no kernels for gfx1036 itself"}));
  CHECK(has(judged("gfx1103").fix, {"HSA_OVERRIDE_GFX_VERSION=11.0.2"}));
  CHECK(has(judged("gfx1152").fix, {"HSA_OVERRIDE_GFX_VERSION=11.5.0"}));
  CHECK(judged("gfx94").state == TSR_PROBE_ARCH_NOT_IN_BUILD && judged("").state == TSR_PROBE_ARCH_NOT_IN_BUILD);

  CHECK(has(survey_with({{"STUB_DEVICES", "gfx803"}}),
            {state(TSR_PROBE_ARCH_NOT_IN_BUILD, 1), "found gfx803 (Played GPU 0), built for [", arch}));
  CHECK(has(survey_with({{"STUB_DEVICES", "gfx803," + arch}}),
            {state(TSR_PROBE_USABLE, 2), "found gfx803", "device 1: Played GPU 1"}));
  // The runtime has obeyed it by then.
  CHECK(has(
      survey_with({{"STUB_DEVICES", "gfx803"}, {"HSA_OVERRIDE_GFX_VERSION", "8.0.3"}}),
      {state(TSR_PROBE_ARCH_NOT_IN_BUILD, 1), "HSA_OVERRIDE_GFX_VERSION is 8.0.3", "unset HSA_OVERRIDE_GFX_VERSION"}));
  CHECK(
      has(survey_with({{"STUB_DEVICES", arch}, {"HSA_OVERRIDE_GFX_VERSION", "9.4.2"}}), {state(TSR_PROBE_USABLE, 1)}));
}

// What the runtime's "no device" means, by what is around.
void no_devices() {
  const auto say = [](const Surroundings& around, const Environment& environment = {}) {
    for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
    const std::string all = words(no_device(around));
    for (const auto& [name, value] : environment) unsetenv(name);
    return all;
  };
  for (const char* name : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"})
    unsetenv(name);
  const std::string none = state(TSR_PROBE_NO_DEVICE, 0), hidden = state(TSR_PROBE_HIDDEN_BY_ENVIRONMENT, 0),
                    driver = state(TSR_PROBE_DRIVER_MISSING, 0);
  const Surroundings nothing{}, empty{Surroundings::kOpen, "render", false, {}, ""},
      two{Surroundings::kOpen, "render", false, {"gfx942", "gfx942"}, ""},
      forbidden{Surroundings::kForbidden, "render", false, {"gfx1100"}, ""},
      wsl{Surroundings::kAbsent, "", true, {}, ""};
  CHECK(has(say(nothing), {driver, "/dev/kfd isn't there", "modprobe amdgpu", "--device=/dev/kfd --device=/dev/dri"}));
  CHECK(has(say(nothing, {{"HIP_VISIBLE_DEVICES", "0"}}), {driver, "/dev/kfd isn't there"}));
  CHECK(has(say(forbidden), {driver, "may not open /dev/kfd, which is of the group render", "usermod -aG render,video",
                             "--group-add render"}));
  CHECK(has(say(forbidden, {{"HIP_VISIBLE_DEVICES", "7"}}), {driver, "may not open /dev/kfd"}));
  CHECK(has(say(empty), {none, "lists no GPU", "lspci"}));
  CHECK(has(say(empty, {{"HIP_VISIBLE_DEVICES", "0"}}), {none, "lists no GPU"}));
  CHECK(has(say(two), {none, "the kernel driver lists 2 GPUs (gfx942, gfx942), but the ROCm runtime shows",
                       "/dev/dri/renderD*"}));
  for (const char* name :
       {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"}) {
    CHECK(has(say(two, {{name, "7"}}), {hidden, std::string(name) + " is \"7\" and hides every GPU",
                                        "this machine has 2 GPUs (gfx942, gfx942)", std::string("unset ") + name}));
  }
  CHECK(has(say(two, {{"ROCR_VISIBLE_DEVICES", ""}}), {hidden, "ROCR_VISIBLE_DEVICES is \"\"", "UUID (rocminfo"}));
  CHECK(has(say(wsl), {driver, "WSL2", "on Windows"}));
  CHECK(has(say(wsl, {{"HIP_VISIBLE_DEVICES", "7"}}), {hidden, "whether this machine has a GPU can't be told"}));
  if (access("/dev/kfd", F_OK) == 0) {
    std::printf("not checked: a machine without /dev/kfd, as this one has it\n");
    return;
  }
  CHECK(has(survey_with({}), {driver, "no amdgpu kernel driver"}));
  CHECK(has(survey_with({{"STUB_FAIL", "hipGetDeviceCount=100"}, {"STUB_DEVICES", arch}}), {driver}));
}

void missing_runtimes() {
  // Before hip() is asked for the first time in this process, by a library path that has none.
  const std::string all = words(no_runtime({Surroundings::kOpen, "render", false, {"gfx1100"}, ""}));
  if (tsr::hip::host::hip().library.empty()) {
    CHECK(has(all, {state(TSR_PROBE_RUNTIME_MISSING, 0),
                    "none of libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5, libamdhip64.so is found",
                    "this machine has 1 GPU (gfx1100)", "install ROCm 6.0 or newer"}));
    CHECK(has(words(no_runtime({Surroundings::kOpen, "render", false, {}, "/opt/rocm/lib"})),
              {state(TSR_PROBE_RUNTIME_MISSING, 0), "though /opt/rocm/lib has one", "LD_LIBRARY_PATH"}));
    CHECK(has(survey_with({}, nullptr), {state(TSR_PROBE_RUNTIME_MISSING, 0), "no ROCm runtime: none of"}));
  } else {
    std::printf("not checked: a machine without the ROCm runtime, as this one has it\n");
  }
  // One that is there and can't be opened is told with the loader's words.
  char folder[] = "/tmp/tessera-probe-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string broken = std::string(folder) + "/libamdhip64.so.6";
  std::ofstream(broken) << "not a library";
  CHECK(has(survey_with({{"LD_LIBRARY_PATH", folder}}, nullptr),
            {state(TSR_PROBE_RUNTIME_MISSING, 0), "libamdhip64.so.6 can't be opened: "}));
  unlink(broken.c_str());
  rmdir(folder);
}

// A machine in a folder.
void surroundings() {
  char folder[] = "/tmp/tessera-probe-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string root = folder;
  CHECK(tsr::hip::host::look_around(root).kfd == Surroundings::kAbsent);
  std::vector<std::string> made;
  const auto file = [&](const std::string& path, const char* text) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
      const std::string parent = root + path.substr(0, at);
      if (mkdir(parent.c_str(), 0700) == 0) made.push_back(parent);
    }
    std::ofstream(root + path) << text;
    made.push_back(root + path);
  };
  file("/dev/kfd", "");
  file("/dev/dxg", "");
  file("/opt/rocm/lib/libamdhip64.so.6", "");
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes/";
  file(nodes + "0/properties", "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\n");
  file(nodes + "10/properties", "unique_id 11667440949464614143\nsimd_count 192\ngfx_target_version 110001\n");
  file(nodes + "2/properties", "cpu_cores_count 0\nsimd_count 440\ngfx_target_version 90010\n");
  file(nodes + "1/properties", "simd_count 1216\nmax_waves_per_simd 8\ngfx_target_version 90402\n");
  const Surroundings around = tsr::hip::host::look_around(root);
  CHECK(around.kfd == Surroundings::kOpen && !around.kfd_group.empty() && around.wsl);
  CHECK(around.rocm == "/opt/rocm/lib");
  CHECK((around.gpus == std::vector<std::string>{"gfx942", "gfx90a", "gfx1101"}));
  chmod((root + "/dev/kfd").c_str(), 0);
  if (geteuid() != 0) {
    CHECK(tsr::hip::host::look_around(root).kfd == Surroundings::kForbidden);
  } else {
    std::printf("not checked: a file that this user may not open, as root may open all\n");
  }
  for (auto path = made.rbegin(); path != made.rend(); ++path) std::remove(path->c_str());
  CHECK(rmdir(folder) == 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  self = argv[0];
  runtimes = argv[1];
  arch = argv[2];
  if (argc > 3) return std::fputs(words(tsr::hip::host::survey()).c_str(), stdout) < 0;
  unsetenv("HSA_OVERRIDE_GFX_VERSION");
  unsetenv("ROCM_PATH");
  runtimes_there();
  architectures();
  no_devices();
  missing_runtimes();
  surroundings();
  return tsr::check::finish();
}
