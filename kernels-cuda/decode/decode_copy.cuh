// Copies tiles of K and V rows into shared memory: a warp for itself, or two warps that share a ring together. Keys at or past the end, whose rows may hold anything,
// are zeros there and aren't read.
#pragma once

#include "decode_instructions.cuh"
#include "decode_layout.cuh"

namespace tsr::cuda::decode {

/// Copies units [kFirst, kFirst + kUnits) of all rows of a tile: lanes go along the row for the largest power of two that
/// fits, and over rows; what is left of the row follows. `rows` gives a lane its first row and then steps.
template <class L, int kUnitBytes, int kUnits, int kFirst, bool kWhole, class Rows>
__device__ __forceinline__ void copy_units(uint32_t to, const Rows& rows, int count, int lane) {
  constexpr int kAlong = kUnits >= 32   ? 32
                         : kUnits >= 16 ? 16
                         : kUnits >= 8  ? 8
                         : kUnits >= 4  ? 4
                         : kUnits >= 2  ? 2
                                        : 1;
  constexpr int kRowsAtOnce = 32 * L::kTeam / kAlong;
  const int row = lane / kAlong, byte = (kFirst + lane % kAlong) * kUnitBytes;
  const char* source = rows.first(row) + byte;
#pragma unroll
  for (int first = 0; first < kTileKeys; first += kRowsAtOnce) {
    if (first > 0) source = rows.next(source, row + first, byte, kRowsAtOnce);
    if (kRowsAtOnce <= kTileKeys || row < kTileKeys) {
      copy_async<kUnitBytes>(to + L::place(row + first, byte), source, kWhole || row + first < count);
    }
  }
  if constexpr (kUnits > kAlong) {
    copy_units<L, kUnitBytes, kUnits - kAlong, kFirst + kAlong, kWhole>(to, rows, count, lane);
  }
}

/// The same for a width and unit known at run time.
template <class L, class Rows>
__device__ __forceinline__ void copy_any(uint32_t to, const Rows& rows, int count, int lane, int width, int unit) {
  int first_unit = 0;
  for (int left = width / unit; left > 0;) {
    const int shift = left >= 32 ? 5 : 31 - __clz(left);
    const int along = 1 << shift;
    const int byte = (first_unit + (lane & (along - 1))) * unit;
    for (int first = 0; first < kTileKeys; first += 32 * L::kTeam >> shift) {
      const int row = first + (lane >> shift);
      const char* const source = rows.first(row) + byte;
      if (row >= kTileKeys) continue;
      const uint32_t target = to + L::place(row, byte);
      const bool there = row < count;
      if (unit == 16) {
        copy_async<16>(target, source, there);
      } else if (unit == 8) {
        copy_async<8>(target, source, there);
      } else if (unit == 4) {
        copy_async<4>(target, source, there);
      } else if (unit == 2) {
        copy_2(target, source, there);
      } else {
        copy_1(target, source, there);
      }
    }
    first_unit += along;
    left -= along;
  }
}

// Blocked rows that begin between words, as those of 96 dims do: 102 and 54 bytes. Copies of less than 4 bytes aren't asynchronous, so
// rows are copied by whole words, with up to two bytes of whatever lies in front of them, and moved down when they are there.

/// Whether a side's rows are copied so.
template <class L>
__device__ __forceinline__ bool copies_words(int width, int unit) {
  return is_blocked(L::kFormat) && L::kTeam == 1 && unit == 2 && width + 4 <= L::kStride;
}
/// Words that a row may lie in.
__device__ __forceinline__ int words_of(int width) { return (width + 5) / 4; }
/// Lanes along a row.
__device__ __forceinline__ int lanes_along(int words) { return words > 16 ? 32 : words > 8 ? 16 : 8; }

__device__ __forceinline__ bool begins_inside(const char* row) { return (reinterpret_cast<uintptr_t>(row) & 2) != 0; }

/// Moves the rows of `inside`, a bit each, down to where they should begin. What is behind a row's end is zero afterwards.
template <class L>
__device__ __forceinline__ void straighten(char* tile, uint32_t inside, int lane, int width) {
  constexpr int kAtOnce = 4;
  if (inside == 0) return;
  // Every row, or every second one.
  const bool all = (inside & 0x5555u) != 0 && (inside & 0xaaaau) != 0;
  const int words = words_of(width), along = lanes_along(words), rows = 32 / along, apart = all ? 1 : 2;
  const int first_row = (all || (inside & 0x5555u) != 0 ? 0 : 1) + lane / along * apart;
  for (int first_word = 0; first_word < words; first_word += along) {
    const int word = first_word + lane % along;
#pragma unroll 1
    for (int row = first_row; row - first_row < kTileKeys; row += kAtOnce * rows * apart) {
      char* const at = tile + row * L::kStride + word * 4;
      const int step = rows * apart * L::kStride;
      uint32_t moved[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const auto* const from = reinterpret_cast<const uint32_t*>(at + i * step);
        const bool there = word < words && row + i * rows * apart < kTileKeys;
        moved[i] = there ? __funnelshift_r(from[0], word + 1 < words ? from[1] : 0, 16) : 0;
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const bool moves = word < words && row + i * rows * apart < kTileKeys;
        if (moves && (inside >> (row + i * rows * apart) & 1) != 0)
          *reinterpret_cast<uint32_t*>(at + i * step) = moved[i];
      }
    }
  }
}

/// Rows of a tile that follow one another at a stride.
struct StridedRows {
  const char* base;
  int64_t stride;

  __device__ __forceinline__ const char* first(int row) const { return base + row * stride; }
  __device__ __forceinline__ const char* next(const char* from, int, int, int rows) const {
    return from + rows * stride;
  }
};

/// Rows whose page and slot lane `row` of the warp knows.
struct PagedRows {
  const char* base;
  int64_t page_stride;
  int64_t stride;
  int page;
  int slot;

  __device__ __forceinline__ const char* first(int row) const {
    return base + __shfl_sync(~0u, page, row & 31) * page_stride + __shfl_sync(~0u, slot, row & 31) * stride;
  }
  __device__ __forceinline__ const char* next(const char*, int row, int byte, int) const { return first(row) + byte; }
};

/// A tile of such rows. Returns a bit for each that begins in the middle of a word.
template <class L>
__device__ __forceinline__ uint32_t copy_words(uint32_t to, const StridedRows& rows, int count, int lane, int width) {
  const int words = words_of(width), along = lanes_along(words), apart = max(32 / along, 2);
  const int64_t step = apart * rows.stride;  // every second row begins at the same place of a word
  for (int first_word = 0; first_word < words; first_word += along) {
    const int byte = 4 * (first_word + lane % along);
#pragma unroll 1
    for (int first = lane / along; first < apart; first += 32 / along) {
      const char* from = rows.first(first);
      const int before = begins_inside(from) ? 2 : 0;
      const int bytes = max(min(before + width - byte, 4), 0);
      from += byte - before;
      if (byte >= 4 * words) continue;
#pragma unroll 4
      for (int row = first; row < kTileKeys; row += apart) {
        copy_async_part(to + row * L::kStride + byte, from, row < count ? bytes : 0);
        from += step;
      }
    }
  }
  return (begins_inside(rows.first(0)) ? 0x5555u : 0) | (begins_inside(rows.first(1)) ? 0xaaaau : 0);
}
template <class L>
__device__ __forceinline__ uint32_t copy_words(uint32_t to, const PagedRows& rows, int count, int lane, int width) {
  const uint32_t inside = __ballot_sync(~0u, begins_inside(rows.first(lane % kTileKeys)));
  const int words = words_of(width), along = lanes_along(words);
  for (int first_word = 0; first_word < words; first_word += along) {
    const int byte = 4 * (first_word + lane % along);
#pragma unroll 4
    for (int first = 0; first < kTileKeys; first += 32 / along) {
      const int row = first + lane / along;
      const char* const from = rows.first(row);
      const int before = begins_inside(from) ? 2 : 0;
      const int bytes = row < count ? max(min(before + width - byte, 4), 0) : 0;
      if (byte < 4 * words) copy_async_part(to + row * L::kStride + byte, from - before + byte, bytes);
    }
  }
  return inside & 0xffffu;
}

template <class L>
class TileCopier {
 public:
  /// The first tile begins at key `first`; each copy() goes on by `step` keys.
  __device__ __forceinline__ TileCopier(const Parameters& p, const Sequence& s, int64_t b, int64_t kv_head, int first,
                                        int step, int end, int lane)
      : key_(first), step_(step), end_(end), lane_(lane) {
    const Attention& a = p.a;
    const int64_t batch = a.paged() ? 0 : b, row = a.paged() ? 0 : s.key_row + first;
    k_ = a.k.at(batch, row, kv_head);
    v_ = a.v.at(batch, row, kv_head);
    if (a.paged()) table_ = a.page_table + b * a.page_table_stride;
    exact_ = p.k_width == kWidth && p.v_width == kWidth && p.k_unit >= kUnit && p.v_unit >= kUnit;
    find_pages(p);
  }

  /// Starts copying the next tile to shared memory at `stage`: K, then V. Past the end: nothing. `inside`: of K and V, what
  /// straighten() wants to know when they are there.
  __device__ __forceinline__ void copy(const Parameters& p, uint32_t stage, uint32_t* inside) {
    if (key_ < end_) {
      const Attention& a = p.a;
      if (table_ == nullptr) {
        const StridedRows k{k_, a.k.row}, v{v_, a.v.row};
        if (exact_ && key_ + kTileKeys <= end_) {
          copy_units<L, kUnit, kWidth / kUnit, 0, true>(stage, k, kTileKeys, lane_);
          copy_units<L, kUnit, kWidth / kUnit, 0, true>(stage + L::kSideBytes, v, kTileKeys, lane_);
        } else {
          copy_unaligned(stage, k, end_ - key_, lane_, p.k_width, p.k_unit, inside + 0);
          copy_unaligned(stage + L::kSideBytes, v, end_ - key_, lane_, p.v_width, p.v_unit, inside + 1);
        }
        k_ += step_ * a.k.row;
        v_ += step_ * a.v.row;
      } else {
        const PagedRows k{k_, a.k.batch, a.k.row, page_, slot_}, v{v_, a.v.batch, a.v.row, page_, slot_};
        if (exact_) {
          copy_units<L, kUnit, kWidth / kUnit, 0, false>(stage, k, end_ - key_, lane_);
          copy_units<L, kUnit, kWidth / kUnit, 0, false>(stage + L::kSideBytes, v, end_ - key_, lane_);
        } else {
          copy_unaligned(stage, k, end_ - key_, lane_, p.k_width, p.k_unit, inside + 0);
          copy_unaligned(stage + L::kSideBytes, v, end_ - key_, lane_, p.v_width, p.v_unit, inside + 1);
        }
      }
    }
    key_ += step_;
    find_pages(p);
  }

 private:
  template <class Rows>
  __device__ __forceinline__ static void copy_unaligned(uint32_t to, const Rows& rows, int count, int lane, int width,
                                                        int unit, uint32_t* inside) {
    if (copies_words<L>(width, unit)) {
      const uint32_t found = copy_words<L>(to, rows, count, lane, width);
      if (lane == 0) *inside = found;
    } else {
      copy_any<L>(to, rows, count, lane, width, unit);
    }
  }

  /// The width and the unit of rows without padding that are aligned as well as such rows usually are.
  static constexpr int kWidth = L::kHeadBytes * L::kTeam;
  static constexpr int kUnit = kWidth % 16 == 0 ? 16 : kWidth % 8 == 0 ? 8 : 4;

  /// Looks up the pages of the next tile, a tile ahead of their use. Entries past the sequence's end aren't read.
  __device__ __forceinline__ void find_pages(const Parameters& p) {
    if (table_ == nullptr) return;
    const int key = key_ + lane_ % 32;  // each warp of a team for itself
    const int size = static_cast<int>(p.a.page_size);
    const int index = key / size;
    slot_ = key - index * size;
    page_ = 0;
    if (lane_ % 32 < kTileKeys && key < end_) page_ = static_cast<int>(clamped(table_[index], 0, p.a.page_count - 1));
  }

  const char* k_;  ///< the next tile's first row; paged: page 0
  const char* v_;
  const int32_t* table_ = nullptr;
  int key_;
  int step_;
  int end_;
  int lane_;      ///< of the team
  int page_ = 0;  ///< of key lane of the next tile
  int slot_ = 0;
  bool exact_;
};

}  // namespace tsr::cuda::decode
