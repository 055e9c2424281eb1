// AMX beside AVX-512: panels of two tiles' columns. Tiles multiply, vectors do the rest.
#define TSR_ISA_NAME "amx"
#define TSR_ISA_KERNELS kAmxKernels
#define TSR_VL 16
#define TSR_PANEL_VECTORS 2
#define TSR_BLOCK 8
#define TSR_TARGET_ROWS 256
#define TSR_PAIRS
#define TSR_AMX
#include "isa/kernels.inc.h"
