/* What NVIDIA's driver does to the memory of a process, without Tessera: the objects of one engine made, used and destroyed, again and
 * again, over one primary context.
 *   cuda-driver-cycles [CYCLES] [WARM-UP]
 * Prints as JSON by how many bytes the process has grown. Exit code 77: no driver, or no device. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Name in the library, type as cuda.h has it. */
#define EACH(X)                                         \
  X(cuInit, cuInit)                                     \
  X(cuDeviceGet, cuDeviceGet)                           \
  X(cuGetErrorName, cuGetErrorName)                     \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2)              \
  X(cuStreamCreate, cuStreamCreate)                     \
  X(cuStreamSynchronize, cuStreamSynchronize)           \
  X(cuStreamDestroy, cuStreamDestroy_v2)                \
  X(cuEventCreate, cuEventCreate)                       \
  X(cuEventRecord, cuEventRecord)                       \
  X(cuEventSynchronize, cuEventSynchronize)             \
  X(cuEventDestroy, cuEventDestroy_v2)                  \
  X(cuMemPoolCreate, cuMemPoolCreate)                   \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo)                   \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync)   \
  X(cuMemFreeAsync, cuMemFreeAsync)                     \
  X(cuMemHostAlloc, cuMemHostAlloc)                     \
  X(cuMemFreeHost, cuMemFreeHost)                       \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)            \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)            \
  X(cuLaunchHostFunc, cuLaunchHostFunc)

#define DECLARE(name, symbol) static __typeof__(&symbol) p_##name;
EACH(DECLARE)

static void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  p_cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", what, name);
  exit(1);
}
#define TRY(name, ...) check(p_##name(__VA_ARGS__), #name)

static CUmemoryPool pool;
static CUstream memory; /* what buffers come and go on, as in the back end */

static void CUDA_CB told(void* argument) { ++*(int*)argument; }

static void cycle(void) {
  enum {
    buffers = 6,
    bytes = 16 << 10,
    piece = 4 << 20
  };
  static char host[bytes];
  CUstream stream;
  CUevent events[2];
  CUdeviceptr data[buffers];
  void* pinned;
  int calls = 0;
  TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (int i = 0; i < 2; i++) TRY(cuEventCreate, &events[i], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
  for (int i = 0; i < buffers; i++) {
    TRY(cuMemAllocFromPoolAsync, &data[i], bytes, pool, memory);
    TRY(cuStreamSynchronize, memory);
    TRY(cuMemcpyHtoDAsync, data[i], host, bytes, stream);
    TRY(cuEventRecord, events[0], stream);
  }
  TRY(cuMemHostAlloc, &pinned, piece, 0);
  TRY(cuMemcpyDtoHAsync, pinned, data[0], bytes, stream);
  TRY(cuLaunchHostFunc, stream, told, &calls);
  TRY(cuEventRecord, events[1], stream);
  TRY(cuEventSynchronize, events[1]);
  TRY(cuStreamSynchronize, stream);
  if (calls != 1) check(CUDA_ERROR_UNKNOWN, "the function behind the copy");
  for (int i = 0; i < buffers; i++) TRY(cuMemFreeAsync, data[i], memory);
  TRY(cuStreamSynchronize, memory);
  TRY(cuMemFreeHost, pinned);
  for (int i = 0; i < 2; i++) TRY(cuEventDestroy, events[i]);
  TRY(cuMemPoolTrimTo, pool, 0);
  TRY(cuStreamDestroy, stream);
}

static long resident(void) {
  long size = 0, pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2) exit(1);
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

int main(int argc, char** argv) {
  const long cycles = argc > 1 ? atol(argv[1]) : 10000, warm = argc > 2 ? atol(argv[2]) : 2000;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    printf("no libcuda.so.1\n");
    return 77;
  }
#define FIND(name, symbol)                                  \
  {                                                         \
    void* const found = dlsym(library, TSR_TEXT(symbol));   \
    if (!found) {                                           \
      printf("libcuda.so.1 has no %s\n", TSR_TEXT(symbol)); \
      return 77;                                            \
    }                                                       \
    memcpy(&p_##name, &found, sizeof found);                \
  }
#define TSR_TEXT(symbol) TSR_TEXT_OF(symbol)
#define TSR_TEXT_OF(symbol) #symbol
  EACH(FIND)
  CUdevice device;
  CUcontext context;
  if (p_cuInit(0) != CUDA_SUCCESS || p_cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
    printf("no CUDA device\n");
    return 77;
  }
  TRY(cuDevicePrimaryCtxRetain, &context, device);
  TRY(cuCtxPushCurrent, context);
  TRY(cuStreamCreate, &memory, CU_STREAM_NON_BLOCKING);
  CUmemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device;
  TRY(cuMemPoolCreate, &pool, &props);
  for (long i = 0; i < warm; i++) cycle();
  const long before = resident();
  for (long i = 0; i < cycles; i++) cycle();
  printf("{\"cycles\":%ld,\"grown\":%ld}\n", cycles, resident() - before);
  return 0;
}
