// Dividing the keys of a query among the blocks of a grid: the arithmetic, for host and device, for every vendor.
//
// Rows of a block are (query, head of the group) pairs of one KV head: row r is query r / group of query head r % group.
// Partials are fp32 in the workspace, one for each block and row: {maximum (base 2), sum, 2 unused, value_dim unnormalised
// outs}. They are merged in order, so results don't depend on timing.
#pragma once

#include "tessera/common/device_problem.h"

namespace tsr::device {

/// The grid: ((batch * kv_heads + head) * tiles + tile) * splits + split.
struct Tiling {
  int32_t rows = 0;        ///< of a tile
  int32_t tiles = 0;       ///< row tiles of one KV head
  int32_t splits = 1;      ///< of the key range
  int32_t partial = 0;     ///< floats of a partial
  int64_t split_keys = 0;  ///< keys of a split, a multiple of the key tile
};

/// Floats of a partial before its outs.
constexpr int32_t kPartialHead = 4;
constexpr int64_t kMostSplits = 128;

struct Work {
  int32_t batch;
  int32_t kv_head;
  int32_t tile;
  int32_t split;
};

TSR_HOST_DEVICE inline Work work_of(const Attention& a, const Tiling& t, int64_t block) {
  Work w;
  w.split = static_cast<int32_t>(block % t.splits);
  block /= t.splits;
  w.tile = static_cast<int32_t>(block % t.tiles);
  block /= t.tiles;
  w.kv_head = static_cast<int32_t>(block % a.kv_heads);
  w.batch = static_cast<int32_t>(block / a.kv_heads);
  return w;
}

TSR_HOST_DEVICE inline Span split_span(const Tiling& t, int split) {
  return Span{split * t.split_keys, (split + 1) * t.split_keys};
}

TSR_HOST_DEVICE inline Span intersect(Span x, Span y) {
  const Span both{x.begin > y.begin ? x.begin : y.begin, x.end < y.end ? x.end : y.end};
  return both.empty() ? Span{0, 0} : both;
}

/// Splits for a grid of `blocks` on a device that runs `slots` blocks at a time: none if that fills it, else the smallest
/// number within 15 % of the best use of whole waves, each split at least `least_keys` long. A function of shapes alone.
inline int32_t choose_splits(int64_t blocks, int64_t slots, int64_t keys, int64_t tile_keys, int64_t least_keys,
                             int32_t forced) {
  const int64_t key_tiles = keys > 0 ? (keys + tile_keys - 1) / tile_keys : 1;
  if (forced > 0) return static_cast<int32_t>(forced < key_tiles ? forced : key_tiles);
  if (blocks * 5 >= slots * 4) return 1;
  int64_t most = keys / least_keys;
  if (most > kMostSplits) most = kMostSplits;
  if (most > key_tiles) most = key_tiles;
  const auto use = [&](int64_t splits) {
    const int64_t work = blocks * splits;
    return static_cast<double>(work) / static_cast<double>((work + slots - 1) / slots * slots);
  };
  double best = 0;
  for (int64_t splits = 1; splits <= most; ++splits) best = use(splits) > best ? use(splits) : best;
  for (int64_t splits = 1; splits <= most; ++splits) {
    if (use(splits) >= 0.85 * best) return static_cast<int32_t>(splits);
  }
  return 1;
}

/// Sets splits, split_keys and partial of a tiling whose rows and tiles are known.
inline void divide_keys(const Attention& a, int64_t tile_keys, int32_t splits, Tiling* t) {
  const int64_t even = (a.max_keys + splits - 1) / splits;
  t->splits = splits;
  t->split_keys = splits > 1 ? (even + tile_keys - 1) / tile_keys * tile_keys : kUnbounded;
  t->partial = kPartialHead + (a.value_dim + 3) / 4 * 4;
}

inline int64_t blocks_of(const Attention& a, const Tiling& t) {
  return static_cast<int64_t>(a.batch) * a.kv_heads * t.tiles * t.splits;
}

/// The workspace that a tiling needs.
inline uint64_t partial_bytes(const Attention& a, const Tiling& t) {
  return t.splits > 1 ? static_cast<uint64_t>(blocks_of(a, t)) * static_cast<uint64_t>(t.rows) *
                            static_cast<uint64_t>(t.partial) * 4
                      : 0;
}

}  // namespace tsr::device
