// Armv8.6 NEON with dot products of bf16 pairs: 16 accumulators of 32 registers.
#define TSR_ISA_NAME "neon-bf16"
#define TSR_ISA_KERNELS kNeonBf16Kernels
#define TSR_VL 4
#define TSR_PANEL_VECTORS 4
#define TSR_BLOCK 4
#define TSR_TARGET_ROWS 96
#define TSR_PAIRS
#include "isa/kernels.inc.h"
