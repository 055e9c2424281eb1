// Copies tiles of K and V rows into shared memory, a warp for itself. Keys at or past the end, whose rows may hold anything,
// are zeros there and aren't read.
#pragma once

#include "decode_instructions.cuh"
#include "decode_layout.cuh"

namespace tsr::cuda::decode {

/// K or V of one head (or two that adjoin), seen from key 0 of the sequence or from page 0.
struct Side {
  const char* base;
  int64_t row;
  int64_t page;
};

/// Where a lane's key is: lane l has key l of the tile.
struct Place {
  int page;
  int slot;
};

/// One copy of all key rows' units [kFirst, kFirst + kUnits): lanes go along the row for the largest power of two that fits,
/// and over rows; what is left of the row follows.
template <class L, int kUnitBytes, int kUnits, int kFirst, class From>
__device__ __forceinline__ void copy_units(uint32_t to, const From& from, int count, int lane) {
  constexpr int kAlong = kUnits >= 32   ? 32
                         : kUnits >= 16 ? 16
                         : kUnits >= 8  ? 8
                         : kUnits >= 4  ? 4
                         : kUnits >= 2  ? 2
                                        : 1;
  constexpr int kRowsAtOnce = 32 / kAlong;
  const int byte = (kFirst + lane % kAlong) * kUnitBytes;
#pragma unroll
  for (int first = 0; first < L::kKeys; first += kRowsAtOnce) {
    const int row = first + lane / kAlong;
    const char* const source = from(row) + byte;
    if (kRowsAtOnce <= L::kKeys || row < L::kKeys) {
      copy_async<kUnitBytes>(to + row * L::kStride + byte, source, row < count);
    }
  }
  if constexpr (kUnits > kAlong) {
    copy_units<L, kUnitBytes, kUnits - kAlong, kFirst + kAlong>(to, from, count, lane);
  }
}

/// The same for a width and unit known at run time.
template <class L, class From>
__device__ __forceinline__ void copy_any(uint32_t to, const From& from, int count, int lane, int width, int unit) {
  int first_unit = 0;
  for (int left = width / unit; left > 0;) {
    const int shift = left >= 32 ? 5 : 31 - __clz(left);
    const int along = 1 << shift;
    const int byte = (first_unit + (lane & (along - 1))) * unit;
    for (int first = 0; first < L::kKeys; first += 32 >> shift) {
      const int row = first + (lane >> shift);
      const char* const source = from(row) + byte;
      if (row >= L::kKeys) continue;
      const uint32_t target = to + row * L::kStride + byte;
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

template <class L>
class TileCopier {
 public:
  __device__ __forceinline__ TileCopier(const Parameters& p, const Sequence& s, int64_t b, int64_t kv_head, int end,
                                        int lane)
      : end_(end), lane_(lane) {
    const Attention& a = p.a;
    const int64_t batch = a.paged() ? 0 : b;
    k_ = {a.k.at(batch, s.key_row, kv_head), a.k.row, a.k.batch};
    v_ = {a.v.at(batch, s.key_row, kv_head), a.v.row, a.v.batch};
    if (a.paged()) table_ = a.page_table + b * a.page_table_stride;
  }

  /// Looks up the pages of the tile that the next copy() takes. Entries past the sequence's end aren't read.
  __device__ __forceinline__ void find_pages(const Parameters& p, int key0) {
    if (table_ == nullptr) return;
    const int key = key0 + lane_;
    const int size = static_cast<int>(p.a.page_size);
    const int index = key / size;
    place_.slot = key - index * size;
    place_.page = 0;
    if (lane_ < L::kKeys && key < end_) {
      place_.page = static_cast<int>(clamped(table_[index], 0, p.a.page_count - 1));
    }
  }

  /// Starts copying the tile of keys [key0, key0 + kKeys) to shared memory at `stage`: K, then V.
  __device__ __forceinline__ void copy(const Parameters& p, uint32_t stage, int key0) const {
    copy_side(k_, stage, key0, p.k_width, p.k_unit);
    copy_side(v_, stage + L::kSideBytes, key0, p.v_width, p.v_unit);
  }

 private:
  /// The width and the unit of rows without padding that are aligned as well as such rows usually are.
  static constexpr int kWidth = L::kHeadBytes * L::kHeads;
  static constexpr int kUnit = kWidth % 16 == 0 ? 16 : kWidth % 8 == 0 ? 8 : 4;

  __device__ __forceinline__ void copy_side(const Side& side, uint32_t to, int key0, int width, int unit) const {
    const int count = end_ - key0;
    const auto copy_from = [&](const auto& from) {
      if (width == kWidth && unit >= kUnit) {
        copy_units<L, kUnit, kWidth / kUnit, 0>(to, from, count, lane_);
      } else {
        copy_any<L>(to, from, count, lane_, width, unit);
      }
    };
    if (table_ == nullptr) {
      const char* const first = side.base + key0 * side.row;
      copy_from([&](int row) { return first + row * side.row; });
    } else {
      copy_from([&](int row) {
        const int page = __shfl_sync(~0u, place_.page, row & 31);
        const int slot = __shfl_sync(~0u, place_.slot, row & 31);
        return side.base + page * side.page + slot * side.row;
      });
    }
  }

  Side k_, v_;
  const int32_t* table_ = nullptr;
  int end_;
  int lane_;
  Place place_{0, 0};
};

}  // namespace tsr::cuda::decode
