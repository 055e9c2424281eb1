// Every reason for which CUDA can't be used, each with its own fix, out of a stub driver (tests/stub): the driver is found
// by LD_LIBRARY_PATH, so each case is a process of its own, this program once more.
#include "probe.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "count.h"

namespace {

using tsr::cuda::host::Build;
using tsr::cuda::host::Device;
using tsr::cuda::host::Survey;

const char* self;
const char* stub_folder;
const char* arch;  // one that this build runs

using Environment = std::vector<std::pair<const char*, const char*>>;

// What `<self> <stub folder> <arch> survey` prints: the state, the number of devices, reason, fix, and each device.
std::string survey_with(const Environment& environment, bool stub = true) {
  int pipes[2];
  if (pipe(pipes) != 0) return "no pipe";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], 1);
    close(pipes[0]);
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (stub) setenv("LD_LIBRARY_PATH", stub_folder, 1);
    for (const auto& [name, value] : environment) setenv(name, value, 1);
    execl(self, self, stub_folder, arch, "survey", static_cast<char*>(nullptr));
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

int print_survey() {
  const Survey s = tsr::cuda::host::survey();
  std::printf("state %d, %zu devices\nreason: %s\nfix: %s\n", s.state, s.devices.size(), s.reason.c_str(),
              s.fix.c_str());
  for (const Device& d : s.devices) {
    std::printf("device %d: %s, sm_%d, %s, %d SMs, %d and %d bytes shared, state %d, reason: %s, fix: %s\n", d.index,
                d.name.c_str(), d.arch, d.id.c_str(), d.multiprocessors, d.shared_per_block,
                d.shared_per_multiprocessor, d.state, d.reason.c_str(), d.fix.c_str());
  }
  return 0;
}

bool has(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (text.find(word) != std::string::npos) continue;
    std::printf("\"%s\" is not in: %s\n", word, text.c_str());
    return false;
  }
  return true;
}

std::string state(tsr_probe_state s, int devices) {
  return "state " + std::to_string(s) + ", " + std::to_string(devices) + " devices";
}

void drivers() {
  CHECK(has(survey_with({{"STUB_DEVICES", arch}}),
            {state(TSR_PROBE_USABLE, 1).c_str(), "reason: \nfix: \n",
             ("device 0: Stub GPU 0, sm_" + std::string(arch)).c_str(), "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0",
             "132 SMs", "232448 and 233472 bytes"}));
  CHECK(has(survey_with({{"STUB_VERSION", "12040"}, {"STUB_DEVICES", arch}}),
            {state(TSR_PROBE_DRIVER_TOO_OLD, 0).c_str(), "driver is for CUDA 12.4", "needs one for CUDA 13.0",
             "release 580"}));
  CHECK(has(survey_with({{"STUB_VERSION", "13020"}, {"STUB_DEVICES", arch}}), {state(TSR_PROBE_USABLE, 1).c_str()}));
  CHECK(has(survey_with({{"STUB_INIT", "802"}}),
            {state(TSR_PROBE_ERROR, 0).c_str(), "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (words of the stub)",
             "nvidia-fabricmanager"}));
  CHECK(has(survey_with({{"STUB_INIT", "803"}}), {state(TSR_PROBE_ERROR, 0).c_str(), "restart the machine"}));
  CHECK(has(survey_with({{"STUB_INIT", "34"}}), {state(TSR_PROBE_ERROR, 0).c_str(), "stubs folder"}));
  CHECK(has(survey_with({{"STUB_INIT", "999"}}), {state(TSR_PROBE_ERROR, 0).c_str(), "nvidia-smi works"}));
  CHECK(has(survey_with({{"STUB_INIT", "2"}}), {state(TSR_PROBE_OUT_OF_MEMORY, 0).c_str(), "end other programs"}));
}

void no_devices() {
  const std::string none = state(TSR_PROBE_NO_DEVICE, 0), hidden = state(TSR_PROBE_HIDDEN_BY_ENVIRONMENT, 0);
  for (const char* init : {"0", "100"}) {  // no error and a count of 0, or CUDA_ERROR_NO_DEVICE
    CHECK(has(survey_with({{"STUB_INIT", init}, {"STUB_GPUS", "0"}}), {none.c_str(), "finds no GPU", "--gpus all"}));
    CHECK(has(survey_with({{"STUB_INIT", init}, {"STUB_GPUS", "0"}, {"CUDA_VISIBLE_DEVICES", "0"}}),
              {none.c_str(), "finds no GPU"}));
    CHECK(has(
        survey_with({{"STUB_INIT", init}, {"STUB_GPUS", "2"}, {"CUDA_VISIBLE_DEVICES", "7"}}),
        {hidden.c_str(), "CUDA_VISIBLE_DEVICES is \"7\"", "this machine has 2 GPUs", "unset CUDA_VISIBLE_DEVICES"}));
    CHECK(has(survey_with({{"STUB_INIT", init}, {"STUB_GPUS", "1"}, {"CUDA_VISIBLE_DEVICES", ""}}),
              {hidden.c_str(), "CUDA_VISIBLE_DEVICES is \"\"", "this machine has 1 GPU"}));
    CHECK(has(survey_with({{"STUB_INIT", init}, {"STUB_GPUS", "4"}}),
              {none.c_str(), "the driver knows 4 GPUs, but CUDA shows this process none"}));
  }
  if (access("/proc/driver/nvidia/gpus", F_OK) == 0) {
    std::printf("not checked: a machine that can't be asked for its GPUs, as this one can\n");
    return;
  }
  CHECK(has(survey_with({{"CUDA_VISIBLE_DEVICES", "7"}}), {hidden.c_str(), "can't be told"}));
  CHECK(has(survey_with({}), {none.c_str(), "finds no GPU"}));
}

void architectures() {
  CHECK(has(survey_with({{"STUB_DEVICES", "75"}}),
            {state(TSR_PROBE_ARCH_NOT_IN_BUILD, 1).c_str(),
             "found sm_75 (Stub GPU 0), needs compute capability 8.0 or newer; built for ", "Ampere"}));
  CHECK(
      has(survey_with({{"STUB_DEVICES", ("75," + std::string(arch)).c_str()}}),
          {state(TSR_PROBE_USABLE, 2).c_str(), "device 0: Stub GPU 0, sm_75", "found sm_75", "device 1: Stub GPU 1"}));

  const Build whole{{80, 86, 89, 90, 100, 120}, {80}}, no_ptx{{80, 90}, {}}, ptx_only{{}, {80, 100}};
  CHECK(whole.list() == "sm_80, sm_86, sm_89, sm_90, sm_100, sm_120 and PTX of compute_80");
  CHECK(no_ptx.list() == "sm_80, sm_90" && ptx_only.list() == "PTX of compute_80, compute_100");
  const struct {
    const Build& build;
    int arch, code;
    bool ptx;
  } cases[] = {{whole, 80, 80, false},   {whole, 86, 86, false},    {whole, 87, 86, false},   {whole, 89, 89, false},
               {whole, 90, 90, false},   {whole, 103, 100, false},  {whole, 121, 120, false}, {whole, 110, 80, true},
               {no_ptx, 86, 80, false},  {no_ptx, 89, 80, false},   {no_ptx, 100, 0, false},  {no_ptx, 90, 90, false},
               {ptx_only, 90, 80, true}, {ptx_only, 120, 100, true}};
  for (const auto& c : cases) {
    const auto code = c.build.code_for(c.arch);
    CHECK(code.arch == c.code && code.ptx == c.ptx);
  }
  Device d;
  d.arch = 100;
  d.name = "B200";
  judge(no_ptx, &d);
  CHECK(d.state == TSR_PROBE_ARCH_NOT_IN_BUILD && d.reason == "found sm_100 (B200), built for sm_80, sm_90");
  CHECK(has(d.fix, {"build-native.mjs cuda 100"}));
  judge(whole, &d);
  CHECK(d.state == TSR_PROBE_USABLE);
  CHECK(!tsr::cuda::host::this_build().list().empty());
}

void missing_drivers() {
  using tsr::cuda::host::missing_driver_fix;
  CHECK(has(missing_driver_fix({false, false}), {"install the NVIDIA driver, release 580", "--gpus all"}));
  CHECK(has(missing_driver_fix({true, true}), {"/usr/lib/wsl/lib/libcuda.so.1", "LD_LIBRARY_PATH"}));
  CHECK(has(missing_driver_fix({true, false}), {"on Windows", "/usr/lib/wsl/lib/libcuda.so.1", "wsl --shutdown"}));
  if (void* const library = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(library);
    std::printf("not checked: a machine without a driver, as this one has one\n");
    return;
  }
  CHECK(has(survey_with({}, false),
            {state(TSR_PROBE_DRIVER_MISSING, 0).c_str(), "no NVIDIA driver: libcuda.so.1", "fix: "}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  self = argv[0];
  stub_folder = argv[1];
  arch = argv[2];
  if (argc > 3) return print_survey();
  drivers();
  no_devices();
  architectures();
  missing_drivers();
  return tsr::check::finish();
}
