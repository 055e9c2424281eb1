#define TSR_VL 16
#define TSR_RUNNABLE \
  __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
#include "simd.inc.h"
