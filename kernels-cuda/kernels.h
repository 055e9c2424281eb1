// The kernels as the back end calls them. Each family has a plan (a function of shapes, options and queried limits, never
// of contents) and a launch that only enqueues. Needs cuda_runtime_api.h for the stream and error types, nothing else.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/attention.h"

namespace tsr::cuda {

/// What a plan may know of a device: queried limits, never a name.
struct Limits {
  int32_t arch = 0;  ///< 80, 86, 90, ...
  int32_t multiprocessors = 0;
  int32_t shared_per_block = 0;  ///< bytes that a block may opt in to
  int32_t shared_per_multiprocessor = 0;
};

struct Plan {
  int32_t tile_q = 0;   ///< query rows of a block (of decode: rows = queries x heads of the group)
  int32_t tile_k = 0;   ///< keys of a tile
  int32_t stages = 1;   ///< key tiles in flight
  int32_t splits = 1;   ///< parts of the key range, merged at the end
  int32_t threads = 0;  ///< of a block
  int32_t shared_bytes = 0;
  uint64_t workspace_bytes = 0;
  int32_t config = 0;  ///< the family's own: which instantiation
};

// Each launch returns cudaPeekAtLastError()'s answer for its kernels. `workspace` has plan.workspace_bytes, 64-byte aligned, any
// contents. Empty problems (no batch, head or query row) must not be launched.

/// simt/: fp32 arithmetic, any types and alignment, all options, head dims up to 256; splits.
Plan plan_simt(const Attention& a, const Limits& limits);
cudaError_t launch_simt(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream);

/// sm80/: mma.sync. q, k, v of one 16-bit type; head dims multiples of 8 up to 256. 16-byte copies when all of q, k and v
/// are 16-byte aligned, else element loads (`aligned` false).
Plan plan_mma(const Attention& a, const Limits& limits, bool aligned);
cudaError_t launch_mma(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream);

/// sm90/: wgmma and TMA, for sm_90a alone. As mma with 16-byte alignment; no soft cap, ALiBi, bias or mask; out 16-bit; at
/// least one key; pages of 8, 16, 32, 64 or a multiple of 128 keys.
bool has_wgmma();  ///< this build has the code, and the driver what it needs
Plan plan_wgmma(const Attention& a, const Limits& limits);
cudaError_t launch_wgmma(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream);

/// decode/: mma.sync with the heads of a group on one side, the keys on the other; q 16-bit; k and v of one type out of
/// {q's, f8, q8_0, q4_0}; splits.
Plan plan_decode(const Attention& a, const Limits& limits);
cudaError_t launch_decode(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream);

cudaError_t launch_append(const Append& append, cudaStream_t stream);
cudaError_t launch_merge(const Merge& merge, cudaStream_t stream);

}  // namespace tsr::cuda
