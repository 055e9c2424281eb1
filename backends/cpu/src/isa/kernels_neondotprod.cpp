// Armv8.2 dot products of bytes: scores of q8_0 and q4_0 keys, Q rounded to bytes.
#define TSR_ISA_NAME "neon-dotprod"
#define TSR_ISA_KERNELS kNeonDotprodKernels
#define TSR_VL 4
#define TSR_BYTES
#include "isa/kernels.inc.h"
