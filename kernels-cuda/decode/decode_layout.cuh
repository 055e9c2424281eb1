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

/// What the N sides of a block's matrix products hold: 8, 16 or 32 query rows of one KV head, or 8 rows of each of two or
/// eight KV heads whose cache rows adjoin in memory (quantised rows are short: together they are whole 16-byte units).
/// kAdjoiningKeys: 8 rows of one head whose keys adjoin, so that a tile is one range of memory. The last two copy in bulk,
/// on sm_90 and up.
enum class Variant : int {
  kOneTile,
  kTwoTiles,
  kTwoHeads,
  kEightHeads,
  kAdjoiningKeys,
  kFourTiles
};

constexpr int kMostSplits = 160;
constexpr int kMostStages = 4;
constexpr int kMostClustered = 8;  ///< blocks of a cluster: as many as every device of sm_90 and up takes
constexpr int kMostSorted = 128;   ///< batch entries that blocks take by length
constexpr int kTileKeys = 16;      ///< keys of a tile: the M side of a matrix product

TSR_HOST_DEVICE constexpr bool is_16_bit(Format f) { return f == Format::kF16 || f == Format::kBF16; }
/// Blocks of 32 values with a scale.
TSR_HOST_DEVICE constexpr bool is_blocked(Format f) { return f == Format::kQ8 || f == Format::kQ4; }
TSR_HOST_DEVICE constexpr int block_bytes(Format f) { return f == Format::kQ8 ? 34 : 18; }
TSR_HOST_DEVICE constexpr int row_bytes(Format f, int dim) {
  return is_16_bit(f) ? 2 * dim : f == Format::kF8 ? dim : (dim + 31) / 32 * block_bytes(f);
}
TSR_HOST_DEVICE constexpr int heads_of(Variant v) {
  return v == Variant::kEightHeads ? 8 : v == Variant::kTwoHeads ? 2 : 1;
}
TSR_HOST_DEVICE constexpr int tiles_of(Variant v) {
  return v == Variant::kFourTiles ? 4 : v == Variant::kTwoTiles ? 2 : heads_of(v);
}
TSR_HOST_DEVICE constexpr bool copies_in_bulk(Variant v) {
  return v == Variant::kEightHeads || v == Variant::kAdjoiningKeys;
}

/// Rows of whole 128 bytes lie as they are, with their 16-byte units exchanged: unit u of row r where u ^ (r % 8) would be. The
/// 8 rows of an ldmatrix, and the words that the lanes of a warp read of 8 rows, then lie in different banks.
TSR_HOST_DEVICE constexpr bool is_swizzled(Format f, int d) { return !is_blocked(f) && row_bytes(f, d) % 128 == 0; }
/// From row to row of a tile in shared memory; of others an odd multiple of 16 bytes, to the same end, or as in memory.
TSR_HOST_DEVICE constexpr int row_stride(Format f, int d, Variant v) {
  if (v == Variant::kAdjoiningKeys || is_swizzled(f, d)) return row_bytes(f, d);
  const int bytes = row_bytes(f, d) * heads_of(v);
  // Bulk copies want to begin at the same place of 32 bytes here and there: two rows in a bank are the lesser evil.
  if (v == Variant::kEightHeads && f == Format::kQ8) return bytes + 32;
  return (bytes + 15) / 32 * 32 + 16;
}
/// N tiles of a warp. Of two heads each has a warp: both read the same tiles of keys.
TSR_HOST_DEVICE constexpr int warp_tiles(Variant v) { return tiles_of(v) / heads_of(v); }
/// Warps of a block: 16 where 128 registers are enough, which hides more latency.
TSR_HOST_DEVICE constexpr int most_warps(Format f, int d, Variant v) {
  return (is_16_bit(f) ? v == Variant::kOneTile && d <= 64 : v != Variant::kTwoTiles && d <= 128) ? 16 : 8;
}
/// Tiles that are copied together: two where rows are so short that what a copy takes beside them would count.
TSR_HOST_DEVICE constexpr int stage_tiles(Format f, Variant v) { return f == Format::kQ4 && copies_in_bulk(v) ? 2 : 1; }
/// Their K and V.
TSR_HOST_DEVICE constexpr int stage_bytes(Format f, int d, Variant v) {
  return 2 * stage_tiles(f, v) * kTileKeys * row_stride(f, d, v);
}
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
/// Rows of a cluster that each of its blocks finishes, at most, and what it receives about them: a float4 of statistics, of
/// which two count, and the sums.
TSR_HOST_DEVICE constexpr int received_rows(int rows, int splits) { return (rows + splits - 1) / splits; }
TSR_HOST_DEVICE constexpr int received_bytes(int d, Variant v) {
  return heads_of(v) > 1 ? 0 : (8 * tiles_of(v) + kMostClustered - 1) * (d * 4 + 16);
}
/// The kernel of the usual case has no scores there; the other one no clusters.
TSR_HOST_DEVICE constexpr int shared_bytes(Format f, int d, Variant v, int warps, int stages, bool plain,
                                           bool clustered) {
  return ring_bytes(f, d, v, warps, stages) + query_bytes(d, v) + (clustered ? received_bytes(d, v) : 0) +
         (plain ? 0 : warps * scratch_bytes(v));
}
/// Bytes of a copy of rows without padding that are aligned as well as such rows usually are.
TSR_HOST_DEVICE constexpr int usual_unit(int width) { return width % 16 == 0 ? 16 : width % 8 == 0 ? 8 : 4; }

/// Which instantiations exist: several heads, and bulk copies, where blocks of 32 make short rows; two tiles where there are
/// registers for them (more row tiles in the grid take their place, which read the same keys at the same time), four where the
/// L2 cache couldn't feed as many row tiles and conversions don't count. 96 dims: the usual case of what isn't in blocks; others are padded.
TSR_HOST_DEVICE constexpr bool exists(Format f, int d, Variant v) {
  if (d == 96) return !is_blocked(f) && (v == Variant::kOneTile || v == Variant::kTwoTiles);
  if (v == Variant::kOneTile || d > 128) return v == Variant::kOneTile;
  return v == Variant::kTwoTiles || (v == Variant::kFourTiles ? is_16_bit(f) : is_blocked(f));
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
  static constexpr bool kSwizzled = is_swizzled(kFormat, kDim);
  /// Where a byte of a row of a tile lies.
  TSR_HOST_DEVICE static constexpr int place(int row, int byte) {
    return row * kStride + (kSwizzled ? byte ^ (row % 8 * 16) : byte);
  }
  /// The same, 32 `steps` on from such an address, for what lies in the first 32 bytes of a row.
  TSR_HOST_DEVICE static constexpr uint32_t onwards(uint32_t address, int steps) {
    return kSwizzled ? (address ^ steps % 4 * 32) + steps / 4 * 128 : address + steps * 32;
  }
  static constexpr int kStageTiles = stage_tiles(kFormat, kVariant);
  static constexpr int kStageKeys = kStageTiles * kTileKeys;
  static constexpr int kTileBytes = kTileKeys * kStride;  ///< of K or V
  static constexpr int kSideBytes = kStageTiles * kTileBytes;
  static constexpr int kStageBytes = 2 * kSideBytes;
};

/// Kernel parameters.
struct Parameters {
  Attention a;
  float* partial_out = nullptr;    ///< [unit, row, split, kDim], unnormalised
  float* partial_stats = nullptr;  ///< [unit, row, split, 2]: maximum (base 2), sum
  int32_t splits = 1;
  int32_t clustered = 0;  ///< the splits' blocks are a cluster, which merges them
  int32_t stages = 2;
  int32_t row_tiles = 1;             ///< of a KV head
  int32_t head_units = 1;            ///< blocks along the KV heads
  int32_t first_batch = 0;           ///< of the grid
  int32_t longest_first = 0;         ///< the grid's batch entries are ranks by length
  int32_t page_shift = 0;            ///< page size, in the usual case
  int32_t k_width = 0, v_width = 0;  ///< bytes of a row that are copied, all heads of the block
  int32_t k_unit = 1, v_unit = 1;    ///< bytes of a copy
};

}  // namespace tsr::cuda::decode
