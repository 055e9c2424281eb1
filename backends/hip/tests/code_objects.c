/* The library as it ships: each of its code objects is taken by a device of its architecture, and has every kernel that the
 * plans name. The runtime (argv[2]) looks both up in the code object, and has nothing to run it. */
#define _POSIX_C_SOURCE 200809L
#include "played/attend.h"
#include "played_child.h"

/* The launch is what fails, not finding the kernel: "error 303", the stub's answer to a launch without kernels. */
static void found(tsr_status status, const char* what) {
  const char* const text = backend->last_error(context);
  CHECK(status == TSR_DEVICE_ERROR && strstr(text, "hipModuleLaunchKernel of "), "%s: status %d, %s", what, status,
        text);
}

static int run(void) {
  tsr_context_desc desc = {.struct_size = sizeof desc};
  const tsr_status opened = backend->context_create(&desc, &context);
  CHECK(opened == TSR_OK, "%s", backend->last_error(NULL));
  if (opened != TSR_OK) return 1;
  static const tsr_dtype types[] = {TSR_F32, TSR_F16, TSR_BF16};
  static const int64_t dims[] = {64, 128, 256};
  static char memory[1 << 16]; /* never touched */
  for (int32_t kernel = 0; kernel < backend->kernel_count(context); ++kernel) {
    tsr_kernel_info info = {.struct_size = sizeof info};
    backend->kernel_info(context, kernel, &info);
    for (int type = 0; type < 3 && info.usable; ++type) {
      for (int dim = 0; dim < 3; ++dim) {
        for (int rows = 1; rows <= 64; rows += 63) {
          tsr_tensor q = tensor(types[type], memory, 1, rows, 1, dims[dim]);
          tsr_tensor k = tensor(types[type], memory, 1, 64, 1, dims[dim]);
          tsr_attention_desc a = {.struct_size = sizeof a, .q = &q, .k = &k, .v = &k, .out = &q};
          a.kernel = info.name;
          a.workspace = memory, a.workspace_bytes = sizeof memory;
          if (backend->supports(context, &a) != TSR_OK) continue;
          char what[128];
          snprintf(what, sizeof what, "%s, type %d, D %d, %d rows", info.name, types[type], (int)dims[dim], rows);
          found(backend->attention(context, NULL, &a), what);
        }
      }
    }
  }
  tsr_tensor x = tensor(TSR_F16, memory, 1, 1, 1, 64), lse = tensor(TSR_F32, memory, 1, 1, 1, -1);
  tsr_tensor lengths = tensor(TSR_I32, memory, 1, -1, -1, -1);
  tsr_append_desc append = {.struct_size = sizeof append, .flags = TSR_APPEND_ADVANCE, .k = &x, .v = &x};
  append.cache_k = &x, append.cache_v = &x, append.lengths = &lengths;
  found(backend->kv_append(context, NULL, &append), "append");
  const tsr_tensor *outs[] = {&x, &x}, *lses[] = {&lse, &lse};
  tsr_merge_desc merge = {.struct_size = sizeof merge, .count = 2, .outs = outs, .lses = lses, .out = &x};
  found(backend->merge(context, NULL, &merge), "merge");
  backend->context_destroy(context);
  printf("%d checks\n", checks_passed);
  return checks_failed != 0;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  if (argc > 5) {
    backend = load_backend(argc, argv);
    return run();
  }
  char list[256], none[] = "";
  snprintf(list, sizeof list, "%s", argv[3]);
  for (char* arch = strtok(list, ","); arch; arch = strtok(NULL, ",")) {
    char* arguments[] = {argv[0], argv[1], argv[2], arch, none};
    unsetenv("TSR_EMULATED_KERNELS");
    const int state = played_child(arguments, "run", NULL);
    CHECK(state == 0, "%s: %#x", arch, (unsigned)state);
  }
  return finish();
}
