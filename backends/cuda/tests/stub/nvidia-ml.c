/* A libnvidia-ml.so.1 that counts STUB_GPUS GPUs, whatever CUDA_VISIBLE_DEVICES says; without it, it can't be asked. */
#include <stdlib.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned* count);

int nvmlInit_v2(void) { return getenv("STUB_GPUS") ? 0 : 9; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = (unsigned)atoi(getenv("STUB_GPUS"));
  return 0;
}
