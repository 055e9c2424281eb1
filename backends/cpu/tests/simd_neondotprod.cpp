#define TSR_VL 4
#define TSR_BYTES
#define TSR_SET "neon-dotprod"
#include "simd.inc.h"
