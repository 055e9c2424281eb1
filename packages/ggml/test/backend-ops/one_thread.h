// Put before llama.cpp's test-backend-ops.cpp: the CPU back end that results are compared with works on one thread. Its
// default is four, which on a machine of two cores spend their time waiting for each other.
#include "ggml-backend.h"

static ggml_backend_t init_with_one_thread(enum ggml_backend_dev_type type, const char* params) {
  ggml_backend_t backend = ggml_backend_init_by_type(type, params);
  if (backend == nullptr) return nullptr;
  ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
  void* set = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
  if (set != nullptr) reinterpret_cast<ggml_backend_set_n_threads_t>(set)(backend, 1);
  return backend;
}
#define ggml_backend_init_by_type init_with_one_thread
