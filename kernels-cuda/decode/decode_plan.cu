// The decode kernel's plan and launch: which instantiation, how much of it in shared memory, how many splits, how wide the
// copies are.
#include "../kernels.h"
#include "decode_launch.h"
#include "decode_merge.h"

namespace tsr::cuda {
namespace {

using namespace decode;

/// Of the kernel's fixed shared memory, at most.
constexpr int static_shared(Variant v) { return v == Variant::kEightHeads ? 10240 : 5120; }

// In a plan's config, above the dim and the variant.
constexpr int kClusters = 1 << 16;  ///< the splits' blocks are a cluster
constexpr int kPlain = 1 << 17;     ///< the usual case's kernel
constexpr int kSorted = 1 << 18;    ///< its blocks take the longest sequences first

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
/// The usual case's kernel pads nothing.
int dim_of(const Attention& a, Format format, bool plain) {
  return plain && a.dim == 96 && !is_blocked(format) ? 96 : padded_dim(a);
}

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

/// Whether the usual case's kernel takes this, by way of that variant. Without `addresses`: if they are as aligned as can be.
bool is_plain(const Attention& a, const Limits& limits, Format format, Variant variant, bool addresses) {
  const int dim = dim_of(a, format, true), heads = heads_of(variant), bytes = row_bytes(format, dim),
            width = bytes * heads;
  if (!exists(format, dim, variant) || !a.plain_score() || a.dim != dim || a.value_dim != dim) return false;
  if (a.out.type != Type::kF16 && a.out.type != Type::kBF16) return false;
  const auto aligned = [&](const View& view, int to) {
    const uint64_t data = addresses ? reinterpret_cast<uintptr_t>(view.data) : 0;
    return (data | static_cast<uint64_t>(view.batch | view.row | view.head)) % static_cast<uint64_t>(to) == 0;
  };
  if (!aligned(a.q, 4) || !aligned(a.out, 8)) return false;
  constexpr int64_t kLongest = 1 << 26;  // 16 or 32 of them are less than 2^31
  if (a.k.row < 0 || a.k.row > kLongest || a.v.row < 0 || a.v.row > kLongest) return false;
  const int unit = copies_in_bulk(variant) ? 16 : usual_unit(width);
  const bool adjoining_keys = variant == Variant::kAdjoiningKeys;
  const auto suits = [&](View view) {
    if (!addresses) view.data = nullptr;
    if (heads > 1 && view.head != bytes) return false;
    if (adjoining_keys && view.row != bytes) return false;
    if (adjoining_keys) view.row = 0;
    return copy_unit(a, view, adjoining_keys ? 16 : width, heads) >= unit;
  };
  if (!suits(a.k) || !suits(a.v)) return false;
  if (heads > 1 && (a.kv_heads % heads != 0 || a.group * a.max_queries > 8)) return false;
  if (variant == Variant::kFourTiles && a.group * a.max_queries <= 16) return false;
  // Eight heads are one block: too few of them to even out how much longer one sequence of a batch may be than another.
  if (variant == Variant::kEightHeads && a.paged() && a.batch > 1) return false;
  if (copies_in_bulk(variant) && (limits.arch / 10 != 9 || a.group * a.max_queries > 8)) return false;
  // Where stages have to begin at multiples of their keys: nothing moves where the keys begin.
  const bool begins_at_0 = a.window_left < 0 && !a.packed_k;
  if (adjoining_keys) return begins_at_0 && !a.paged();
  if (!a.paged()) return true;
  const int64_t keys = kTileKeys * stage_tiles(format, variant);
  return begins_at_0 && a.page_size % keys == 0 && (a.page_size & (a.page_size - 1)) == 0;
}

int64_t row_tiles_of(const Attention& a, Variant variant) {
  if (heads_of(variant) > 1) return 1;
  const int64_t rows = a.group * a.max_queries, tile = 8 * tiles_of(variant);
  return (rows + tile - 1) / tile;
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

bool may_sort(const Attention& a) { return a.seq_lens_k != nullptr && a.batch > 1 && a.batch <= kMostSorted; }
constexpr int64_t kMostSortedWaves = 8;

/// How many splits there are, and whether each cluster of blocks merges its own.
struct Splits {
  int count = 1;
  bool clustered = false;
  double cost = 0;
};

/// How fast a multiprocessor gets through keys, against its share of the memory's rate: where few blocks are enough, each
/// may take more, if it can.
double rate_of(const Attention& a, Format format, Variant variant) {
  switch (format) {
    case Format::kF8:
      return 1.2;
    case Format::kQ8:
      return copies_in_bulk(variant) ? 0.95 : 0.85;
    case Format::kQ4:
      return variant == Variant::kAdjoiningKeys ? 0.7 : variant == Variant::kEightHeads ? 0.6 : 0.55;
    default:
      return variant == Variant::kFourTiles ? 1.2 : a.paged() ? 1.6 : 2.1;
  }
}

/// All that the number of splits depends on: shapes and limits alone.
struct SplitQuestion {
  int64_t tiles;  ///< of keys
  int64_t units;  ///< blocks of one split
  int64_t slots;  ///< multiprocessors
  int64_t asked;  ///< 0: choose
  int64_t teams;  ///< tiles that a block has at a time
  int64_t bytes;  ///< of a tile
  double rate;
  bool may_cluster;
  bool uneven;  ///< lengths may differ, and the kernel may begin with the longest

  bool operator==(const SplitQuestion& q) const {
    return tiles == q.tiles && units == q.units && slots == q.slots && asked == q.asked && teams == q.teams &&
           bytes == q.bytes && rate == q.rate && may_cluster == q.may_cluster && uneven == q.uneven;
  }
};

/// The splits that cost least: waves of blocks, each as long as its keys and a constant, and the merge. In bytes that a
/// multiprocessor could read meanwhile.
Splits choose_splits(const SplitQuestion& q) {
  const int64_t tiles = q.tiles, units = q.units, slots = q.slots, teams = q.teams;
  const double rate = q.rate;
  const bool may_cluster = q.may_cluster;
  int64_t most = tiles < kMostSplits ? tiles : kMostSplits;
  if (most < 1) most = 1;
  constexpr double kWave = 120e3, kMerge = 140e3, kClusterMerge = 40e3, kSplit = 1500;
  Splits best;
  const auto consider = [&](int64_t splits, bool clustered) {
    const int64_t each = (tiles + splits - 1) / splits;
    const int64_t rounds = (each + teams - 1) / teams * teams;
    const int64_t waves = (units * splits + slots - 1) / slots;
    // A last round with some idle costs between its own keys and a full round's.
    const double share = clustered ? static_cast<double>(slots) / static_cast<double>(units * splits) : 1;
    const double bytes =
        0.5 * static_cast<double>(each + rounds) * static_cast<double>(q.bytes) / (share < rate ? share : rate);
    const double merge = splits == 1 ? 0 : clustered ? kClusterMerge : kMerge + kSplit * static_cast<double>(splits);
    const double cost = static_cast<double>(waves) * (bytes + kWave) + merge;
    if (best.cost == 0 || cost < best.cost) best = {static_cast<int>(splits), clustered, cost};
  };
  const auto clusters = [&](int64_t splits) { return may_cluster && splits > 1 && splits <= kMostClustered; };
  if (q.asked > 0) {
    const int64_t splits = q.asked < most ? q.asked : most;
    consider(splits, clusters(splits));
    return best;
  }
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t each = (tiles + splits - 1) / splits;
    if (splits > 1 && (tiles + each - 1) / each != splits) continue;  // some would be empty
    consider(splits, false);
    // A cluster's blocks want one part of the device: with more of them some may have to wait.
    if (clusters(splits) && 2 * units * splits <= slots) consider(splits, true);
  }
  // Of lengths that differ nothing is known here. Taken for a quarter of the longest on average, no block should have more
  // than a multiprocessor's share.
  if (q.uneven && best.count == 1 && units > slots) {
    const double share = 1.1 * static_cast<double>(units * tiles) / static_cast<double>(4 * slots);
    while (best.count<most&& static_cast<double>((tiles + best.count - 1) / best.count)> share) ++best.count;
  }
  return best;
}

/// The same, remembered: a hundred numbers of splits are some microseconds, and a step asks several times what the one before
/// it asked.
Splits remembered_splits(const SplitQuestion& question) {
  struct Entry {
    SplitQuestion question;
    Splits answer;
  };
  constexpr unsigned kEntries = 32;
  static thread_local Entry entries[kEntries] = {};
  const auto mixed = static_cast<uint64_t>(question.tiles * 31 + question.units * 7 + question.teams * 3 +
                                           question.bytes + question.asked * 17 + (question.may_cluster ? 1 : 0));
  Entry& entry = entries[mixed % kEntries];
  if (!(entry.question == question)) entry = {question, choose_splits(question)};
  return entry.answer;
}

struct Candidate {
  Plan plan;
  double cost = 0;
};

Candidate plan_variant(const Attention& a, const Limits& limits, Format format, Variant variant, bool plain) {
  const int dim = dim_of(a, format, plain);
  Plan plan;
  plan.tile_q = 8 * tiles_of(variant);
  plan.tile_k = kTileKeys;
  // As many warps as get two stages each. More stages only where less than 112 KB would be on their way: more disturb each other.
  int warps = most_warps(format, dim, variant);
  const int room = limits.shared_per_block - static_shared(variant);
  const bool may_cluster = plain && limits.arch >= 90 && heads_of(variant) == 1;
  const auto bytes = [&](int stages) { return shared_bytes(format, dim, variant, warps, stages, plain, plain); };
  const int least_warps = heads_of(variant) > 2 ? heads_of(variant) : 2;
  while (warps > least_warps && bytes(2) > room) warps /= 2;
  if (bytes(2) > room) return {};  // no room for this variant
  plan.stages = 2;
  while (plan.stages < kMostStages && bytes(plan.stages) < 112 << 10 && bytes(plan.stages + 1) <= room) ++plan.stages;
  plan.threads = warps * 32;
  const int64_t row_tiles = row_tiles_of(a, variant);
  const int64_t units = a.batch * row_tiles * (a.kv_heads / heads_of(variant));
  const int round = warps / heads_of(variant) * stage_tiles(format, variant);  // tiles
  const int key_bytes = 2 * row_bytes(format, dim) * heads_of(variant);
  const Splits splits = remembered_splits({(most_keys(a) + plan.tile_k - 1) / plan.tile_k, units,
                                           limits.multiprocessors > 0 ? limits.multiprocessors : 1, a.num_splits, round,
                                           int64_t{key_bytes} * plan.tile_k, rate_of(a, format, variant), may_cluster,
                                           plain && may_sort(a)});
  plan.splits = splits.count;
  plan.shared_bytes = shared_bytes(format, dim, variant, warps, plan.stages, plain, splits.clustered);
  if (plan.splits > 1) {
    plan.workspace_bytes = static_cast<uint64_t>(units) * plan.tile_q * plan.splits * (dim + 2) * sizeof(float);
  }
  // Many waves of blocks even out by themselves.
  const int64_t blocks = units * plan.splits;
  const bool sorted = plain && !splits.clustered && may_sort(a) && blocks > limits.multiprocessors &&
                      blocks <= kMostSortedWaves * limits.multiprocessors;
  plan.config = dim << 4 | static_cast<int>(variant) | (splits.clustered ? kClusters : 0) | (plain ? kPlain : 0) |
                (sorted ? kSorted : 0);
  return {plan, splits.cost};
}

}  // namespace

// Where pointers are aligned decides between kernels, but not how large the workspace is: it is the largest that a problem of
// this shape may need.
Plan plan_decode(const Attention& a, const Limits& limits) {
  const Format format = format_of(a.k.type);
  const int dim = padded_dim(a);
  const bool few = a.group * a.max_queries <= 8 || !exists(format, dim, Variant::kTwoTiles);
  const Variant usual = few ? Variant::kOneTile : Variant::kTwoTiles;
  Candidate best = plan_variant(a, limits, format, usual, false);
  uint64_t workspace = best.plan.workspace_bytes;
  bool found = false;
  for (const Variant variant :
       {usual, Variant::kFourTiles, Variant::kTwoHeads, Variant::kEightHeads, Variant::kAdjoiningKeys}) {
    if (!is_plain(a, limits, format, variant, false)) continue;
    const Candidate candidate = plan_variant(a, limits, format, variant, true);
    if (candidate.cost == 0) continue;
    if (candidate.plan.workspace_bytes > workspace) workspace = candidate.plan.workspace_bytes;
    if ((found && candidate.cost >= best.cost) || !is_plain(a, limits, format, variant, true)) continue;
    best = candidate;
    found = true;
  }
  best.plan.workspace_bytes = workspace;
  return best.plan;
}

cudaError_t launch_decode(const Attention& a, const Plan& plan, void* workspace, cudaStream_t stream) {
  const Format format = format_of(a.k.type);
  Launch launch;
  launch.dim = plan.config >> 4 & 4095;
  launch.variant = static_cast<Variant>(plan.config & 15);
  launch.threads = plan.threads;
  launch.shared_bytes = plan.shared_bytes;
  // A cluster needs more, otherwise all plans for an instantiation and device ask for the same.
  launch.most_shared_bytes = plan.shared_bytes;
  if ((plan.config & kPlain) != 0 && (plan.config & kClusters) == 0) {
    launch.most_shared_bytes += received_bytes(launch.dim, launch.variant);
  }
  const int heads = heads_of(launch.variant);
  Parameters p;
  p.a = a;
  p.splits = plan.splits;
  p.stages = plan.stages;
  p.head_units = a.kv_heads / heads;
  const int64_t row_tiles = row_tiles_of(a, launch.variant);
  const int64_t units = a.batch * row_tiles * p.head_units;
  if (units * p.splits > INT32_MAX || units * plan.tile_q > INT32_MAX || a.group * a.max_queries > INT32_MAX - 16 ||
      a.max_keys > INT32_MAX - (1 << 20))
    return cudaErrorInvalidConfiguration;
  p.row_tiles = static_cast<int32_t>(row_tiles);
  launch.plain = (plan.config & kPlain) != 0;
  launch.units = static_cast<unsigned>(row_tiles * p.head_units);
  launch.batch = static_cast<unsigned>(a.batch);
  p.clustered = (plan.config & kClusters) != 0 && has_clusters() ? 1 : 0;
  p.longest_first = (plan.config & kSorted) != 0 ? 1 : 0;
  while (int64_t{1} << p.page_shift < a.page_size) ++p.page_shift;
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
  const cudaError_t error = kLaunch(format)(p, launch, stream);
  if (error != cudaSuccess || p.splits == 1 || p.clustered != 0) return error;
  return launch_merge(p, launch.dim, launch.variant, stream);
}

}  // namespace tsr::cuda
