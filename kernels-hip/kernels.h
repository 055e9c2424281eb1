// The kernels as the back end calls them. Host code: a plan for a problem (a function of shapes, options and queried limits,
// never of contents), then the launches that do it, each a kernel of the code object by name. Nothing here needs HIP.
#pragma once

#include <cstdint>

#include "kernel_arguments.h"

namespace tsr::hip {

/// What a plan may know of a device.
struct Limits {
  int32_t compute_units = 0;
  int32_t lds_bytes = 0;  ///< that a block may have
  // What its code object has: set_architecture knows.
  int32_t wave = 0;             ///< lanes of a wavefront: 64 (CDNA) or 32 (RDNA)
  bool matrix_f16 = false;      ///< kernels of matrix/ for fp16
  bool matrix_bf16 = false;     ///< and for bf16
  bool matrix_flushes = false;  ///< all of matrix/ takes numbers below 2^-126 for 0
  bool matrix_options = false;  ///< and with soft cap, ALiBi, bias, mask
  int32_t matrix_max_dim = 0;   ///< their largest head dim
  int32_t blocks_max_dim = 0;   ///< the largest of matrix/decode.h with k and v in blocks
  int32_t query_bytes = 0;      ///< of LDS that it takes for queries, for each head dim
  bool pipeline = false;        ///< those of matrix/pipeline.h, for the types above
  int32_t chiplets = 1;         ///< with an L2 each, among which blocks are dealt out in turn
};

/// Fills in what a code object has, by the base name of its architecture ("gfx942"); chiplets by compute_units, which is set
/// before. False for one that isn't built.
bool set_architecture(const char* name, Limits* limits);

struct Plan {
  int32_t tile_q = 0;  ///< query rows of a block (rows are queries x heads of the group where heads share a block)
  int32_t tile_k = 0;
  int32_t stages = 1;
  int32_t splits = 1;
  int32_t threads = 0;  ///< 0: this device can't
  int32_t lds_bytes = 0;
  int32_t chiplets = 1;
  uint64_t workspace_bytes = 0;
};

struct Launch {
  const char* kernel = nullptr;
  uint32_t blocks = 0;
  uint32_t threads = 0;
  uint32_t argument_bytes = 0;
  union Arguments {
    AttentionArguments attention;
    AppendArguments append;
    Merge merge;
    Arguments() : merge() {}
  } arguments;
};

/// The one or two launches of a call, in order. `failed`: the grid is larger than a launch can be.
struct Launches {
  Launch of[2];
  int32_t count = 0;
  bool failed = false;
};

/// plain/: fp32 arithmetic, any types and alignment, all options, head dims up to 256; splits. On every architecture.
Plan plan_plain(const Attention& a, const Limits& limits);
void launch_plain(const Attention& a, const Plan& plan, void* workspace, Launches* launches);

/// matrix/: MFMA or WMMA; q, k, v of one 16-bit type that Limits has, head dims up to its matrix_max_dim, any alignment; soft
/// cap, ALiBi, bias and mask where Limits says so.
Plan plan_matrix(const Attention& a, const Limits& limits);
void launch_matrix(const Attention& a, const Plan& plan, void* workspace, Launches* launches);

/// matrix/pipeline.h: CDNA; q, k, v of one 16-bit type that Limits has, 16-byte aligned, head dim 64 or 128 for both, no paged
/// keys and no option that changes a score; rows of k and v at most 2^24 bytes apart, fewer than 2^30 keys.
Plan plan_pipeline(const Attention& a, const Limits& limits);
void launch_pipeline(const Attention& a, const Plan& plan, void* workspace, Launches* launches);
constexpr int64_t kPipelineRowBytes = INT64_C(1) << 24;
constexpr int64_t kPipelineKeys = INT64_C(1) << 30;

/// matrix/decode.h: few rows; q of a 16-bit type that Limits has; k and v of that type or f8_e4m3, or both q8_0 or q4_0; all
/// options, any alignment, head dims up to matrix_max_dim (blocks_max_dim); splits.
Plan plan_decode(const Attention& a, const Limits& limits);
void launch_decode(const Attention& a, const Plan& plan, void* workspace, Launches* launches);

void launch_append(const Append& append, Launches* launches);
void launch_merge(const Merge& merge, Launches* launches);

}  // namespace tsr::hip
