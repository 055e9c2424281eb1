// From scores to weights: options and masks, the running maximum, 2^(score - maximum), and P as the operand of the second
// matrix product.
#pragma once

#include <type_traits>

#include "decode_rows.cuh"
#include "decode_values.cuh"

namespace tsr::cuda::decode {

/// Scores of a tile: of each N tile {key g, rows 2t and 2t + 1; key g + 8, the same}.
template <class L>
using Scores = float[L::kTiles][4];

/// State of the online softmax: rows 2t and 2t + 1 of each N tile. The maximum is in base 2, the sum this lane's share.
template <class L>
struct Running {
  float maximum[L::kTiles][2];
  float sum[L::kTiles][2];
};

/// The maximum moves only when a score passes it by this much, so the usual tile needs no exchange between lanes. Not for
/// 16-bit values: P isn't kept beyond one rounding there, so the largest weight has to be a power of two, and bf16's range
/// leaves no room for weights above 1 (docs/semantics.md bounds |v| times keys by fp32's range).
template <class L>
constexpr float kSlack = is_16_bit(L::kFormat) ? 0.0f : 4.0f;
/// Weights are 2^kLift too large: keeps them, and products with the scales of blocks, out of fp16's subnormals.
template <class L>
constexpr float kLift = L::kFormat == Format::kBF16 ? 0.0f : 4.0f;

/// The last tile of a block and tiles across a boundary of some row's window: nothing but q.k and structure.
template <class L>
__device__ __forceinline__ void hide_by_structure(Scores<L>& s, const Row* rows, int key0, int end, int lane) {
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Row& row = rows[8 * n + lane % 4 * 2 + i % 2];
      const int key = key0 + lane / 4 + i / 2 * 8;
      if (key < row.begin || key >= min(row.end, end)) s[n][i] = TSR_NEG_INF;
    }
  }
}

/// Every option, by way of shared memory, so that the loop over a lane's elements need not be unrolled.
template <class L>
__device__ __forceinline__ void apply_options(Scores<L>& s, float* scratch, const Row* rows, int key0, int end,
                                              int lane) {
#pragma unroll
  for (int e = 0; e < 4 * L::kTiles; ++e) scratch[e * 32 + lane] = s[e / 4][e % 4];
#pragma unroll 1
  for (int e = 0; e < 4 * L::kTiles; ++e) {
    const Row& row = rows[8 * (e / 4) + lane % 4 * 2 + e % 2];
    const int key = key0 + lane / 4 + e % 4 / 2 * 8;
    float& score = scratch[e * 32 + lane];
    const bool sees = key >= row.begin && key < row.end && key < end;
    score = sees ? score_base2(row.options, score * row.factor, key) : TSR_NEG_INF;
  }
#pragma unroll
  for (int e = 0; e < 4 * L::kTiles; ++e) s[e / 4][e % 4] = scratch[e * 32 + lane];
}

/// V rows that a bulk copy left out become 0.
template <class L>
__device__ __forceinline__ void clear_rows(char* values, int first, int lane) {
  for (int row = first; row < L::kStageKeys; ++row) {
    for (int i = lane; i < L::kHeadBytes / 4; i += 32) reinterpret_cast<uint32_t*>(values + row * L::kStride)[i] = 0;
  }
  __syncwarp();
}

/// V rows that no query row sees, hidden by mask or bias, become 0: their bits must not reach the products. (What another
/// row of the tile sees stays.)
template <class L>
__device__ __forceinline__ void clear_hidden_values(const Scores<L>& s, char* values, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    bool seen = false;
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) {
      seen = seen || s[n][2 * half] != TSR_NEG_INF || s[n][2 * half + 1] != TSR_NEG_INF;
    }
    const uint32_t votes = __ballot_sync(~0u, seen) >> (lane & ~3);
    if ((votes & 15u) != 0) continue;
    uint32_t* const row = reinterpret_cast<uint32_t*>(values + (8 * half + lane / 4) * L::kStride);
    for (int i = lane % 4; i < L::kHeadBytes / 4; i += 4) row[i] = 0;
  }
  __syncwarp();
}

/// Moves the maximum if a score of the tile passes it by more than the slack.
template <class L>
__device__ __forceinline__ void follow_maximum(Running<L>& r, Accumulators<L>& out, const Scores<L>& s) {
  float largest[L::kTiles][2];
  bool passed = false;
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float x = fmaxf(s[n][c], s[n][c + 2]);
      largest[n][c] = x;
      passed = passed || x > r.maximum[n][c] + kSlack<L>;
    }
  }
  if (!__any_sync(~0u, passed)) return;
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float x = largest[n][c];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
      x = fmaxf(x, r.maximum[n][c]);
      const float factor = x == TSR_NEG_INF ? 1.0f : exp2_fast(r.maximum[n][c] - x);
      r.maximum[n][c] = x;
      r.sum[n][c] *= factor;
#pragma unroll
      for (int m = 0; m < L::kSteps; ++m) {
        out[n][m][c] *= factor;
        out[n][m][c + 2] *= factor;
      }
    }
  }
}

/// Weights of 16 keys, summed unrounded, then as operands.
template <class L>
__device__ __forceinline__ void weigh(Running<L>& r, Weights<L>& p, const Scores<L>& s) {
  using T = std::conditional_t<L::kFormat == Format::kBF16, __nv_bfloat16, __half>;
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
    float w[4], base[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) base[c] = r.maximum[n][c] == TSR_NEG_INF ? 0.0f : r.maximum[n][c] - kLift<L>;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i] = exp2_fast(s[n][i] - base[i % 2]);
      r.sum[n][i % 2] += w[i];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = pack_pair<T>(w[2 * half], w[2 * half + 1]);
      p.rounded[n][half] = transpose_8x8(pair);
      if constexpr (keeps_rest(L::kFormat)) {
        const float low = w[2 * half] - low_value<T>(pair), high = w[2 * half + 1] - high_value<T>(pair);
        p.rest[n][half] = transpose_8x8(pack_pair<T>(low, high));
      }
    }
  }
}

}  // namespace tsr::cuda::decode
