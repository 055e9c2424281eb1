#define TSR_VL 8
#define TSR_BYTES
#define TSR_SET "avx2-int8"
#include "simd.inc.h"
