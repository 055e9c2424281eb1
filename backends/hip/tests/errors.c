/* Every function of HIP that the back end calls, made to fail once. */
#define _POSIX_C_SOURCE 200809L
#include "played/errors.h"
#include "played_child.h"

static const char* const silent[] = {"hipGetLastError",
                                     "hipFreeAsync",
                                     "hipFree",
                                     "hipHostFree",
                                     "hipStreamDestroy",
                                     "hipEventDestroy",
                                     "hipGraphDestroy",
                                     "hipGraphExecDestroy",
                                     "hipMemPoolTrimTo",
                                     "hipEventQuery",
                                     "hipDeviceGetUuid",
                                     "hipDeviceGetPCIBusId",
                                     "hipMemGetInfo",
                                     "hipThreadExchangeStreamCaptureMode",
                                     "hipUserObjectRelease",
                                     "hipHostGetDevicePointer",
                                     NULL};
static const char* const freeing[] = {"hipFreeAsync",
                                      "hipFree",
                                      "hipHostFree",
                                      "hipStreamDestroy",
                                      "hipEventDestroy",
                                      "hipGraphDestroy",
                                      "hipGraphExecDestroy",
                                      "hipSetDevice",
                                      "hipGetDevice",
                                      "hipUserObjectRelease",
                                      NULL};

static int child(char** argv, const char* what, const char* failing) {
  if (strcmp(what, "run") == 0)
    unsetenv("STUB_NO_POOLS");
  else
    setenv("STUB_NO_POOLS", "1", 1);
  return played_child(argv, what, failing);
}

int main(int argc, char** argv) {
  const vendor hip = {"hipErrorOfStub (words of the stub)", silent, freeing, 36, child};
  return break_everything(argc, argv, &hip);
}
