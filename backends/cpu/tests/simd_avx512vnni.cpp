#define TSR_VL 16
#define TSR_BYTES
#define TSR_SET "avx512-vnni"
#include "simd.inc.h"
