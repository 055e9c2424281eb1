// Plans and launches: which kernel of kernels.hip a problem gets, its grid, its arguments. The names, tiles and LDS here are
// those of kernels.hip; tests/emulation and the build's gate on code objects hold them together.
#include "kernels.h"

#include <cmath>
#include <cstring>

namespace tsr::hip {
namespace {

constexpr int kPlainKeys = 32, kPlainThreads = 256;
constexpr int kMatrixRows = 128, kMatrixThreads = 256;
constexpr int kDecodeRows = 16, kDecodeThreads = 256;
constexpr int kPipelineRows = 256, kPipelineKeyTile = 64, kPipelineThreads = 512;
constexpr int kMergeThreads = 256, kMergeRows = 8, kAppendThreads = 128;
/// Blocks that a compute unit runs at a time, by registers and LDS: what the choice of splits counts with.
constexpr int kBlocksPerUnit = 2;
constexpr int kLeastSplitKeys = 256;
/// Threads of a grid are counted in 32 bits.
constexpr int64_t kMostThreads = INT64_C(0xffffffff);

int padded_dim(const Attention& a) {
  const int dim = a.dim > a.value_dim ? a.dim : a.value_dim;
  return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}

struct PlainKernel {
  int dim;
  int rows;
  const char* name;
};
constexpr PlainKernel kPlainKernels[] = {
    {64, 16, "attention_plain_64_16"},   {64, 64, "attention_plain_64_64"},   {128, 16, "attention_plain_128_16"},
    {128, 64, "attention_plain_128_64"}, {256, 16, "attention_plain_256_16"},
};

/// Few rows take the tile of 16; so does D 256, whose larger tile would not fit into 64 KB.
const PlainKernel& plain_kernel(const Attention& a) {
  const int dim = padded_dim(a);
  const bool few = a.max_queries * a.group <= 16 || dim == 256;
  for (const PlainKernel& kernel : kPlainKernels) {
    if (kernel.dim == dim && kernel.rows == (few ? 16 : 64)) return kernel;
  }
  return kPlainKernels[0];
}

Tiling tiling_of(const Attention& a, int rows, int keys, int splits) {
  Tiling t;
  t.rows = rows;
  t.tiles = static_cast<int32_t>((a.max_queries * a.group + rows - 1) / rows);
  divide_keys(a, keys, splits, &t);
  return t;
}

void add(Launches* launches, const char* kernel, int64_t blocks, int threads, uint32_t argument_bytes) {
  if (blocks * threads > kMostThreads) {
    launches->failed = true;
    return;
  }
  Launch& launch = launches->of[launches->count++];
  launch.kernel = kernel;
  launch.blocks = static_cast<uint32_t>(blocks);
  launch.threads = static_cast<uint32_t>(threads);
  launch.argument_bytes = argument_bytes;
}

void add_merge_of_splits(const AttentionArguments& arguments, Launches* launches) {
  const Attention& a = arguments.attention;
  const Tiling& t = arguments.tiling;
  if (t.splits == 1 || launches->failed) return;
  const int64_t rows = static_cast<int64_t>(a.batch) * a.kv_heads * t.tiles * t.rows;
  add(launches, "merge_splits", (rows + kMergeRows - 1) / kMergeRows, kMergeThreads, sizeof arguments);
  if (!launches->failed) launches->of[launches->count - 1].arguments.attention = arguments;
}

struct Architecture {
  const char* name;
  int32_t wave;
  bool matrix_f16, matrix_bf16, matrix_options, flushes;
  int32_t matrix_max_dim, blocks_max_dim, query_bytes;
  bool pipeline;
  int32_t chiplet_units;  ///< compute units of a chiplet, by AMD's data sheets; 0: there is one
};
// As kernels.hip has it.
constexpr Architecture kArchitectures[] = {
    {"gfx90a", 64, false, true, true, true, 256, 256, 0, true, 0},
    {"gfx942", 64, true, true, true, false, 256, 256, 0, true, 38},
    {"gfx950", 64, true, true, true, false, 256, 256, 0, true, 32},
    {"gfx1030", 32, false, false, false, false, 0, 0, 0, false, 0},
    {"gfx1100", 32, true, true, false, false, 128, 64, 64, false, 0},
    {"gfx1101", 32, true, true, false, false, 128, 64, 64, false, 0},
    {"gfx1102", 32, true, true, false, false, 128, 64, 64, false, 0},
    {"gfx1150", 32, true, true, false, false, 128, 64, 64, false, 0},
    {"gfx1151", 32, true, true, false, false, 128, 64, 64, false, 0},
    {"gfx1200", 32, true, true, true, false, 128, 128, 32, false, 0},
    {"gfx1201", 32, true, true, true, false, 128, 128, 32, false, 0},
};

}  // namespace

bool set_architecture(const char* name, Limits* limits) {
  for (const Architecture& a : kArchitectures) {
    if (std::strcmp(a.name, name) != 0) continue;
    limits->wave = a.wave;
    limits->matrix_f16 = a.matrix_f16;
    limits->matrix_bf16 = a.matrix_bf16;
    limits->matrix_options = a.matrix_options;
    limits->matrix_flushes = a.flushes;
    limits->matrix_max_dim = a.matrix_max_dim;
    limits->blocks_max_dim = a.blocks_max_dim;
    limits->query_bytes = a.query_bytes;
    limits->pipeline = a.pipeline;
    limits->chiplets = a.chiplet_units > 0 && limits->compute_units > 0 && limits->compute_units % a.chiplet_units == 0
                           ? limits->compute_units / a.chiplet_units
                           : 1;
    return true;
  }
  return false;
}

Plan plan_plain(const Attention& a, const Limits& limits) {
  const PlainKernel& kernel = plain_kernel(a);
  Plan plan;
  plan.tile_q = kernel.rows;
  plan.tile_k = kPlainKeys;
  plan.threads = kPlainThreads;
  plan.lds_bytes = ((kernel.rows + kPlainKeys) * (kernel.dim + 4) + kernel.rows * (kPlainKeys + 4)) * 4;
  const Tiling whole = tiling_of(a, kernel.rows, kPlainKeys, 1);
  plan.splits = choose_splits(blocks_of(a, whole), static_cast<int64_t>(limits.compute_units) * kBlocksPerUnit,
                              a.max_keys, kPlainKeys, kLeastSplitKeys, a.num_splits);
  plan.workspace_bytes = partial_bytes(a, tiling_of(a, kernel.rows, kPlainKeys, plan.splits));
  return plan;
}

void launch_plain(const Attention& a, const Plan& plan, void* workspace, Launches* launches) {
  AttentionArguments arguments;
  arguments.attention = a;
  arguments.tiling = tiling_of(a, plan.tile_q, kPlainKeys, plan.splits);
  arguments.partials = static_cast<float*>(workspace);
  add(launches, plain_kernel(a).name, blocks_of(a, arguments.tiling), kPlainThreads, sizeof arguments);
  if (launches->failed) return;
  launches->of[0].arguments.attention = arguments;
  add_merge_of_splits(arguments, launches);
}

/// Head dims that the kernel's tiles hold: with options there is no kernel for 64.
static int matrix_dim(const Attention& a) {
  const int dim = padded_dim(a);
  return a.plain_score() || dim > 64 ? dim : 128;
}

Plan plan_matrix(const Attention& a, const Limits& limits) {
  Plan plan;
  const int dim = matrix_dim(a), keys = dim > 64 && (limits.wave == 32 || dim > 128) ? 32 : 64;
  const bool typed = a.q.type == Type::kF16 ? limits.matrix_f16 : limits.matrix_bf16;
  if (!typed || dim > limits.matrix_max_dim || !(a.plain_score() || limits.matrix_options)) return plan;
  plan.tile_q = limits.wave == 64 && dim > 128 ? kMatrixRows / 2 : kMatrixRows;
  plan.tile_k = keys;
  plan.threads = kMatrixThreads;
  const int sums = limits.wave == 64 ? 4 : 8;  // fp32 of a lane for 16 keys
  plan.lds_bytes =
      (keys * (dim + 8) + dim * (keys + 8)) * 2 + (a.plain_score() ? 0 : keys / 16 * sums * kMatrixThreads * 4);
  return plan;
}

void launch_matrix(const Attention& a, const Plan& plan, void*, Launches* launches) {
  static constexpr const char* kNames[2][2][3] = {
      {{"attention_matrix_f16_64", "attention_matrix_f16_128", "attention_matrix_f16_256"},
       {"", "attention_matrix_f16_128_options", "attention_matrix_f16_256_options"}},
      {{"attention_matrix_bf16_64", "attention_matrix_bf16_128", "attention_matrix_bf16_256"},
       {"", "attention_matrix_bf16_128_options", "attention_matrix_bf16_256_options"}}};
  const int dim = matrix_dim(a);
  AttentionArguments arguments;
  arguments.attention = a;
  arguments.tiling.rows = plan.tile_q;
  arguments.tiling.tiles = static_cast<int32_t>((a.max_queries + plan.tile_q - 1) / plan.tile_q);
  const int64_t blocks = static_cast<int64_t>(a.batch) * a.heads * arguments.tiling.tiles;
  const char* const name = kNames[a.q.type == Type::kBF16 ? 1 : 0][a.plain_score() ? 0 : 1][dim == 64    ? 0
                                                                                            : dim == 128 ? 1
                                                                                                         : 2];
  add(launches, name, blocks, kMatrixThreads, sizeof arguments);
  if (!launches->failed) launches->of[0].arguments.attention = arguments;
}

Plan plan_pipeline(const Attention& a, const Limits& limits) {
  Plan plan;
  const bool typed = a.q.type == Type::kF16 ? limits.matrix_f16 : limits.matrix_bf16;
  const int lds_bytes = 4 * kPipelineKeyTile * a.dim * 2;
  if (!limits.pipeline || !typed || (limits.lds_bytes > 0 && lds_bytes > limits.lds_bytes)) return plan;
  plan.tile_q = kPipelineRows;
  plan.tile_k = kPipelineKeyTile;
  plan.stages = 2;
  plan.threads = kPipelineThreads;
  plan.lds_bytes = lds_bytes;
  plan.chiplets = limits.chiplets;
  return plan;
}

void launch_pipeline(const Attention& a, const Plan& plan, void*, Launches* launches) {
  static constexpr const char* kNames[2][2][2] = {
      {{"attention_pipeline_f16_64", "attention_pipeline_f16_128"},
       {"attention_pipeline_f16_64_paged", "attention_pipeline_f16_128_paged"}},
      {{"attention_pipeline_bf16_64", "attention_pipeline_bf16_128"},
       {"attention_pipeline_bf16_64_paged", "attention_pipeline_bf16_128_paged"}}};
  AttentionArguments arguments;
  arguments.attention = a;
  arguments.chiplets = plan.chiplets;
  arguments.tiling.rows = kPipelineRows;
  arguments.tiling.tiles = static_cast<int32_t>((a.max_queries + kPipelineRows - 1) / kPipelineRows);
  const int64_t blocks = static_cast<int64_t>(a.batch) * a.heads * arguments.tiling.tiles;
  const char* const name = kNames[a.q.type == Type::kBF16 ? 1 : 0][a.paged() ? 1 : 0][a.dim > 64 ? 1 : 0];
  add(launches, name, blocks, kPipelineThreads, sizeof arguments);
  if (!launches->failed) launches->of[0].arguments.attention = arguments;
}

static int decode_keys(const Limits& limits) { return limits.wave == 64 ? 32 : 16; }

Plan plan_decode(const Attention& a, const Limits& limits) {
  Plan plan;
  const int dim = padded_dim(a), keys = decode_keys(limits);
  const bool typed = a.q.type == Type::kF16 ? limits.matrix_f16 : limits.matrix_bf16;
  const bool blocks = a.k.type == Type::kQ8 || a.k.type == Type::kQ4;
  if (!typed || dim > (blocks ? limits.blocks_max_dim : limits.matrix_max_dim)) return plan;
  plan.tile_q = kDecodeRows;
  plan.tile_k = keys;
  plan.threads = kDecodeThreads;
  const int waves = kDecodeThreads / limits.wave;
  const int scores = 8 * kDecodeThreads * 4, results = (kDecodeRows * (dim + 4) + 2 * waves * kDecodeRows) * 4;
  plan.lds_bytes = dim * limits.query_bytes + (scores > results ? scores : results);
  const Tiling whole = tiling_of(a, kDecodeRows, keys, 1);
  plan.splits = choose_splits(blocks_of(a, whole), static_cast<int64_t>(limits.compute_units) * kBlocksPerUnit,
                              a.max_keys, keys, kLeastSplitKeys, a.num_splits);
  plan.workspace_bytes = partial_bytes(a, tiling_of(a, kDecodeRows, keys, plan.splits));
  return plan;
}

void launch_decode(const Attention& a, const Plan& plan, void* workspace, Launches* launches) {
  static constexpr const char* kNames[2][2][3] = {
      {{"attention_decode_f16_64", "attention_decode_f16_128", "attention_decode_f16_256"},
       {"attention_decode_f16_64_blocks", "attention_decode_f16_128_blocks", "attention_decode_f16_256_blocks"}},
      {{"attention_decode_bf16_64", "attention_decode_bf16_128", "attention_decode_bf16_256"},
       {"attention_decode_bf16_64_blocks", "attention_decode_bf16_128_blocks", "attention_decode_bf16_256_blocks"}}};
  const int dim = padded_dim(a);
  AttentionArguments arguments;
  arguments.attention = a;
  arguments.tiling = tiling_of(a, kDecodeRows, plan.tile_k, plan.splits);
  arguments.partials = static_cast<float*>(workspace);
  const bool blocks = a.k.type == Type::kQ8 || a.k.type == Type::kQ4;
  const char* const name = kNames[a.q.type == Type::kBF16 ? 1 : 0][blocks ? 1 : 0][dim == 64 ? 0 : dim == 128 ? 1 : 2];
  add(launches, name, blocks_of(a, arguments.tiling), kDecodeThreads, sizeof arguments);
  if (launches->failed) return;
  launches->of[0].arguments.attention = arguments;
  add_merge_of_splits(arguments, launches);
}

void launch_append(const Append& append, Launches* launches) {
  AppendArguments arguments;
  arguments.append = append;
  if (append.rope_dims > 0) arguments.ratio = std::pow(append.rope_theta, -2.0 / append.rope_dims);
  const int64_t tokens = append.packed ? append.rows : append.batch * append.rows;
  if (tokens > 0) {
    add(launches, "append", tokens, kAppendThreads, sizeof arguments);
    if (launches->failed) return;
    launches->of[0].arguments.append = arguments;
  }
  if (append.advance && append.batch > 0) {
    add(launches, "advance", (append.batch + kAppendThreads - 1) / kAppendThreads, kAppendThreads, sizeof arguments);
    if (!launches->failed) launches->of[launches->count - 1].arguments.append = arguments;
  }
}

void launch_merge(const Merge& merge, Launches* launches) {
  const int64_t rows = merge.batch * merge.rows * merge.heads;
  add(launches, "merge", (rows + kMergeRows - 1) / kMergeRows, kMergeThreads, sizeof merge);
  if (!launches->failed) launches->of[0].arguments.merge = merge;
}

}  // namespace tsr::hip
