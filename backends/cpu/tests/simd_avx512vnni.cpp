#include "device.h"
#define TSR_VL 16
#define TSR_BYTES
#define TSR_RUNNABLE tsr::cpu::runs(tsr::cpu::probe_device(), "avx512-vnni")
#include "simd.inc.h"
