// Scores of 16 keys: K q^T, keys on the rows of the matrix product (g and g + 8 of a lane), query rows on its columns (2t and
// 2t + 1 of each N tile). K enters exactly as stored; the scales of blocks multiply the fp32 sums over their 32 dims. No short
// cuts here: nibbles whose 8 is taken off afterwards cancel, and subnormal ones cost sums six bits (decode_fragments.cuh);
// either takes lse past its bound, where one key outweighs all others.
#pragma once

#include "decode_fragments.cuh"

namespace tsr::cuda::decode {

/// A warp's queries: in registers while they are few, else read from shared memory at each use.
template <class L>
class Queries {
 public:
  __device__ __forceinline__ void load(const char* queries, int lane) {
    table_ = reinterpret_cast<const uint2*>(queries) + lane;
    if constexpr (kInRegisters) {
#pragma unroll
      for (int i = 0; i < L::kTiles * L::kSteps; ++i) held_[i] = table_[i * 32];
    }
  }
  __device__ __forceinline__ uint2 get(int tile, int step) const {
    if constexpr (kInRegisters) {
      return held_[tile * L::kSteps + step];
    } else {
      return table_[(tile * L::kSteps + step) * 32];
    }
  }
  static constexpr int kHeld = L::kTiles * L::kSteps;
 __device__ __forceinline__ uint2 (&held()) [kHeld] { return held_; }

 private :
     /// (q4_0's products need more registers, and a shared ring some; four tiles hold as many sums.)
     static constexpr bool kInRegisters = L::kDim <=
                                          (L::kTiles == 4 || (L::kFormat == Format::kQ4 && L::kTeam > 1) ? 64 : 128);
  const uint2* table_;
  uint2 held_[kInRegisters ? L::kTiles * L::kSteps : 1];
};

template <class L, class T>
__device__ __forceinline__ void scores_16_bit(float (&s)[L::kTiles][4], const char* keys, const Queries<L>& queries,
                                              int lane) {
  const uint32_t address = shared_address(keys) + L::place(lane % 16, lane / 16 * 16);
  constexpr bool kTwoChains = L::kTiles == 1;  // of sums: two tiles are two chains already
  float odd[L::kTiles][4] = {};
#pragma unroll
  for (int step = 0; step < L::kSteps; ++step) {
    uint32_t k[4];
    load_matrix_x4(k, L::onwards(address, step));
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) {
      const uint2 q = queries.get(n, step);
      mma_16816<T>(kTwoChains && step % 2 != 0 ? odd[n] : s[n], k, q.x, q.y);
    }
  }
  if constexpr (kTwoChains) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[0][i] += odd[0][i];
  }
}

template <class L>
__device__ __forceinline__ void scores_f8(float (&s)[L::kTiles][4], const char* keys, const Queries<L>& queries,
                                          int lane) {
  const char* const row = keys + lane % 4 * 4;
  constexpr bool kTwoChains = L::kTiles == 1;
  float odd[L::kTiles][4] = {};
#pragma unroll
  for (int step = 0; step < L::kSteps; ++step) {
    const char* const at = row + L::place(lane / 4, step * 16);
    const uint32_t u = word(at), v = word(at + 8 * L::kStride);
    const uint32_t k[4] = {e4m3_halves(u), e4m3_halves(v), e4m3_halves(u >> 16), e4m3_halves(v >> 16)};
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) {
      const uint2 q = queries.get(n, step);
      mma_16816<__half>(kTwoChains && step % 2 != 0 ? odd[n] : s[n], k, q.x, q.y);
    }
  }
  if constexpr (kTwoChains) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[0][i] += odd[0][i];
  }
}

/// One block of 32 dims. x: words t (and t + 4 for q8_0) of keys g and g + 8.
template <class L>
__device__ __forceinline__ void add_block(float (&s)[L::kTiles][4], const uint32_t (&x)[2][2], float scale_g,
                                          float scale_g8, int block, const Queries<L>& queries) {
  uint32_t a[2][4];
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    if constexpr (L::kFormat == Format::kQ8) {
      const uint32_t u = x[0][step] ^ kInt8Bias, v = x[1][step] ^ kInt8Bias;
      a[step][0] = int8_low(u), a[step][1] = int8_low(v), a[step][2] = int8_high(u), a[step][3] = int8_high(v);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t u = i < 2 ? x[i][0] : x[i - 2][0] >> 8;
        a[step][i] = step == 0 ? low_nibbles_converted(u) : high_nibbles_converted(u);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
    float c[4] = {};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint2 q = queries.get(n, 2 * block + step);
      mma_16816<__half>(c, a[step], q.x, q.y);
    }
    s[n][0] = fmaf(c[0], scale_g, s[n][0]);
    s[n][1] = fmaf(c[1], scale_g, s[n][1]);
    s[n][2] = fmaf(c[2], scale_g8, s[n][2]);
    s[n][3] = fmaf(c[3], scale_g8, s[n][3]);
  }
}

template <class L>
__device__ __forceinline__ void scores_blocked(float (&s)[L::kTiles][4], const char* keys, const Queries<L>& queries,
                                               int lane) {
  constexpr int kWords = L::kFormat == Format::kQ8 ? 8 : 4;  // of a block's values
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int pair = 0; pair < L::kDim / 64; ++pair) {
    uint32_t first[2], middle[2];  // the words that hold the scales, of keys g and g + 8
    uint32_t even[2][2], odd[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const char* const at = keys + (g + 8 * r) * L::kStride + pair * 2 * block_bytes(L::kFormat);
      first[r] = word(at);
      middle[r] = word(at + 4 * kWords);
      even[r][0] = word(at + 4 * t);
      odd[r][0] = word(at + 4 * (kWords + 1 + t));
      if constexpr (L::kFormat == Format::kQ8) {
        even[r][1] = word(at + 4 * (t + 4));
        odd[r][1] = word(at + 4 * (kWords + 5 + t));
      }
      if (t == 0) even[r][0] = __byte_perm(first[r], middle[r], 0x3254);
    }
    add_block<L>(s, even, low_value<__half>(first[0]), low_value<__half>(first[1]), 2 * pair, queries);
    add_block<L>(s, odd, high_value<__half>(middle[0]), high_value<__half>(middle[1]), 2 * pair + 1, queries);
  }
}

/// s: for each N tile {key g, rows 2t and 2t + 1; key g + 8, the same}, in the format's unit.
template <class L>
__device__ __forceinline__ void score_keys(float (&s)[L::kTiles][4], const char* keys, const Queries<L>& queries,
                                           int lane) {
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
  if constexpr (L::kFormat == Format::kF16) {
    scores_16_bit<L, __half>(s, keys, queries, lane);
  } else if constexpr (L::kFormat == Format::kBF16) {
    scores_16_bit<L, __nv_bfloat16>(s, keys, queries, lane);
  } else if constexpr (L::kFormat == Format::kF8) {
    scores_f8<L>(s, keys, queries, lane);
  } else {
    scores_blocked<L>(s, keys, queries, lane);
  }
}

}  // namespace tsr::cuda::decode
