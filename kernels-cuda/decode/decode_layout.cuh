// How the decode kernel stores its operands: storage formats, the tiles that each instantiation works on, and its shared
// memory. Constants of (format, padded head dim, variant), for the kernel and for the host's plan alike.
#pragma once

#include <cstdint>

#include "../common/attention.h"

namespace tsr::cuda::decode {

/// Of the cache. 16-bit caches have q's type; beside the others q may have either.
enum class Format : int {
  kF16,
  kBF16,
  kF8,
  kQ8,
  kQ4
};

/// What the N sides of a block's matrix products hold: 8 query rows, 16 rows of one KV head, or 8 rows of each of two KV
/// heads whose cache rows adjoin in memory (quantised rows are short: together they are whole 16-byte units).
enum class Variant : int {
  kOneTile,
  kTwoTiles,
  kTwoHeads
};

constexpr int kMostSplits = 128;
constexpr int kTileKeys = 16;  ///< keys of a tile: the M side of a matrix product

TSR_HOST_DEVICE constexpr bool is_16_bit(Format f) { return f == Format::kF16 || f == Format::kBF16; }
/// Blocks of 32 values with a scale.
TSR_HOST_DEVICE constexpr bool is_blocked(Format f) { return f == Format::kQ8 || f == Format::kQ4; }
TSR_HOST_DEVICE constexpr int block_bytes(Format f) { return f == Format::kQ8 ? 34 : 18; }
TSR_HOST_DEVICE constexpr int row_bytes(Format f, int dim) {
  return is_16_bit(f) ? 2 * dim : f == Format::kF8 ? dim : (dim + 31) / 32 * block_bytes(f);
}
TSR_HOST_DEVICE constexpr int tiles_of(Variant v) { return v == Variant::kOneTile ? 1 : 2; }
TSR_HOST_DEVICE constexpr int heads_of(Variant v) { return v == Variant::kTwoHeads ? 2 : 1; }

/// From row to row of a tile in shared memory: an odd multiple of 16 bytes, so that the 8 rows of an ldmatrix, and the words
/// that the lanes of a warp read of 8 rows, lie in different banks.
TSR_HOST_DEVICE constexpr int row_stride(Format f, int d, Variant v) {
  const int bytes = row_bytes(f, d) * heads_of(v);
  return (bytes + 15) / 32 * 32 + 16;
}
/// N tiles of a warp. Of two heads each has a warp: both read the same tiles of keys.
TSR_HOST_DEVICE constexpr int warp_tiles(Variant v) { return tiles_of(v) / heads_of(v); }
/// Warps of a block: 16 where 128 registers are enough, which hides more latency.
TSR_HOST_DEVICE constexpr int most_warps(Format f, int d, Variant v) {
  return !is_16_bit(f) && v != Variant::kTwoTiles && d <= 128 ? 16 : 8;
}
/// K and V of one tile.
TSR_HOST_DEVICE constexpr int stage_bytes(Format f, int d, Variant v) { return 2 * kTileKeys * row_stride(f, d, v); }
/// Scores of a warp's tile, by element and lane.
TSR_HOST_DEVICE constexpr int scratch_bytes(Variant v) { return warp_tiles(v) * 4 * 32 * 4; }
/// Query fragments of a block.
TSR_HOST_DEVICE constexpr int query_bytes(int d, Variant v) { return tiles_of(v) * (d / 16) * 32 * 8; }
/// Accumulators of all warps for one N tile, when they are merged. Takes the place of the stages.
TSR_HOST_DEVICE constexpr int merge_bytes(int d, int warps) { return warps * 8 * (d + 4) * 4; }

TSR_HOST_DEVICE constexpr int ring_bytes(Format f, int d, Variant v, int warps, int stages) {
  const int ring = warps / heads_of(v) * stages * stage_bytes(f, d, v);
  return ring > merge_bytes(d, warps) ? ring : merge_bytes(d, warps);
}
TSR_HOST_DEVICE constexpr int shared_bytes(Format f, int d, Variant v, int warps, int stages) {
  return ring_bytes(f, d, v, warps, stages) + warps * scratch_bytes(v) + query_bytes(d, v);
}

/// Which instantiations exist: two heads where blocks of 32 make short rows; two tiles where there are registers for them (more
/// row tiles in the grid take their place, which read the same keys at the same time).
TSR_HOST_DEVICE constexpr bool exists(Format f, int d, Variant v) {
  return v == Variant::kOneTile || (d <= 128 && (v == Variant::kTwoTiles || is_blocked(f)));
}

template <Format kFormat_, int kDim_, Variant kVariant_>
struct Layout {
  static constexpr Format kFormat = kFormat_;
  static constexpr Variant kVariant = kVariant_;
  static constexpr int kDim = kDim_;  ///< head dim, padded
  static constexpr int kTiles = warp_tiles(kVariant);
  static constexpr int kTeam = heads_of(kVariant);  ///< warps that share a ring, one for each head
  static constexpr int kRows = 8 * kTiles * kTeam;  ///< of the block
  static constexpr int kMostWarps = most_warps(kFormat, kDim, kVariant);
  static constexpr int kSteps = kDim / 16;  ///< of the matrix products: along K's dims, or M tiles of V's
  static constexpr int kHeadBytes = row_bytes(kFormat, kDim);
  static constexpr int kStride = row_stride(kFormat, kDim, kVariant);
  static constexpr int kSideBytes = kTileKeys * kStride;
  static constexpr int kStageBytes = 2 * kSideBytes;
};

/// Kernel parameters.
struct Parameters {
  Attention a;
  float* partial_out = nullptr;    ///< [unit, row, split, kDim], unnormalised
  float* partial_stats = nullptr;  ///< [unit, row, split, 2]: maximum (base 2), sum
  int32_t splits = 1;
  int32_t stages = 2;
  int32_t row_tiles = 1;             ///< of a KV head
  int32_t head_units = 1;            ///< blocks along the KV heads
  int32_t k_width = 0, v_width = 0;  ///< bytes of a row that are copied, all heads of the block
  int32_t k_unit = 1, v_unit = 1;    ///< bytes of a copy
};

}  // namespace tsr::cuda::decode
