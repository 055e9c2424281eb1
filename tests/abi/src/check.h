/* Counting checks. One that fails says where and what, and the program goes on. */
#ifndef TESSERA_TESTS_CHECK_H
#define TESSERA_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

static int checks_passed, checks_failed;

#define CHECK(condition, ...)                                        \
  do {                                                               \
    if (condition) {                                                 \
      ++checks_passed;                                               \
    } else {                                                         \
      ++checks_failed;                                               \
      printf("%s:%d: not so: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                           \
      printf("\n");                                                  \
    }                                                                \
  } while (0)

/* The counts line that the test runner reads (scripts/lanes.mjs), and the exit code. */
static inline int finish(void) {
  printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":0}\n", checks_passed, checks_failed);
  return checks_failed ? 1 : 0;
}

#endif
