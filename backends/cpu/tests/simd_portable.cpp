#define TSR_VL 4
#define TSR_RUNNABLE true
#include "simd.inc.h"
