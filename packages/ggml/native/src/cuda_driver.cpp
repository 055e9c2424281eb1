#include "cuda_driver.h"

#include <dlfcn.h>

namespace tsr::ggml {

CudaDriver driver;

namespace {

template <class F>
void find(void* library, const char* name, F*& function, std::string& missing) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
}

}  // namespace

bool find_cuda_driver(std::string* why) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    *why = std::string("can't open NVIDIA's driver: ") + dlerror();
    return false;
  }
  std::string missing;
  find(library, "cuStreamGetCtx", driver.stream_context, missing);
  find(library, "cuCtxPushCurrent_v2", driver.push_context, missing);
  find(library, "cuCtxPopCurrent_v2", driver.pop_context, missing);
  find(library, "cuMemAllocHost_v2", driver.allocate_host, missing);
  find(library, "cuMemFreeHost", driver.free_host, missing);
  find(library, "cuEventRecord", driver.event_record, missing);
  find(library, "cuStreamWaitEvent", driver.stream_wait, missing);
  find(library, "cuModuleLoadData", driver.load_module, missing);
  find(library, "cuModuleUnload", driver.unload_module, missing);
  find(library, "cuModuleGetFunction", driver.find_function, missing);
  find(library, "cuLaunchKernel", driver.launch, missing);
  if (!missing.empty()) *why = "NVIDIA's driver doesn't export " + missing;
  return missing.empty();
}

}  // namespace tsr::ggml
