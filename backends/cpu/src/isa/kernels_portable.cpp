// Any processor: 4-lane vectors (SSE2 on x86-64), 12 accumulators of 16 registers.
#define TSR_ISA_NAME "portable"
#define TSR_ISA_KERNELS kPortableKernels
#define TSR_VL 4
#define TSR_PANEL_VECTORS 3
#define TSR_BLOCK 4
#define TSR_TARGET_ROWS 96
#include "isa/kernels.inc.h"
