// From scores to weights: options and masks, the running maximum, 2^(score - maximum), and P as the operand of the second
// matrix product.
#pragma once

#include "decode_rows.cuh"
#include "decode_values.cuh"

namespace tsr::cuda::decode {

/// Scores of a warp's tile in accumulator layout: [16 keys][N tile]{key g, rows 2t and 2t + 1; key g + 8, the same}.
template <class L>
using Scores = float[L::kKeys / 16][L::kTiles][4];

/// State of the online softmax: rows 2t and 2t + 1 of each N tile. The maximum is in base 2, the sum this lane's share.
template <class L>
struct Running {
  float maximum[L::kTiles][2];
  float sum[L::kTiles][2];
};

/// The maximum moves only when a score passes it by this much, so the usual tile needs no exchange between lanes. bf16's
/// range leaves no room for weights above 1 (docs/semantics.md bounds |v| times keys by fp32's range).
template <class L>
constexpr float kSlack = L::kFormat == Format::kBF16 ? 0.0f : 4.0f;
/// Weights are 2^kLift too large: keeps products with the scales of blocks out of fp16's subnormals.
template <class L>
constexpr float kLift = L::kFormat == Format::kBF16 ? 0.0f : 4.0f;

/// The last tile of a block and tiles across a boundary of some row's window: nothing but q.k and structure.
template <class L>
__device__ __forceinline__ void hide_by_structure(Scores<L>& s, const Row* rows, int key0, int end, int lane) {
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const Row& row = rows[8 * n + lane % 4 * 2 + c];
      const int first = row.begin - key0, last = min(row.end, end) - key0;
#pragma unroll
      for (int j = 0; j < L::kKeys / 16; ++j) {
#pragma unroll
        for (int i = c; i < 4; i += 2) {
          const int key = 16 * j + lane / 4 + i / 2 * 8;
          if (key < first || key >= last) s[j][n][i] = TSR_NEG_INF;
        }
      }
    }
  }
}

/// Every option, by way of shared memory, so that the loop over a lane's elements need not be unrolled.
template <class L>
__device__ __forceinline__ void apply_options(Scores<L>& s, float* scratch, const Row* rows, int key0, int end,
                                              int lane) {
  constexpr int kGroups = L::kKeys / 16, kElements = kGroups * L::kTiles * 4;
#pragma unroll
  for (int e = 0; e < kElements; ++e) scratch[e * 32 + lane] = s[e / 4 / L::kTiles][e / 4 % L::kTiles][e % 4];
#pragma unroll 1
  for (int e = 0; e < kElements; ++e) {
    const Row& row = rows[8 * (e / 4 % L::kTiles) + lane % 4 * 2 + e % 2];
    const int key = key0 + e / 4 / L::kTiles * 16 + lane / 4 + e % 4 / 2 * 8;
    float& score = scratch[e * 32 + lane];
    const bool sees = key >= row.begin && key < row.end && key < end;
    score = sees ? score_base2(row.options, score * row.factor, key) : TSR_NEG_INF;
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e) s[e / 4 / L::kTiles][e / 4 % L::kTiles][e % 4] = scratch[e * 32 + lane];
}

/// V rows that no query row sees, hidden by mask or bias, become 0: their bits must not reach the products. (What another
/// row of the tile sees stays.)
template <class L>
__device__ __forceinline__ void clear_hidden_values(const Scores<L>& s, char* values, int lane) {
#pragma unroll
  for (int head = 0; head < L::kHeads; ++head) {
#pragma unroll
    for (int j = 0; j < L::kKeys / 16; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bool seen = false;
#pragma unroll
        for (int n = head * L::kTilesOfHead; n < (head + 1) * L::kTilesOfHead; ++n) {
          seen = seen || s[j][n][2 * half] != TSR_NEG_INF || s[j][n][2 * half + 1] != TSR_NEG_INF;
        }
        const uint32_t votes = __ballot_sync(~0u, seen) >> (lane & ~3);
        if ((votes & 15u) != 0) continue;
        char* const row = values + (16 * j + 8 * half + lane / 4) * L::kStride + head * L::kHeadBytes;
        for (int i = lane % 4; i < L::kHeadBytes / 4; i += 4) reinterpret_cast<uint32_t*>(row)[i] = 0;
      }
    }
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
      float x = TSR_NEG_INF;
#pragma unroll
      for (int j = 0; j < L::kKeys / 16; ++j) x = fmaxf(x, fmaxf(s[j][n][c], s[j][n][c + 2]));
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

/// Weights of 16 keys, summed unrounded, then as operands: keys along the depth, query row g.
template <class L>
__device__ __forceinline__ void weigh(Running<L>& r, uint32_t (&p)[L::kTiles][2], const float (&s)[L::kTiles][4]) {
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float maximum = r.maximum[n][i % 2];
      w[i] = exp2_fast(s[n][i] - (maximum == TSR_NEG_INF ? 0.0f : maximum - kLift<L>));
      r.sum[n][i % 2] += w[i];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t pair;
      if constexpr (L::kFormat == Format::kBF16) {
        pair = pack_pair<__nv_bfloat16>(w[2 * half], w[2 * half + 1]);
      } else {
        pair = pack_pair<__half>(w[2 * half], w[2 * half + 1]);
      }
      p[n][half] = transpose_8x8(pair);
    }
  }
}

}  // namespace tsr::cuda::decode
