/* Programs that run themselves again on a runtime without a GPU: argv[1] is the library, argv[2] the folder of the runtime,
 * argv[3] an architecture of the build, argv[4] the kernels that it plays, argv[5] what this process is to do. */
#ifndef TESSERA_TESTS_PLAYED_CHILD_H
#define TESSERA_TESTS_PLAYED_CHILD_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The state of a child that does `what` with two such devices and this in STUB_FAIL (or NULL). */
static inline int played_child(char** argv, const char* what, const char* failing) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    char devices[160];
    snprintf(devices, sizeof devices, "%s:sramecc+:xnack-,%s:sramecc+:xnack-", argv[3], argv[3]);
    setenv("LD_LIBRARY_PATH", argv[2], 1);
    setenv("STUB_DEVICES", devices, 1);
    setenv("TSR_EMULATED_KERNELS", argv[4], 1);
    unsetenv("HSA_OVERRIDE_GFX_VERSION");
    if (failing) setenv("STUB_FAIL", failing, 1);
    execl(argv[0], argv[0], argv[1], argv[2], argv[3], argv[4], what, (char*)NULL);
    _exit(3);
  }
  int state = 0;
  waitpid(child, &state, 0);
  return state;
}

#endif
