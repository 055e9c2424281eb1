/* The library on machines that have no GPU for it: it loads, its probe says why, and whoever insists gets the same words as
 * an error. argv[2] is the folder of a runtime without a GPU (tests/runtime), argv[3] an architecture that this build has code
 * for; each case is a process of its own. */
#define _POSIX_C_SOURCE 200809L
#include <sys/wait.h>
#include <unistd.h>

#include "abi.h"

static const tsr_backend* backend;

static tsr_status create(int32_t device) {
  tsr_context_desc desc = {.struct_size = sizeof desc, .device = device};
  tsr_context* context = (tsr_context*)1;
  const tsr_status status = backend->context_create(&desc, &context);
  CHECK(context == NULL || status == TSR_OK, "a context in spite of status %d", status);
  backend->context_destroy(context);
  return status;
}

#define SAYS(word) CHECK(strstr(backend->last_error(NULL), word), "%s", backend->last_error(NULL))

/* Nothing usable: `state`, and words of the reason. */
static void unusable(tsr_probe_state state, const char* word) {
  tsr_probe_result probe = {.struct_size = sizeof probe};
  CHECK(backend->probe(&probe) == TSR_OK, "a probe never fails: %s", backend->last_error(NULL));
  CHECK(probe.state == state && strstr(probe.reason, word) && probe.fix[0], "state %d, reason %s, fix %s", probe.state,
        probe.reason, probe.fix);
  CHECK(create(0) == TSR_DEVICE_UNAVAILABLE, "a context on nothing");
  SAYS(word);
  SAYS("What to do: ");
  tsr_device_info info = {.struct_size = sizeof info};
  const tsr_status status = backend->device_info(0, &info);
  if (probe.device_count == 0) {
    CHECK(status == TSR_DEVICE_UNAVAILABLE, "a description of nothing");
  } else {
    CHECK(status == TSR_OK && info.state == state && strstr(info.reason, word) && info.fix[0], "%s", info.reason);
  }
}

static void out_of_memory(void) {
  tsr_probe_result probe = {.struct_size = sizeof probe};
  CHECK(backend->probe(&probe) == TSR_OK && probe.state == TSR_PROBE_USABLE, "%s", probe.reason);
  CHECK(create(0) == TSR_OUT_OF_MEMORY, "a context without memory");
  SAYS("device 0 (Played GPU 0) has too little free memory for a context");
  SAYS("rocm-smi");
  CHECK(create(0) == TSR_OK, "the next attempt: %s", backend->last_error(NULL));
  CHECK(create(1) == TSR_DEVICE_UNAVAILABLE, "device 1 of 1");
  SAYS("device: is 1, must be 0");
  tsr_device_info info = {.struct_size = sizeof info};
  CHECK(backend->device_info(0, &info) == TSR_OK, "%s", backend->last_error(NULL));
  CHECK(info.caps == (TSR_DEVICE_ASYNC | TSR_DEVICE_GRAPHS) && info.memory_bytes == 1u << 30 && info.shared_bytes > 0,
        "caps %u", info.caps);
  CHECK(strstr(info.arch, ":sramecc+:xnack-"), "%s", info.arch);
}

static void refused(void) {
  CHECK(create(0) == TSR_DEVICE_ERROR, "a context without code");
  SAYS("hipModuleLoadData: hipErrorNoBinaryForGpu (words of the stub)");
  SAYS("which needs ROCm 6.0 or newer");
}

static void nulls(void) {
  backend->context_destroy(NULL), backend->stream_destroy(NULL), backend->event_destroy(NULL);
  backend->buffer_destroy(NULL), backend->graph_destroy(NULL);
  CHECK(backend->buffer_data(NULL) == NULL && backend->buffer_bytes(NULL) == 0, "of no buffer");
  CHECK(backend->kernel_count(NULL) == 0, "of no context");
  CHECK(backend->stream_synchronize(NULL, NULL) == TSR_INVALID_ARGUMENT, "of no context");
  CHECK(backend->attention(NULL, NULL, NULL) == TSR_INVALID_ARGUMENT, "of no context");
  CHECK(backend->probe(NULL) == TSR_INVALID_ARGUMENT, "into nothing");
  CHECK(backend->device_info(0, NULL) != TSR_OK, "into nothing");
  CHECK(backend->context_create(NULL, NULL) == TSR_INVALID_ARGUMENT, "into nothing");
}

static int run(const char* scenario) {
  if (strcmp(scenario, "missing") == 0) unusable(TSR_PROBE_RUNTIME_MISSING, "libamdhip64.so.7");
  if (strcmp(scenario, "none") == 0) unusable(TSR_PROBE_DRIVER_MISSING, "/dev/kfd");
  if (strcmp(scenario, "arch") == 0) unusable(TSR_PROBE_ARCH_NOT_IN_BUILD, "found gfx803");
  if (strcmp(scenario, "memory") == 0) out_of_memory();
  if (strcmp(scenario, "refused") == 0) refused();
  nulls();
  printf("%d of %d checks failed (%s)\n", checks_failed, checks_passed + checks_failed, scenario);
  return checks_failed != 0;
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  if (argc > 5) {
    backend = load_backend(argc, argv);
    return run(argv[5]);
  }
  char devices[64];
  snprintf(devices, sizeof devices, "%s:sramecc+:xnack-", argv[3]);
  static const struct {
    const char *scenario, *variable, *value;
  } cases[] = {{"missing", "LD_LIBRARY_PATH", "/"},
               {"none", "STUB_DEVICES", ""},
               {"arch", "STUB_DEVICES", "gfx803"},
               {"memory", "STUB_FAIL", "hipMemPoolCreate=2@1"},
               {"refused", "STUB_FAIL", "hipModuleLoadData=209"}};
  void* const runtime = dlopen("libamdhip64.so", RTLD_LAZY);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(cases[i].scenario, "missing") == 0 && runtime) continue;
    if (strcmp(cases[i].scenario, "none") == 0 && access("/dev/kfd", F_OK) == 0) continue;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      unsetenv("HIP_VISIBLE_DEVICES"), unsetenv("ROCR_VISIBLE_DEVICES"), unsetenv("HSA_OVERRIDE_GFX_VERSION");
      setenv("LD_LIBRARY_PATH", argv[2], 1);
      setenv("STUB_DEVICES", devices, 1);
      setenv(cases[i].variable, cases[i].value, 1);
      execl(argv[0], argv[0], argv[1], argv[2], argv[3], argv[4], cases[i].scenario, (char*)NULL);
      _exit(3);
    }
    int state = 0;
    waitpid(child, &state, 0);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%s: %#x", cases[i].scenario, state);
  }
  return finish();
}
