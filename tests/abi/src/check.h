/* Counting checks. One that fails says where and what, and the program goes on. */
#ifndef TESSERA_TESTS_CHECK_H
#define TESSERA_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

static int checks_passed, checks_failed, checks_skipped;
static const char* skip_reason = "";

/* Threads count too. */
#define COUNT(counter) __atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED)
#define CHECK(condition, ...)                                        \
  do {                                                               \
    if (condition) {                                                 \
      COUNT(checks_passed);                                          \
    } else {                                                         \
      COUNT(checks_failed);                                          \
      printf("%s:%d: not so: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                           \
      printf("\n");                                                  \
    }                                                                \
  } while (0)

/* What doesn't apply to this device: counted, with the last reason given. */
static inline void skip_checks(int count, const char* reason) {
  checks_skipped += count;
  skip_reason = reason;
}

/* The counts line that the test runner reads (scripts/lanes.mjs), and the exit code. */
static inline int finish(void) {
  printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":%d", checks_passed, checks_failed, checks_skipped);
  if (checks_skipped) printf(",\"reasons\":{\"%s\":%d}", skip_reason, checks_skipped);
  printf("}\n");
  return checks_failed ? 1 : 0;
}

#endif
