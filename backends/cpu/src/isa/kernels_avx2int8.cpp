// AVX2 with products of bytes: scores of q8_0 and q4_0 keys, Q rounded to bytes.
#define TSR_ISA_NAME "avx2-int8"
#define TSR_ISA_KERNELS kAvx2Int8Kernels
#define TSR_VL 8
#define TSR_BYTES
#include "isa/kernels.inc.h"
