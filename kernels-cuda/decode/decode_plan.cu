// The decode kernel's plan and launch: which instantiation, how much of it in shared memory, how many splits, how wide the
// copies are.
#include "../kernels.h"
#include "decode_launch.h"
#include "decode_merge.h"

namespace tsr::cuda {
namespace {

using namespace decode;

/// Of the kernel's fixed shared memory, at most.
constexpr int kStaticShared = 5120;

Format format_of(Type type) {
  switch (type) {
    case Type::kBF16:
      return Format::kBF16;
    case Type::kF8:
      return Format::kF8;
    case Type::kQ8:
      return Format::kQ8;
    case Type::kQ4:
      return Format::kQ4;
    default:
      return Format::kF16;
  }
}

int padded_dim(const Attention& a) { return a.dim <= 64 ? 64 : a.dim <= 128 ? 128 : 256; }

/// The largest of 16, 8, 4, 2 and 1 bytes that divides where every copy of a side begins, and its width.
int copy_unit(const Attention& a, const View& view, int width, int heads) {
  uint64_t bits =
      reinterpret_cast<uintptr_t>(view.data) | static_cast<uint64_t>(view.row) | static_cast<uint64_t>(width);
  if (a.batch > 1 || a.paged()) bits |= static_cast<uint64_t>(view.batch);
  if (a.kv_heads > heads) bits |= static_cast<uint64_t>(view.head * heads);
  int unit = 16;
  while (bits % unit != 0) unit /= 2;
  return unit;
}

/// Two heads in one block pay where their rows adjoin, make units wider than one head's, and each row has to be looked up.
bool may_pair_heads(const Attention& a, Format format) {
  const int dim = padded_dim(a), bytes = row_bytes(format, dim);
  if (!a.paged() || !exists(format, dim, Variant::kTwoHeads) || a.kv_heads % 2 != 0) return false;
  if (a.dim != dim || a.value_dim != dim || a.group * a.max_queries > 8) return false;
  return a.k.head == bytes && a.v.head == bytes;
}

bool pairs_heads(const Attention& a, Format format) {
  if (!may_pair_heads(a, format)) return false;
  const int bytes = row_bytes(format, padded_dim(a));
  const auto gains = [&](const View& view) { return copy_unit(a, view, 2 * bytes, 2) > copy_unit(a, view, bytes, 1); };
  return gains(a.k) && gains(a.v);
}

Variant variant_of_one_head(const Attention& a, Format format) {
  const bool few = a.group * a.max_queries <= 8 || !exists(format, padded_dim(a), Variant::kTwoTiles);
  return few ? Variant::kOneTile : Variant::kTwoTiles;
}

/// Keys that one query row may see at most: what a window leaves.
int64_t most_keys(const Attention& a) {
  int64_t keys = a.max_keys;
  const bool bounded = a.window_left >= 0 && (a.causal || a.window_right >= 0);
  if (bounded) {
    const int64_t right = a.causal || a.window_right < 0 ? 0 : a.window_right;
    const int64_t seen = a.window_left + right + a.max_queries;
    keys = seen < keys ? seen : keys;
  }
  return keys;
}

/// The number of splits that costs least: waves of blocks, each as long as its keys and a constant, and the merge. In bytes
/// that a multiprocessor could read meanwhile. A function of shapes and limits alone.
int choose_splits(const Attention& a, const Limits& limits, int64_t units, int tile, int teams, int key_bytes) {
  const int64_t keys = most_keys(a);
  const int64_t tiles = (keys + tile - 1) / tile;
  int64_t most = tiles < kMostSplits ? tiles : kMostSplits;
  if (most < 1) most = 1;
  if (a.num_splits > 0) return static_cast<int>(a.num_splits < most ? a.num_splits : most);
  constexpr double kWave = 100e3, kMerge = 60e3, kSplit = 256;
  const int64_t slots = limits.multiprocessors > 0 ? limits.multiprocessors : 1;
  double least = 0;
  int best = 1;
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t each = (tiles + splits - 1) / splits;
    if (splits > 1 && (tiles + each - 1) / each != splits) continue;  // some would be empty
    const int64_t rounds = (each + teams - 1) / teams * teams;
    const int64_t waves = (units * splits + slots - 1) / slots;
    // A last round with some idle costs between its own keys and a full round's.
    const double bytes = 0.5 * static_cast<double>(each + rounds) * tile * key_bytes;
    const double cost = static_cast<double>(waves) * (bytes + kWave) + (splits > 1 ? kMerge + kSplit * splits : 0);
    if (splits == 1 || cost < least) {
      least = cost;
      best = static_cast<int>(splits);
    }
  }
  return best;
}

Plan plan_variant(const Attention& a, const Limits& limits, Format format, Variant variant) {
  const int dim = padded_dim(a);
  Plan plan;
  plan.tile_q = 8 * tiles_of(variant);
  plan.tile_k = kTileKeys;
  // As many warps as get three stages each, or four warps with at least two.
  int warps = most_warps(format, dim, variant);
  const auto fits = [&](int stages) {
    return shared_bytes(format, dim, variant, warps, stages) <= limits.shared_per_block - kStaticShared;
  };
  while (warps > 4 && !fits(3)) warps /= 2;
  if (!fits(2)) warps /= 2;
  plan.stages = fits(4) ? 4 : fits(3) ? 3 : 2;
  plan.threads = warps * 32;
  plan.shared_bytes = shared_bytes(format, dim, variant, warps, plan.stages);
  const int64_t rows = variant == Variant::kTwoHeads ? 8 : a.group * a.max_queries;
  const int64_t row_tiles = (rows + plan.tile_q - 1) / plan.tile_q;
  const int64_t units = a.batch * row_tiles * (a.kv_heads / heads_of(variant));
  plan.splits = choose_splits(a, limits, units, plan.tile_k, warps / heads_of(variant),
                              2 * row_bytes(format, dim) * heads_of(variant));
  if (plan.splits > 1) {
    plan.workspace_bytes = static_cast<uint64_t>(units) * plan.tile_q * plan.splits * (dim + 2) * sizeof(float);
  }
  plan.config = dim << 4 | static_cast<int>(variant);
  return plan;
}

}  // namespace

// Where pointers are aligned decides between one head and two, but not how large the workspace is: it is the larger one.
Plan plan_decode(const Attention& a, const Limits& limits) {
  const Format format = format_of(a.k.type);
  Plan plan = plan_variant(a, limits, format, variant_of_one_head(a, format));
  if (!may_pair_heads(a, format)) return plan;
  Plan pairs = plan_variant(a, limits, format, Variant::kTwoHeads);
  const uint64_t larger = plan.workspace_bytes > pairs.workspace_bytes ? plan.workspace_bytes : pairs.workspace_bytes;
  plan.workspace_bytes = pairs.workspace_bytes = larger;
  return pairs_heads(a, format) ? pairs : plan;
}

cudaError_t launch_decode(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream) {
  const Format format = format_of(a.k.type);
  Launch launch;
  launch.dim = plan.config >> 4;
  launch.variant = static_cast<Variant>(plan.config & 15);
  launch.threads = plan.threads;
  launch.shared_bytes = plan.shared_bytes;
  const int heads = heads_of(launch.variant);
  Parameters p;
  p.a = a;
  p.splits = plan.splits;
  p.stages = plan.stages;
  p.head_units = a.kv_heads / heads;
  const int64_t rows = heads == 2 ? 8 : a.group * a.max_queries;
  const int64_t row_tiles = (rows + plan.tile_q - 1) / plan.tile_q;
  const int64_t units = a.batch * row_tiles * p.head_units;
  if (units * p.splits > INT32_MAX || units * plan.tile_q > INT32_MAX || rows > INT32_MAX - 16 ||
      a.max_keys > INT32_MAX - (1 << 20))
    return cudaErrorInvalidConfiguration;
  p.row_tiles = static_cast<int32_t>(row_tiles);
  launch.blocks = static_cast<unsigned>(units * p.splits);
  p.k_width = row_bytes(format, a.dim) * heads;
  p.v_width = row_bytes(format, a.value_dim) * heads;
  p.k_unit = copy_unit(a, a.k, p.k_width, heads);
  p.v_unit = copy_unit(a, a.v, p.v_width, heads);
  if (p.splits > 1) {
    p.partial_out = static_cast<float*>(workspace);
    p.partial_stats = p.partial_out + units * plan.tile_q * p.splits * launch.dim;
  }
  constexpr auto kLaunch = [](Format f) {
    return f == Format::kF16    ? launch_f16
           : f == Format::kBF16 ? launch_bf16
           : f == Format::kF8   ? launch_f8
           : f == Format::kQ8   ? launch_q8
                                : launch_q4;
  };
  if (const cudaError_t error = kLaunch(format)(p, launch, stream); error != cudaSuccess || p.splits == 1) return error;
  return launch_merge(p, launch.dim, launch.variant, stream);
}

}  // namespace tsr::cuda
