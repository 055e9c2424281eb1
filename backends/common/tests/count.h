// Counting checks: one that fails says where, and the program goes on.
#pragma once

#include <cstdio>

namespace tsr::check {

inline int passed = 0, failed = 0;

inline void that(bool so, const char* what, const char* file, int line) {
  (so ? passed : failed)++;
  if (!so && failed <= 50) std::printf("%s:%d: not so: %s\n", file, line, what);
}

/// The counts line that the test runner reads, and the exit code.
inline int finish() {
  std::printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":0}\n", passed, failed);
  return failed ? 1 : 0;
}

}  // namespace tsr::check

#define CHECK(condition) ::tsr::check::that((condition), #condition, __FILE__, __LINE__)
