// main() of the simd_<isa> programs, compiled without any set's flags: a processor that lacks the set has to get as far as the
// question (in a sanitizer's build even the beginning of a function has vector instructions).
#include "simd_main.h"

#include <cstdio>

#include "device.h"

int main() {
  using namespace tsr::cpu;
  if (!runs(probe_device(), kTestedSet) || !ask_for(kTestedSet)) {
    std::printf("skipped: this processor can't run the instruction set\n");
    return 77;
  }
  return test_set();
}
