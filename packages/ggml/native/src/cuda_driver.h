// The few functions of NVIDIA's driver that the plug-in calls itself: ggml's streams and events are the driver's, and the
// kernel that reads masks is PTX. Looked up in libcuda.so.1, which a process with ggml's CUDA back end has open.
#pragma once

#include <cstddef>
#include <string>

namespace tsr::ggml {

/** Handles are pointers, as in cuda.h; 0 is success. Tests put their own functions in. */
struct CudaDriver {
  int (*stream_context)(void* stream, void** context);
  int (*push_context)(void* context);
  int (*pop_context)(void** context);
  int (*allocate_host)(void** memory, size_t bytes);
  int (*free_host)(void* memory);
  int (*event_record)(void* event, void* stream);
  int (*stream_wait)(void* stream, void* event, unsigned flags);
  int (*load_module)(void** module, const void* image);
  int (*unload_module)(void* module);
  int (*find_function)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra);
};

/** Valid once find_cuda_driver() has said yes. */
extern CudaDriver driver;

bool find_cuda_driver(std::string* why);

/** The context of a stream is the thread's for as long as this lives. */
class CurrentContext {
 public:
  explicit CurrentContext(void* stream) {
    void* context = nullptr;
    error_ = driver.stream_context(stream, &context);
    if (error_ == 0) error_ = driver.push_context(context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    void* popped = nullptr;
    if (error_ == 0) driver.pop_context(&popped);
  }
  int error() const { return error_; }

 private:
  int error_;
};

}  // namespace tsr::ggml
