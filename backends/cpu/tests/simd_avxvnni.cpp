#define TSR_VL 8
#define TSR_BYTES
#define TSR_SET "avx-vnni"
#include "simd.inc.h"
