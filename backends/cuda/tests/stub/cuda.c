/* A libcuda.so.1 with no GPU behind it, that answers the probe's questions as the environment says:
 *   STUB_VERSION   what cuDriverGetVersion gives (13000)         STUB_INIT      what cuInit returns (0)
 *   STUB_DEVICES   compute capabilities: "90,75" (none)          STUB_RETAIN    what cuDevicePrimaryCtxRetain returns (801)
 *   STUB_LEAK      bytes that each stream takes along (0), of what driver_cycles.c makes and destroys: it only counts
 *   STUB_FAIL, STUB_RECORD   as backends/common/tests/played/failing.h says
 * Behind a context, if STUB_RETAIN is 0, there is nothing: only the emulated runtime (tests/emulated) works with it. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "played/failing.h"

#undef cuDeviceTotalMem
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuDeviceGetUuid
#undef cuStreamDestroy
#undef cuEventDestroy
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync

/* Names as the documentation has them, without the versions that cuda.h adds. */
#define ENTER(name)                   \
  do {                                \
    const int told = stub_told(name); \
    if (told) return (CUresult)told;  \
  } while (0)

static int number(const char* name, int otherwise) {
  const char* value = getenv(name);
  return value ? atoi(value) : otherwise;
}

static int devices(int* capabilities) {
  const char* list = getenv("STUB_DEVICES");
  int count = 0;
  for (const char* at = list; at && *at && count < 16; ++count) {
    char* end;
    capabilities[count] = (int)strtol(at, &end, 10);
    at = *end == ',' ? end + 1 : end;
  }
  return count;
}

CUresult cuInit(unsigned flags) {
  ENTER("cuInit");
  (void)flags;
  return (CUresult)number("STUB_INIT", 0);
}
CUresult cuDriverGetVersion(int* version) {
  ENTER("cuDriverGetVersion");
  *version = number("STUB_VERSION", 13000);
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_NO_DEVICE          ? "CUDA_ERROR_NO_DEVICE"
          : error == CUDA_ERROR_SYSTEM_NOT_READY ? "CUDA_ERROR_SYSTEM_NOT_READY"
                                                 : "CUDA_ERROR_OF_STUB";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  (void)error;
  *text = "words of the stub";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount");
  int capabilities[16];
  *count = devices(capabilities);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int index) {
  ENTER("cuDeviceGet");
  *device = index;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  ENTER("cuDeviceGetName");
  snprintf(name, (size_t)length, "Stub GPU %d", device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  ENTER("cuDeviceGetUuid");
  memset(uuid, 0xa0 + device, sizeof *uuid);
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  ENTER("cuDeviceTotalMem");
  (void)device;
  *bytes = (size_t)1 << 30;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  ENTER("cuDeviceGetAttribute");
  int capabilities[16];
  devices(capabilities);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capabilities[device] / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capabilities[device] % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 232448;
      break;
    default:
      *value = 233472;
  }
  return CUDA_SUCCESS;
}
/* Whose context is current: a stack of each thread, as the driver has it. */
static __thread CUcontext stack[16];
static __thread int depth;

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain");
  static char contexts[16];
  *context = (CUcontext)&contexts[device];
  return (CUresult)number("STUB_RETAIN", CUDA_ERROR_NOT_SUPPORTED);
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER("cuCtxPushCurrent");
  if (depth == 16) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  ENTER("cuCtxPopCurrent");
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack[--depth];
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = depth ? stack[depth - 1] : NULL;
  return CUDA_SUCCESS;
}

/* Streams and their like, in which nothing is ever under way. */
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  (void)flags;
  static void* volatile last;
  const int leak = number("STUB_LEAK", 0);
  if (leak > 0) {
    void** const block = malloc((size_t)leak);
    *block = last;
    last = block;
  }
  *stream = malloc(1);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  free(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  (void)flags;
  *event = malloc(1);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  free(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  (void)event, (void)stream;
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
  (void)event;
  return CUDA_SUCCESS;
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  (void)props;
  *pool = malloc(1);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t kept) {
  (void)pool, (void)kept;
  return CUDA_SUCCESS;
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* data, size_t bytes, CUmemoryPool pool, CUstream stream) {
  (void)pool, (void)stream;
  *data = (CUdeviceptr)malloc(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeAsync(CUdeviceptr data, CUstream stream) {
  (void)stream;
  free((void*)data);
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** data, size_t bytes, unsigned flags) {
  (void)flags;
  *data = malloc(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* data) {
  free(data);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  (void)stream;
  memcpy((void*)to, from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  (void)stream;
  memcpy(to, (const void*)from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  (void)stream;
  function(argument);
  return CUDA_SUCCESS;
}
