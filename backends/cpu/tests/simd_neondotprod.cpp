#include "device.h"
#define TSR_VL 4
#define TSR_BYTES
#define TSR_RUNNABLE tsr::cpu::runs(tsr::cpu::probe_device(), "neon-dotprod")
#include "simd.inc.h"
