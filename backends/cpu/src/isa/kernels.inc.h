// The kernels of one instruction set. The including file names the set and its register shape:
//   TSR_VL             floats in a vector
//   TSR_PANEL_VECTORS  vectors of rows that a micro-kernel keeps
//   TSR_BLOCK          keys (or value dimensions) that it keeps: BLOCK * PANEL_VECTORS accumulators, PANEL_VECTORS
//                      loads and one broadcast must fit the register file
//   TSR_TARGET_ROWS    rows of a prefill work item: enough to pay for making tiles, few enough for the L2 cache
//   TSR_ISA_NAME, TSR_ISA_KERNELS
//   TSR_PAIRS          multiplies pairs of bf16 (prefill alone), with TSR_AMX in tiles
//   TSR_BYTES          multiplies q8_0 and q4_0 keys by Q rounded to bytes (decode alone; needs TSR_VL and the names)

#if defined(__x86_64__)
// GCC 12 takes the undefined operand of its own AVX-512 intrinsics for a mistake (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>
#include <utility>

#include "isa/kernels.h"
#include "thread_pool.h"

namespace tsr::cpu {
namespace {

#include "isa/simd.inc.h"
#include "isa/scratch.inc.h"
#include "isa/tile.inc.h"
#if !defined(TSR_BYTES)
#include "isa/blocks.inc.h"
#include "isa/panel.inc.h"
#if defined(TSR_PAIRS)
#include "isa/pairs.inc.h"
#include "isa/product_pairs.inc.h"
#else
#include "isa/product_f32.inc.h"
#endif
#include "isa/prefill.inc.h"
#endif
#if !defined(TSR_PAIRS)
#include "isa/decode_tile.inc.h"
#if defined(TSR_BYTES)
#include "isa/bytes.inc.h"
#include "isa/decode_scores_bytes.inc.h"
#else
#include "isa/decode_scores.inc.h"
#endif
#include "isa/decode.inc.h"
#endif

}  // namespace

extern const IsaKernels TSR_ISA_KERNELS;
#if defined(TSR_PAIRS)
const IsaKernels TSR_ISA_KERNELS = {TSR_ISA_NAME, plan_prefill, prefill, nullptr, nullptr};
#elif defined(TSR_BYTES)
const IsaKernels TSR_ISA_KERNELS = {TSR_ISA_NAME, nullptr, nullptr, plan_decode, decode};
#else
const IsaKernels TSR_ISA_KERNELS = {TSR_ISA_NAME, plan_prefill, prefill, plan_decode, decode};
#endif

}  // namespace tsr::cpu
