#define TSR_VL 8
#define TSR_RUNNABLE __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
#include "simd.inc.h"
