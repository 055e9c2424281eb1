// What one instruction-set build of the CPU kernels offers. The same sources (isa/*.inc.h) are compiled once for each
// set; catalogue.cpp lists those that the build has, and the probe decides which of them the processor can run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/common/problem.h"

namespace tsr::cpu {

class ThreadPool;

/// What plans are made for.
struct Machine {
  int threads = 1;
  int64_t l2_bytes = 0;  ///< of the L2 cache, a core's share
};

/// How a kernel would do a problem: a function of shape, variant and machine, never of contents.
struct Plan {
  int32_t tile_q = 0;  ///< rows of a tile: queries x query heads that share a KV head
  int32_t tile_k = 0;  ///< keys of a tile
  int32_t splits = 1;  ///< parts of the key range, merged at the end
  int32_t threads = 1;
  int64_t l2_bytes = 0;  ///< that tiles are sized for
  uint64_t workspace_bytes = 0;
};

struct IsaKernels {
  const char* isa;  ///< "portable", "avx2", "avx512", "neon", "amx", ...
  /// nullptr in a set that offers decode alone.
  Plan (*plan_prefill)(const Problem& problem, const Machine& machine);
  tsr_status (*prefill)(const Problem& problem, const Plan& plan, std::byte* workspace, ThreadPool& pool);
  /// nullptr in a set that offers prefill alone.
  Plan (*plan_decode)(const Problem& problem, const Machine& machine);
  tsr_status (*decode)(const Problem& problem, const Plan& plan, std::byte* workspace, ThreadPool& pool);
};

extern const IsaKernels kPortableKernels;
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;
extern const IsaKernels kNeonKernels;
extern const IsaKernels kAmxKernels;
extern const IsaKernels kAvx512Bf16Kernels;
extern const IsaKernels kNeonBf16Kernels;
extern const IsaKernels kAvx2Int8Kernels;
extern const IsaKernels kAvxVnniKernels;
extern const IsaKernels kAvx512VnniKernels;
extern const IsaKernels kNeonDotprodKernels;

}  // namespace tsr::cpu
