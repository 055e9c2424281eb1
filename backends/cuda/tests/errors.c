/* Every function of CUDA's driver and runtime that the back end calls, and each launch, made to fail once.
 * argv[1] is the back end with a played runtime, argv[2] the folder of the stub driver, argv[3] a compute capability of the
 * build; argv[4] only makes their number that of errors.h. */
#define _POSIX_C_SOURCE 200809L
#include "played/errors.h"

static const char* const silent[] = {"cudaFreeAsync",
                                     "cudaFree",
                                     "cudaFreeHost",
                                     "cudaStreamDestroy",
                                     "cudaEventDestroy",
                                     "cudaGraphDestroy",
                                     "cudaGraphExecDestroy",
                                     "cudaUserObjectRelease",
                                     "cudaMemPoolTrimTo",
                                     "cudaEventQuery",
                                     "cudaMemGetInfo",
                                     "cudaPointerGetAttributes",
                                     "cudaThreadExchangeStreamCaptureMode",
                                     "cuDeviceGetUuid",
                                     "cuCtxPopCurrent",
                                     NULL};
static const char* const freeing[] = {"cudaFreeAsync",
                                      "cudaFree",
                                      "cudaFreeHost",
                                      "cudaStreamDestroy",
                                      "cudaEventDestroy",
                                      "cudaGraphDestroy",
                                      "cudaGraphExecDestroy",
                                      "cuCtxPushCurrent",
                                      "cuCtxPopCurrent",
                                      "cudaUserObjectRelease",
                                      NULL};

static int child(char** argv, const char* what, const char* failing) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    char devices[40];
    snprintf(devices, sizeof devices, "%s,%s", argv[3], argv[3]);
    setenv("LD_LIBRARY_PATH", argv[2], 1);
    setenv("STUB_DEVICES", devices, 1);
    setenv("STUB_RETAIN", "0", 1);
    if (strcmp(what, "run") != 0) setenv("EMULATED_NO_POOLS", "1", 1);
    if (failing) setenv("STUB_FAIL", failing, 1);
    execl(argv[0], argv[0], argv[1], argv[2], argv[3], argv[4], what, (char*)NULL);
    _exit(3);
  }
  int state = 0;
  waitpid(child, &state, 0);
  return state;
}

int main(int argc, char** argv) {
  const vendor cuda = {"words of the stub", silent, freeing, 36, child};
  return break_everything(argc, argv, &cuda);
}
