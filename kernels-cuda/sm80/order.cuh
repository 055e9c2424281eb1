// Which tile of queries a block computes.
//
// Blocks start in the order of their index. Tiles with the most keys go first, so that no long one is left for the end. Heads
// are taken in sections whose keys and values fit into the L2 cache together: a section's tiles follow each other.
#pragma once

#include "../common/attention.h"

namespace tsr::cuda::sm80 {

/// The grid has tiles * lanes blocks, fewer than 2^31.
struct Order {
  uint32_t tiles = 0;          ///< padded: query tiles of a head; packed: of all sequences together, at most
  uint32_t lanes = 0;          ///< padded: batch x heads; packed: heads
  uint32_t section_lanes = 0;  ///< of a section
};

struct Place {
  int32_t batch;
  int32_t head;
  int32_t tile;  ///< of the sequence; its first query is tile * rows
  bool real;     ///< false: this block has nothing to do
};

/// For packed sequences: the sequence of the n-th tile. Every warp asks for itself; lanes look at 32 sequences at a time.
__device__ __forceinline__ Place place_packed(const Attention& a, int64_t n, int32_t head, int rows) {
  const int lane = threadIdx.x % 32;
  for (int64_t first = 0; first < a.batch; first += 32) {
    const int64_t b = first + lane;
    const int64_t tiles = b < a.batch ? (sequence_of(a, b).queries + rows - 1) / rows : 0;
    int64_t through = tiles;  // of the lanes up to this one
    for (int step = 1; step < 32; step *= 2) {
      const int64_t before = __shfl_up_sync(~0u, through, step);
      if (lane >= step) through += before;
    }
    const unsigned past = __ballot_sync(~0u, n < through);
    if (past != 0) {
      const int owner = __ffs(static_cast<int>(past)) - 1;
      const int64_t last =
          __shfl_sync(~0u, through - 1, owner);  // its last tile: the one with the most keys goes first
      return {static_cast<int32_t>(first) + owner, head, static_cast<int32_t>(last - n), true};
    }
    n -= __shfl_sync(~0u, through, 31);
  }
  return {0, 0, 0, false};
}

__device__ __forceinline__ Place place_of(const Attention& a, const Order& order, uint32_t block, int rows) {
  const uint32_t section_blocks = order.tiles * order.section_lanes;
  const uint32_t section = block / section_blocks, within = block % section_blocks;
  const uint32_t first = section * order.section_lanes;
  const uint32_t lanes = order.lanes - first < order.section_lanes ? order.lanes - first : order.section_lanes;
  const uint32_t tile = within / lanes, lane = first + within % lanes;
  if (a.packed_q) return place_packed(a, tile, static_cast<int32_t>(lane), rows);
  const auto heads = static_cast<uint32_t>(a.heads);
  return {static_cast<int32_t>(lane / heads), static_cast<int32_t>(lane % heads),
          static_cast<int32_t>(order.tiles - 1 - tile), true};
}

}  // namespace tsr::cuda::sm80
