#define TSR_VL 4
#define TSR_SET "neon"
#include "simd.inc.h"
