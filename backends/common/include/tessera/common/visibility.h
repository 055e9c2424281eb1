// Which keys a query may see by structure: causality, window, lengths, offset. The one place where this is computed;
// host, CUDA, HIP and CPU code all include it. Masks by content (bias, boolean mask) are the kernels' own business.
//
// Query i of a sequence stands at key position i + offset. It sees keys j with
//   max(0, i + offset - left) <= j <= min(key_count - 1, i + offset + right).
// Causality is right = 0. A side that doesn't bound is kUnbounded.
#pragma once

#include <cstdint>

#if defined(__CUDACC__) || defined(__HIP__)
#define TSR_HOST_DEVICE __host__ __device__
#else
// Stands before functions that are inline anyhow. Always inlined: these are compiled into files with different instruction
// sets (backends/cpu/src/isa), and a copy made for one must never be the one that the linker keeps for all.
#define TSR_HOST_DEVICE [[gnu::always_inline]]
#endif

namespace tsr {

/// A window side without a bound. Small enough that position + kUnbounded never overflows 64 bits.
constexpr int64_t kUnbounded = int64_t{1} << 40;

/// Half-open range [begin, end); empty if begin >= end.
struct Span {
  int64_t begin;
  int64_t end;

  TSR_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
  TSR_HOST_DEVICE constexpr int64_t size() const { return empty() ? 0 : end - begin; }
  TSR_HOST_DEVICE constexpr bool contains(int64_t j) const { return j >= begin && j < end; }
};

/// How a tile of queries and keys stands: nothing visible, everything visible, or some.
enum class Tile : int {
  kSkipped,
  kPartial,
  kFull
};

/// The structure of one sequence.
struct Visibility {
  int64_t key_count;
  int64_t offset;
  /// >= 0, kUnbounded for no bound.
  int64_t left;
  int64_t right;

  /// Keys that query i sees.
  TSR_HOST_DEVICE constexpr Span keys(int64_t i) const {
    const int64_t position = i + offset;
    const int64_t first = position - left;
    const int64_t last = position + right;
    const Span span{first > 0 ? first : 0, last < key_count ? last + 1 : key_count};
    return span.begin < span.end ? span : Span{0, 0};
  }

  /// Keys that at least one query of [queries.begin, queries.end) sees, as one range. Both bounds grow with i, so the
  /// first query gives the lower bound and the last one the upper; keys between that no query sees can't exist as
  /// long as neighbouring windows touch, which they do (bounds move by one).
  TSR_HOST_DEVICE constexpr Span keys(Span queries) const {
    if (queries.empty()) return Span{0, 0};
    const int64_t first = queries.begin + offset - left;
    const int64_t last = queries.end - 1 + offset + right;
    const Span span{first > 0 ? first : 0, last < key_count ? last + 1 : key_count};
    return span.begin < span.end ? span : Span{0, 0};
  }

  /// Keys that every query of the range sees.
  TSR_HOST_DEVICE constexpr Span common_keys(Span queries) const {
    if (queries.empty()) return Span{0, 0};
    const int64_t first = queries.end - 1 + offset - left;
    const int64_t last = queries.begin + offset + right;
    const Span span{first > 0 ? first : 0, last < key_count ? last + 1 : key_count};
    return span.begin < span.end ? span : Span{0, 0};
  }

  TSR_HOST_DEVICE constexpr Tile tile(Span queries, Span tile_keys) const {
    const Span some = keys(queries);
    const bool touches = some.begin < tile_keys.end && tile_keys.begin < some.end;
    if (!touches) return Tile::kSkipped;
    const Span all = common_keys(queries);
    const bool covers = all.begin <= tile_keys.begin && tile_keys.end <= all.end;
    return covers ? Tile::kFull : Tile::kPartial;
  }

  /// Queries of [0, query_count) that see key j: the transpose of keys(i).
  TSR_HOST_DEVICE constexpr Span queries(int64_t j, int64_t query_count) const {
    if (j < 0 || j >= key_count) return Span{0, 0};
    const int64_t first = j - right - offset;
    const int64_t last = j + left - offset;
    const Span span{first > 0 ? first : 0, last < query_count ? last + 1 : query_count};
    return span.begin < span.end ? span : Span{0, 0};
  }
};

/// The bounds of a window (-1 = unbounded) together with causality.
TSR_HOST_DEVICE constexpr Visibility make_visibility(int64_t key_count, int64_t offset, bool causal,
                                                     int64_t window_left, int64_t window_right) {
  const int64_t left = window_left < 0 || window_left > kUnbounded ? kUnbounded : window_left;
  const int64_t wide = window_right < 0 || window_right > kUnbounded ? kUnbounded : window_right;
  const int64_t right = causal && wide > 0 ? 0 : wide;
  return Visibility{key_count, offset, left, right};
}

}  // namespace tsr
