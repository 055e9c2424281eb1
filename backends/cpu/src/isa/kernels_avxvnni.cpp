// AVX-VNNI: as AVX2's products of bytes, in one instruction.
#define TSR_ISA_NAME "avx-vnni"
#define TSR_ISA_KERNELS kAvxVnniKernels
#define TSR_VL 8
#define TSR_BYTES
#include "isa/kernels.inc.h"
