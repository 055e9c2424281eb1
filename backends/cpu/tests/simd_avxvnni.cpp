#include "device.h"
#define TSR_VL 8
#define TSR_BYTES
#define TSR_RUNNABLE tsr::cpu::runs(tsr::cpu::probe_device(), "avx-vnni")
#include "simd.inc.h"
