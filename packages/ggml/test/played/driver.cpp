// libcuda.so.1 as far as the plug-in calls it, where the host's memory is the device's and everything is done at once.
#include "mask_rows.h"

#include <cstdlib>

extern "C" {

int cuStreamGetCtx(void*, void**) { return 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuMemFreeHost(void* memory) { return std::free(memory), 0; }
int cuEventRecord(void*, void*) { return 0; }
int cuStreamWaitEvent(void*, void*, unsigned) { return 0; }

int cuMemAllocHost_v2(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return 0;
}
int cuModuleLoadData(void** module, const void*) {
  *module = reinterpret_cast<void*>(&cuMemAllocHost_v2);
  return 0;
}
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void*, const char*) {
  *function = reinterpret_cast<void*>(&cuModuleGetFunction);
  return 0;
}

/** The one kernel that there is: a mask's rows. */
int cuLaunchKernel(void*, unsigned count, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                   void** parameters, void**) {
  play_mask_rows(count, parameters);
  return 0;
}
}
