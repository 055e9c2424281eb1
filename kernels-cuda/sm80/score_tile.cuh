// From q.k to exponents for a tile of a problem with soft cap, bias, ALiBi or a mask (docs/semantics.md, "Score"). Each option is
// asked for once a row of the tile, not once an element, and its part is a loop without branches.
#pragma once

#include "../common/score.cuh"
#include "walk.cuh"

namespace tsr::cuda::sm80 {

/// One row's part of a tile in a lane: pairs of neighbouring keys, eight apart. Of what the row doesn't see nothing is loaded where
/// kEdge; without it the row must see all.
template <class Shape, bool kEdge>
struct TileRow {
  static constexpr int kPairs = Shape::kKeys / 8;
  float (&score)[kPairs][4];
  const int half;
  const int begin, end;  ///< visible keys, counted from the lane's first

  __device__ __forceinline__ bool sees(int key) const { return !kEdge || (key >= begin && key < end); }
  /// change(score, key) for each; the key is counted from the lane's first.
  template <class F>
  __device__ __forceinline__ void each(F&& change) const {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) change(score[n][2 * half + e], n * 8 + e);
    }
  }
  /// change(score, value) for each that the row sees, with values two at a time by pair(key), one at a time by single(key).
  template <class Pair, class Single, class F>
  __device__ __forceinline__ void with(Pair&& pair, Single&& single, F&& change) const {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      float& first = score[n][2 * half];
      float& second = score[n][2 * half + 1];
      if (sees(n * 8) && sees(n * 8 + 1)) {
        const auto values = pair(n * 8);
        first = change(first, values.x);
        second = change(second, values.y);
      } else if (kEdge) {
        if (sees(n * 8)) first = change(first, single(n * 8));
        if (sees(n * 8 + 1)) second = change(second, single(n * 8 + 1));
      }
    }
  }

  __device__ __forceinline__ void bias(Type type, const char* of_first) const {
    const int bytes = type == Type::kF32 ? 4 : 2;
    with([&](int key) { return load_2(type, of_first + key * bytes); },
         [&](int key) { return load_1(type, of_first, key); }, add_bias);
  }
  __device__ __forceinline__ void mask(const char* of_first) const {
    const bool even = (reinterpret_cast<uintptr_t>(of_first) & 1) == 0;
    with(
        [&](int key) {
          if (!even) return uchar2{static_cast<uint8_t>(of_first[key]), static_cast<uint8_t>(of_first[key + 1])};
          return *reinterpret_cast<const uchar2*>(of_first + key);
        },
        [&](int key) { return static_cast<uint8_t>(of_first[key]); },
        [](float score, uint8_t visible) { return visible == 0 ? TSR_NEG_INF : score; });
  }
};

/// Asks the L2 cache for what a tile will read of bias and mask: a row each thread.
template <class Shape>
__device__ __forceinline__ void prefetch_scores(const Attention& a, const Sequence& s, const Place& place,
                                                const int2* row_keys, int first_key) {
  const int row = static_cast<int>(threadIdx.x);
  if (row >= Shape::kRows || !(a.bias.given() || a.mask.given())) return;
  const int2 keys = row_keys[row];
  if (first_key >= keys.y || first_key + Shape::kKeys <= keys.x) return;
  const int64_t i = static_cast<int64_t>(place.tile) * Shape::kRows + row;
  if (a.bias.given()) {
    const int bytes = a.bias.type == Type::kF32 ? 4 : 2;
    const char* const at = a.bias.at(place.batch, i, place.head) + int64_t{first_key} * bytes;
    prefetch_to_l2(at);
    const int last = (keys.y - first_key < Shape::kKeys ? keys.y - first_key : Shape::kKeys) - 1;
    if (last * bytes >= 128) prefetch_to_l2(at + 128);
  }
  if (a.mask.given()) prefetch_to_l2(a.mask.at(place.batch, i, place.head) + first_key);
}

/// Scores to base 2. kEdge: some row doesn't see all of the tile; what it doesn't see becomes -inf.
template <bool kEdge, class Shape>
__device__ __forceinline__ void score_tile(Walk<Shape>& w, const Attention& a, const Sequence& s, const Place& place,
                                           const int2* row_keys, int first_key) {
  const int column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
  const float slope = a.alibi_slopes != nullptr ? a.alibi_slopes[place.head] : 0.0f;
#pragma unroll
  for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of_lane<Shape>(m, half);
      const int2 keys = kEdge ? row_keys[row] : int2{0, 0};
      const TileRow<Shape, kEdge> t{w.score[m], half, keys.x - column, keys.y - column};
      const int64_t i = static_cast<int64_t>(place.tile) * Shape::kRows + row;
      if (a.softcap > 0) {
        const float inner = cap_factor(a.scale, a.softcap);
        t.each([&](float& x, int) { x = a.softcap * tanh_of(x * inner); });
      } else {
        t.each([&](float& x, int) { x *= a.scale; });
      }
      if (a.bias.given()) {
        t.bias(a.bias.type,
               a.bias.at(place.batch, i, place.head) + int64_t{column} * (a.bias.type == Type::kF32 ? 4 : 2));
      }
      if (slope != 0) {
        // Exact below 2^24 keys apart, rounded twice beyond.
        const auto distance = static_cast<float>(i + s.visibility.offset - column);
        t.each([&](float& x, int key) { x -= slope * fabsf(distance - static_cast<float>(key)); });
      }
      if (a.mask.given()) t.mask(a.mask.at(place.batch, i, place.head) + column);
      t.each([&](float& x, int key) { x = t.sees(key) ? x * kLog2e : TSR_NEG_INF; });
    }
  }
}

}  // namespace tsr::cuda::sm80
