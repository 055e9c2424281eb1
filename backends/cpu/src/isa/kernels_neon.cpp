// Armv8 NEON: 16 accumulators of 32 registers.
#define TSR_ISA_NAME "neon"
#define TSR_ISA_KERNELS kNeonKernels
#define TSR_VL 4
#define TSR_PANEL_VECTORS 4
#define TSR_BLOCK 4
#define TSR_TARGET_ROWS 96
#include "isa/kernels.inc.h"
