#define TSR_VL 16
#define TSR_SET "avx512"
#include "simd.inc.h"
