// AVX-512 with dot products of bf16 pairs: 24 accumulators of 32 registers.
#define TSR_ISA_NAME "avx512-bf16"
#define TSR_ISA_KERNELS kAvx512Bf16Kernels
#define TSR_VL 16
#define TSR_PANEL_VECTORS 3
#define TSR_BLOCK 8
#define TSR_TARGET_ROWS 288
#define TSR_PAIRS
#include "isa/kernels.inc.h"
