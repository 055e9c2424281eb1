#pragma once

namespace tsr::cpu {

extern const char* const kTestedSet;  ///< "avx2", ...
int test_set();                       ///< the program's exit code

}  // namespace tsr::cpu
