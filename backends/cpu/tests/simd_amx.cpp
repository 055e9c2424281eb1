#include "device.h"
#define TSR_VL 16
#define TSR_PANEL_VECTORS 2
#define TSR_BLOCK 8
#define TSR_TARGET_ROWS 256
#define TSR_PAIRS
#define TSR_AMX
#define TSR_RUNNABLE (tsr::cpu::runs(tsr::cpu::probe_device(), "amx") && tsr::cpu::ask_for("amx"))
#include "simd.inc.h"
