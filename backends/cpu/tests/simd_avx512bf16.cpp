#define TSR_VL 16
#define TSR_PANEL_VECTORS 3
#define TSR_BLOCK 8
#define TSR_TARGET_ROWS 144
#define TSR_PAIRS
#define TSR_SET "avx512-bf16"
#include "simd.inc.h"
