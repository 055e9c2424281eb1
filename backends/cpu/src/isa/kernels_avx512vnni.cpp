// AVX-512 VNNI: as AVX2's products of bytes, in one instruction and of twice as many.
#define TSR_ISA_NAME "avx512-vnni"
#define TSR_ISA_KERNELS kAvx512VnniKernels
#define TSR_VL 16
#define TSR_BYTES
#include "isa/kernels.inc.h"
