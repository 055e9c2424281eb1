#include "ggml_functions.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

namespace tsr::ggml {

Functions fn;

namespace {

template <class F>
void find(void* library, const char* name, F*& function, std::string& missing) {
  void* found = dlsym(library, name);
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, name);
  function = reinterpret_cast<F*>(found);
  if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
}

/** ggml.c's struct ggml_object, which ggml_tensor_overhead() counts and no header shows. */
struct Object {
  size_t offset, size;
  void* next;
  int type;
  char padding[4];
};

}  // namespace

bool find_functions(void* caller, std::string* why) {
  Dl_info info;
  void* library = nullptr;
  // A dlsym in that library looks into what it was linked against, too. An executable is opened by no name.
  if (dladdr(caller, &info) != 0) library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(nullptr, RTLD_LAZY);
  std::string missing, ignored;
  find(library, "ggml_op_name", fn.op_name, missing);
  find(library, "ggml_type_name", fn.type_name, missing);
  find(library, "ggml_type_size", fn.type_size, missing);
  find(library, "ggml_blck_size", fn.blck_size, missing);
  find(library, "ggml_get_type_traits", fn.get_type_traits, missing);
  find(library, "ggml_tensor_overhead", fn.tensor_overhead, missing);
  find(library, "ggml_graph_n_nodes", fn.graph_n_nodes, missing);
  find(library, "ggml_graph_node", fn.graph_node, missing);
  find(library, "ggml_backend_cpu_buffer_type", fn.cpu_buffer_type, missing);
  find(library, "ggml_backend_cpu_buffer_from_ptr", fn.cpu_buffer_from_ptr, missing);
  find(library, "ggml_backend_buft_is_host", fn.buft_is_host, missing);
  find(library, "ggml_backend_dev_count", fn.dev_count, ignored);
  find(library, "ggml_backend_dev_get", fn.dev_get, ignored);
  find(library, "ggml_backend_dev_backend_reg", fn.dev_reg, ignored);
  find(library, "ggml_backend_get_device", fn.backend_device, ignored);
  find(library, "ggml_graph_view", fn.graph_view, ignored);
  find(library, "ggml_log_internal", fn.log_internal, ignored);
  if (!missing.empty()) {
    *why = "this runtime doesn't export " + missing;
    return false;
  }
  const size_t expected = sizeof(Object) + sizeof(ggml_tensor);
  if (fn.tensor_overhead() != expected) {
    *why = "this runtime's tensors take " + std::to_string(fn.tensor_overhead()) + " bytes, not the " +
           std::to_string(expected) + " of the ggml that the plug-in was built for";
    return false;
  }
  return true;
}

void log(enum ggml_log_level level, const char* line) {
  if (fn.log_internal != nullptr) {
    fn.log_internal(level, "%s\n", line);
  } else {
    std::fprintf(stderr, "%s\n", line);
  }
}

bool verbose() {
  const char* value = std::getenv("TESSERA_GGML_LOG");
  return value != nullptr && *value != '\0' && !(value[0] == '0' && value[1] == '\0');
}

void tell(const std::string& line) {
  if (!verbose()) return;
  static std::mutex mutex;
  static auto* told = new std::set<std::string>;  // never destroyed: threads may outlive static objects
  const std::lock_guard<std::mutex> lock(mutex);
  if (told->insert(line).second) std::fprintf(stderr, "tessera: %s\n", line.c_str());
}

}  // namespace tsr::ggml
