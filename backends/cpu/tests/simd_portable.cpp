#define TSR_VL 4
#define TSR_PANEL_VECTORS 3
#define TSR_BLOCK 4
#define TSR_TARGET_ROWS 144
#define TSR_PAIRS  // emulated: the layout is the same everywhere
#define TSR_BYTES  // likewise
#define TSR_SET "portable"
#include "simd.inc.h"
