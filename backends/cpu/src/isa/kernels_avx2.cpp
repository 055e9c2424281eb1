// AVX2 + FMA + F16C: 12 accumulators, 3 vectors of rows and a broadcast fill the 16 registers.
#define TSR_ISA_NAME "avx2"
#define TSR_ISA_KERNELS kAvx2Kernels
#define TSR_VL 8
#define TSR_PANEL_VECTORS 3
#define TSR_BLOCK 4
#define TSR_TARGET_ROWS 144
#include "isa/kernels.inc.h"
