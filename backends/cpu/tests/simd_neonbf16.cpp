#define TSR_VL 4
#define TSR_PANEL_VECTORS 4
#define TSR_BLOCK 4
#define TSR_TARGET_ROWS 96
#define TSR_PAIRS
#define TSR_SET "neon-bf16"
#include "simd.inc.h"
