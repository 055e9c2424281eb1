// AVX-512: 24 accumulators of 32 registers; broadcasts come from memory with the multiply.
#define TSR_ISA_NAME "avx512"
#define TSR_ISA_KERNELS kAvx512Kernels
#define TSR_VL 16
#define TSR_PANEL_VECTORS 3
#define TSR_BLOCK 8
#define TSR_TARGET_ROWS 576
#include "isa/kernels.inc.h"
