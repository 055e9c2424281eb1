#include "device.h"
#define TSR_VL 16
#define TSR_PANEL_VECTORS 2
#define TSR_BLOCK 8
#define TSR_TARGET_ROWS 256
#define TSR_PAIRS
#define TSR_AMX
#define TSR_RUNNABLE tsr::cpu::runs(tsr::cpu::probe_device(), "amx")  // which also asks for the tiles' registers
#include "simd.inc.h"
