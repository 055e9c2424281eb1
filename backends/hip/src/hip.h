// The HIP runtime, opened at run time: the library loads, and says why it can't run, on a machine without one. These are its
// declarations as far as they are used here, which HIP has never changed; no header of HIP is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tsr::hip::host {

using hipError_t = int;
using hipStream_t = struct ihipStream_t*;
using hipEvent_t = struct ihipEvent_t*;
using hipModule_t = struct ihipModule_t*;
using hipFunction_t = struct ihipModuleSymbol_t*;
using hipMemPool_t = struct ihipMemPoolHandle_t*;
using hipGraph_t = struct ihipGraph*;
using hipGraphExec_t = struct hipGraphExec*;
using hipGraphNode_t = struct hipGraphNode*;
using hipUserObject_t = struct hipUserObject*;
using hipHostFn_t = void (*)(void* argument);

constexpr hipError_t hipSuccess = 0;
constexpr hipError_t hipErrorOutOfMemory = 2;
constexpr hipError_t hipErrorNotInitialized = 3;
constexpr hipError_t hipErrorNoDevice = 100;
constexpr hipError_t hipErrorECCNotCorrectable = 214;
constexpr hipError_t hipErrorNotFound = 500;
constexpr hipError_t hipErrorNotReady = 600;
constexpr hipError_t hipErrorIllegalAddress = 700;
constexpr hipError_t hipErrorLaunchTimeOut = 702;
constexpr hipError_t hipErrorContextIsDestroyed = 709;
constexpr hipError_t hipErrorAssert = 710;
constexpr hipError_t hipErrorLaunchFailure = 719;
constexpr hipError_t hipErrorStreamCaptureInvalidated = 901;

enum hipDeviceAttribute_t : int {
  hipDeviceAttributeMultiprocessorCount = 63,
  hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
  hipDeviceAttributeMemoryPoolsSupported = 88
};

enum hipMemcpyKind : int {
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3
};
enum hipStreamCaptureStatus : int {
  hipStreamCaptureStatusNone = 0,
  hipStreamCaptureStatusActive = 1,
  hipStreamCaptureStatusInvalidated = 2
};
enum hipStreamCaptureMode : int {
  hipStreamCaptureModeRelaxed = 2
};

constexpr unsigned hipStreamNonBlocking = 1;
inline const hipStream_t hipStreamLegacy = reinterpret_cast<hipStream_t>(1);
constexpr unsigned hipEventBlockingSync = 1;
constexpr unsigned hipEventDisableTiming = 2;
constexpr unsigned hipHostMallocDefault = 0;
constexpr unsigned hipUserObjectNoDestructorSync = 1;
constexpr unsigned hipGraphUserObjectMove = 1;
constexpr int hipMemPoolAttrReleaseThreshold = 4;

struct hipUUID {
  char bytes[16];
};
struct hipMemPoolProps {
  int allocType = 1;    ///< pinned, the only one
  int handleTypes = 0;  ///< none
  struct {
    int type = 1;  ///< a device
    int id = 0;
  } location;
  void* win32SecurityAttributes = nullptr;
  size_t maxSize = 0;
  unsigned char reserved[56] = {};
};
static_assert(sizeof(hipMemPoolProps) == 88, "HIP's own has that size");

// Result, name and parameters of each function.
#define TSR_HIP_FUNCTIONS(F)                                                                                        \
  F(const char*, hipGetErrorName, (hipError_t error))                                                               \
  F(const char*, hipGetErrorString, (hipError_t error))                                                             \
  F(hipError_t, hipGetLastError, ())                                                                                \
  F(hipError_t, hipGetDeviceCount, (int* count))                                                                    \
  F(hipError_t, hipGetDevice, (int* device))                                                                        \
  F(hipError_t, hipSetDevice, (int device))                                                                         \
  F(hipError_t, hipDeviceGetAttribute, (int* value, hipDeviceAttribute_t attribute, int device))                    \
  F(hipError_t, hipDeviceTotalMem, (size_t* bytes, int device))                                                     \
  F(hipError_t, hipDeviceGetUuid, (hipUUID * uuid, int device))                                                     \
  F(hipError_t, hipDeviceGetPCIBusId, (char* id, int length, int device))                                           \
  F(hipError_t, hipModuleLoadData, (hipModule_t * module, const void* image))                                       \
  F(hipError_t, hipModuleGetFunction, (hipFunction_t * function, hipModule_t module, const char* name))             \
  F(hipError_t, hipModuleLaunchKernel,                                                                              \
    (hipFunction_t function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,           \
     unsigned threads_y, unsigned threads_z, unsigned shared, hipStream_t stream, void** parameters, void** extra)) \
  F(hipError_t, hipMalloc, (void** data, size_t bytes))                                                             \
  F(hipError_t, hipFree, (void* data))                                                                              \
  F(hipError_t, hipMemGetInfo, (size_t* free, size_t* total))                                                       \
  F(hipError_t, hipMemPoolCreate, (hipMemPool_t * pool, const hipMemPoolProps* props))                              \
  F(hipError_t, hipMemPoolSetAttribute, (hipMemPool_t pool, int attribute, void* value))                            \
  F(hipError_t, hipMemPoolTrimTo, (hipMemPool_t pool, size_t bytes))                                                \
  F(hipError_t, hipMallocFromPoolAsync, (void** data, size_t bytes, hipMemPool_t pool, hipStream_t stream))         \
  F(hipError_t, hipFreeAsync, (void* data, hipStream_t stream))                                                     \
  F(hipError_t, hipHostMalloc, (void** data, size_t bytes, unsigned flags))                                         \
  F(hipError_t, hipHostFree, (void* data))                                                                          \
  F(hipError_t, hipHostGetDevicePointer, (void** device, void* host, unsigned flags))                               \
  F(hipError_t, hipMemcpyAsync, (void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream)) \
  F(hipError_t, hipMemsetAsync, (void* data, int value, size_t bytes, hipStream_t stream))                          \
  F(hipError_t, hipLaunchHostFunc, (hipStream_t stream, hipHostFn_t function, void* argument))                      \
  F(hipError_t, hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags))                                   \
  F(hipError_t, hipStreamDestroy, (hipStream_t stream))                                                             \
  F(hipError_t, hipStreamSynchronize, (hipStream_t stream))                                                         \
  F(hipError_t, hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags))                         \
  F(hipError_t, hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags))                                      \
  F(hipError_t, hipEventDestroy, (hipEvent_t event))                                                                \
  F(hipError_t, hipEventRecord, (hipEvent_t event, hipStream_t stream))                                             \
  F(hipError_t, hipEventQuery, (hipEvent_t event))                                                                  \
  F(hipError_t, hipEventSynchronize, (hipEvent_t event))                                                            \
  F(hipError_t, hipEventElapsedTime, (float* milliseconds, hipEvent_t start, hipEvent_t stop))                      \
  F(hipError_t, hipThreadExchangeStreamCaptureMode, (hipStreamCaptureMode * mode))                                  \
  F(hipError_t, hipStreamIsCapturing, (hipStream_t stream, hipStreamCaptureStatus * status))                        \
  F(hipError_t, hipStreamGetCaptureInfo_v2,                                                                         \
    (hipStream_t stream, hipStreamCaptureStatus * status, unsigned long long* id, hipGraph_t* graph,                \
     const hipGraphNode_t** dependencies, size_t* count))                                                           \
  F(hipError_t, hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode))                             \
  F(hipError_t, hipStreamEndCapture, (hipStream_t stream, hipGraph_t * graph))                                      \
  F(hipError_t, hipGraphInstantiate,                                                                                \
    (hipGraphExec_t * exec, hipGraph_t graph, hipGraphNode_t * failed, char* log, size_t log_bytes))                \
  F(hipError_t, hipGraphDestroy, (hipGraph_t graph))                                                                \
  F(hipError_t, hipGraphExecDestroy, (hipGraphExec_t exec))                                                         \
  F(hipError_t, hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream))                                          \
  F(hipError_t, hipUserObjectCreate,                                                                                \
    (hipUserObject_t * object, void* argument, hipHostFn_t destroy, unsigned count, unsigned flags))                \
  F(hipError_t, hipUserObjectRelease, (hipUserObject_t object, unsigned count))                                     \
  F(hipError_t, hipGraphRetainUserObject, (hipGraph_t graph, hipUserObject_t object, unsigned count, unsigned flags))

/// What of a device's properties is needed: the rest of the struct isn't the same in all releases.
struct Names {
  std::string device;
  std::string arch;  ///< gcnArchName, "gfx942:sramecc+:xnack-"
};

struct Hip {
  /// The library that was opened, "libamdhip64.so.6", and its file; empty if none was.
  std::string library, file;
  /// Why none was, or the function that it lacks; empty if all is there.
  std::string missing;

#define TSR_HIP_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  TSR_HIP_FUNCTIONS(TSR_HIP_MEMBER)
#undef TSR_HIP_MEMBER
  // One of them is there.
  hipError_t (*hipGetDevicePropertiesR0600)(void* properties, int device) = nullptr;
  hipError_t (*hipGetDevicePropertiesR0000)(void* properties, int device) = nullptr;
  hipError_t (*hipGetDeviceProperties)(void* properties, int device) = nullptr;

  bool loaded() const { return missing.empty(); }
  hipError_t names(int device, Names* names) const;
  /// "hipErrorOutOfMemory (out of memory)"
  std::string describe(hipError_t error) const;
};

/// The names that are tried, in this order.
constexpr const char* kLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};

/// Opened at the first call, never closed.
const Hip& hip();

}  // namespace tsr::hip::host
