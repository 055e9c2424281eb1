#include "catalogue.h"

namespace tsr::hip::host {
namespace {

constexpr int32_t kHeadDimStep = 8;

// More rows than this for one KV head fill a tile of the prefill kernels.
constexpr int64_t kDecodeRows = 16;
// With fewer keys there is nothing to divide.
constexpr int64_t kDecodeKeysPerQuery = 4;

// From here on the tile of the pipeline has few rows without a query.
constexpr int64_t kPipelineRows = 192;

const Kernel kPipeline{"prefill-pipeline", plan_pipeline, launch_pipeline, true};
const Kernel kMatrix{"prefill-matrix", plan_matrix, launch_matrix, true};
const Kernel kPrefillPlain{"prefill-plain", plan_plain, launch_plain, false};
const Kernel kDecode{"decode-matrix", plan_decode, launch_decode, true};
const Kernel kDecodePlain{"decode-plain", plan_plain, launch_plain, false};

Variant row_of(const Kernel& kernel, tsr_kernel_family family, const char* arch, const char* summary) {
  Variant row;
  row.name = kernel.name;
  row.family = family;
  row.arch = arch;
  row.summary = summary;
  row.max_head_dim = kMaxHeadDim;
  row.head_dim_step = kHeadDimStep;
  row.implementation = &kernel;
  return row;
}

// Shapes alone decide: never what a length array holds.
tsr_kernel_family preferred_family(const Problem& p) {
  const bool few = p.max_queries <= kDecodeRows && p.group * p.max_queries <= kDecodeRows;
  return few && p.max_keys >= kDecodeKeysPerQuery * p.max_queries ? TSR_FAMILY_DECODE : TSR_FAMILY_PREFILL;
}

const char* pipeline_refuses(const Problem& p) {
  if (p.dim != p.value_dim || (p.dim != 64 && p.dim != 128)) return "it takes head dim 64 or 128 for q, k and v";
  if (p.max_keys >= kPipelineKeys) return "it takes fewer than 2^30 keys";
  if (p.paged() && (p.page_size < 8 || p.page_size >= kPipelineKeys || (p.page_size & (p.page_size - 1)) != 0))
    return "it takes pages of 8, 16, 32 and so on keys";
  for (const tsr::View* view : {&p.k, &p.v}) {
    const int64_t bytes = row_bytes(view->dtype, view->row_stride);
    if (bytes < 0 || bytes > kPipelineRowBytes) return "rows of k and v are more than 2^24 bytes apart";
  }
  return nullptr;
}

bool in_blocks(const tsr::View& view) { return is_block_format(view.dtype); }

const char* decode_refuses(const Problem& p) {
  return in_blocks(p.k) != in_blocks(p.v) ? "it takes k and v both in blocks (q8_0, q4_0), or neither" : nullptr;
}
// RDNA3 has no registers for more.
const char* narrow_decode_refuses(const Problem& p) {
  if (const char* const why = decode_refuses(p)) return why;
  return in_blocks(p.k) && (p.dim > 64 || p.value_dim > 64) ? "it takes k and v in blocks up to head dim 64" : nullptr;
}

}  // namespace

std::vector<Variant> make_catalogue(const Limits& limits) {
  Variant pipeline =
      row_of(kPipeline, TSR_FAMILY_PREFILL, "gfx90a, gfx94x, gfx95x",
             "Many queries, 16-bit, CDNA: MFMA of 32 x 32, eight wavefronts of which half multiply while "
             "half do softmax, keys copied straight into local memory");
  Variant matrix = row_of(kMatrix, TSR_FAMILY_PREFILL, "gfx90a, gfx94x, gfx95x, gfx11, gfx12",
                          "Many queries, 16-bit: MFMA (CDNA) or WMMA (RDNA) on tiles of queries and keys");
  const uint32_t types = (limits.matrix_f16 ? 1u << TSR_F16 : 0) | (limits.matrix_bf16 ? 1u << TSR_BF16 : 0);
  matrix.q_dtypes = matrix.kv_dtypes = types;
  matrix.max_head_dim = limits.matrix_max_dim;
  matrix.lacks = kFeatureMixedTypes;
  matrix.flushes = pipeline.flushes = limits.matrix_flushes;
  matrix.usable = types != 0;
  if (!matrix.usable) matrix.reason = "this device's code object has no kernels of matrix instructions";

  pipeline.q_dtypes = pipeline.kv_dtypes = types;
  pipeline.lacks = kFeatureMixedTypes | kFeatureSoftcap | kFeatureAlibi | kFeatureBias | kFeatureMask;
  pipeline.alignment = 16;
  pipeline.max_head_dim = 128;
  pipeline.refuses = pipeline_refuses;
  pipeline.usable = limits.pipeline && types != 0;
  if (!pipeline.usable) pipeline.reason = "this device's code object doesn't have it: it is for CDNA";

  Variant plain = row_of(kPrefillPlain, TSR_FAMILY_PREFILL, "any",
                         "Any types, alignment and head dims: fp32 arithmetic without matrix instructions");
  plain.kv_dtypes = kCacheTypes;
  plain.splits = true;

  Variant matrix_decode =
      row_of(kDecode, TSR_FAMILY_DECODE, "gfx90a, gfx94x, gfx95x, gfx11, gfx12",
             "Few queries against many keys: matrix instructions with the query heads of a group on one side; keys are "
             "divided among blocks, parts merged at the end; k and v of q's type, f8_e4m3, q8_0 or q4_0");
  matrix_decode.q_dtypes = types;
  matrix_decode.kv_dtypes = types | dtype_bit(TSR_F8_E4M3) | dtype_bit(TSR_Q8_0) | dtype_bit(TSR_Q4_0);
  matrix_decode.max_head_dim = limits.matrix_max_dim;
  matrix_decode.lacks = kFeatureOtherFloatKeys;
  matrix_decode.refuses = limits.blocks_max_dim < limits.matrix_max_dim ? narrow_decode_refuses : decode_refuses;
  matrix_decode.splits = true;
  matrix_decode.flushes = limits.matrix_flushes;
  matrix_decode.usable = types != 0;
  matrix_decode.reason = matrix.reason;

  Variant decode = row_of(kDecodePlain, TSR_FAMILY_DECODE, "any",
                          "Few queries against many keys, any types and alignment: fp32 arithmetic, keys divided among "
                          "blocks, parts merged at the end");
  decode.kv_dtypes = kCacheTypes;
  decode.splits = true;

  return {pipeline, matrix, plain, matrix_decode, decode};
}

int preference(const Problem& problem, const Variant& row) {
  const int matrix = kernel_of(row).matrix ? 4 : 0;
  const int family = row.family == preferred_family(problem) ? 2 : 0;
  const int pipeline = &kernel_of(row) != &kPipeline ? 0 : problem.max_queries >= kPipelineRows ? 1 : -1;
  return matrix + family + pipeline;
}

}  // namespace tsr::hip::host
