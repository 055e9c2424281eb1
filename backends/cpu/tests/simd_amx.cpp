#define TSR_VL 16
#define TSR_PANEL_VECTORS 2
#define TSR_BLOCK 8
#define TSR_TARGET_ROWS 256
#define TSR_PAIRS
#define TSR_AMX
#define TSR_SET "amx"
#include "simd.inc.h"
