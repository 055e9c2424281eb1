// V^T P^T over 16 keys: head dims on the rows of the matrix product, query rows on its columns, as in the scores. V enters
// exactly as stored. The scale of a block multiplies P: P x d x 2^-E in fp16, E a power of two that keeps d x 2^-E below 1
// and follows the largest scale seen as a softmax follows its maximum.
#pragma once

#include "decode_fragments.cuh"

namespace tsr::cuda::decode {

template <class L>
using Accumulators = float[L::kTiles][L::kSteps][4];

/// 2^-E for each head, twice in a word; E by the exponent field of the largest scale seen.
template <class L>
struct ScaleRange {
  uint32_t field[L::kHeads];
  uint32_t factor[L::kHeads];

  __device__ __forceinline__ void set(int head, uint32_t to) {
    field[head] = to;
    const uint32_t half = __half_as_ushort(__float2half_rn(inverse(head)));
    factor[head] = half * 0x10001u;
  }
  /// 2^-E, E = field - 14.
  __device__ __forceinline__ float inverse(int head) const { return __uint_as_float((127 + 14 - field[head]) << 23); }
  __device__ __forceinline__ float power(int head) const { return __uint_as_float((127 - 14 + field[head]) << 23); }

  /// Before the tile of values is used.
  __device__ __forceinline__ void include(const char* values, Accumulators<L>& out, int lane) {
    constexpr int kBlocks = L::kDim / 32;
#pragma unroll
    for (int head = 0; head < L::kHeads; ++head) {
      uint32_t largest = 0;
#pragma unroll
      for (int i = 0; i < L::kKeys * kBlocks / 32; ++i) {
        const int key = lane % L::kKeys, block = lane / L::kKeys + i * (32 / L::kKeys);
        const char* const at = values + key * L::kStride + head * L::kHeadBytes + block * block_bytes(L::kFormat);
        largest = max(largest, half_word(at) & 0x7fffu);
      }
      const uint32_t next = __reduce_max_sync(~0u, largest) >> 10;
      if (next <= field[head]) continue;
      const float before = power(head);
      set(head, next);
      const float factor = before * inverse(head);
#pragma unroll
      for (int n = head * L::kTilesOfHead; n < (head + 1) * L::kTilesOfHead; ++n) {
#pragma unroll
        for (int m = 0; m < L::kSteps; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) out[n][m][i] *= factor;
        }
      }
    }
  }
};

template <class L, class T>
__device__ __forceinline__ void add_16_bit(Accumulators<L>& out, const char* values, const uint32_t (&p)[L::kTiles][2],
                                           int lane) {
  const uint32_t address = shared_address(values) + (lane % 8 + lane / 16 * 8) * L::kStride + lane / 8 % 2 * 16;
#pragma unroll
  for (int m = 0; m < L::kSteps; ++m) {
    uint32_t v[4];
    load_matrix_x4_transposed(v, address + m * 32);
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) mma_16816<T>(out[n][m], v, p[n][0], p[n][1]);
  }
}

/// Word g of 32 dims, bytes {0, 1} for the first M tile, {2, 3} for the second: interleaved by pairs of keys.
__device__ __forceinline__ uint32_t interleave(uint32_t x, uint32_t y, int tile) {
  return __byte_perm(x, y, tile == 0 ? 0x5140 : 0x7362);
}

template <class L>
__device__ __forceinline__ void add_f8(Accumulators<L>& out, const char* values, const uint32_t (&p)[L::kTiles][2],
                                       int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int block = 0; block < L::kDim / 32; ++block) {
    uint32_t x[4];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x[k] = word(values + (2 * t + k % 2 + k / 2 * 8) * L::kStride + block * 32 + 4 * g);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t u = interleave(x[0], x[1], i), v = interleave(x[2], x[3], i);
      const uint32_t a[4] = {e4m3_halves(u), e4m3_halves(u >> 16), e4m3_halves(v), e4m3_halves(v >> 16)};
#pragma unroll
      for (int n = 0; n < L::kTiles; ++n) mma_16816<__half>(out[n][2 * block + i], a, p[n][0], p[n][1]);
    }
  }
}

/// P x d x 2^-E of the tiles of one head; scales of keys {2t, 2t + 1} and {2t + 8, 2t + 9}.
template <class L>
__device__ __forceinline__ void scale_weights(uint32_t (&to)[L::kTilesOfHead][2], const uint32_t (&p)[L::kTiles][2],
                                              int head, uint32_t scales, uint32_t scales_8, uint32_t factor) {
  scales = multiply_halves(scales, factor);
  scales_8 = multiply_halves(scales_8, factor);
#pragma unroll
  for (int i = 0; i < L::kTilesOfHead; ++i) {
    to[i][0] = multiply_halves(p[head * L::kTilesOfHead + i][0], scales);
    to[i][1] = multiply_halves(p[head * L::kTilesOfHead + i][1], scales_8);
  }
}

template <class L>
__device__ __forceinline__ void add_q8(Accumulators<L>& out, const char* values, const uint32_t (&p)[L::kTiles][2],
                                       const ScaleRange<L>& range, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int head = 0; head < L::kHeads; ++head) {
#pragma unroll
    for (int pair = 0; pair < L::kDim / 64; ++pair) {
      uint32_t first[4], middle[4], x[2][4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const char* const at = values + (2 * t + k % 2 + k / 2 * 8) * L::kStride + head * L::kHeadBytes +
                               pair * 2 * block_bytes(Format::kQ8);
        first[k] = word(at);
        middle[k] = word(at + 32);
        x[0][k] = word(at + 4 * g);
        x[1][k] = word(at + 36 + 4 * g);
        if (g == 0) x[0][k] = __byte_perm(first[k], middle[k], 0x3254);
      }
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const uint32_t (&d)[4] = odd != 0 ? middle : first;
        const int sel = odd != 0 ? 0x7632 : 0x5410;
        uint32_t weights[L::kTilesOfHead][2];
        scale_weights<L>(weights, p, head, __byte_perm(d[0], d[1], sel), __byte_perm(d[2], d[3], sel),
                         range.factor[head]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t u = interleave(x[odd][0], x[odd][1], i) ^ kInt8Bias;
          const uint32_t v = interleave(x[odd][2], x[odd][3], i) ^ kInt8Bias;
          const uint32_t a[4] = {int8_low(u), int8_high(u), int8_low(v), int8_high(v)};
#pragma unroll
          for (int n = 0; n < L::kTilesOfHead; ++n) {
            mma_16816<__half>(out[head * L::kTilesOfHead + n][4 * pair + 2 * odd + i], a, weights[n][0], weights[n][1]);
          }
        }
      }
    }
  }
}

template <class L>
__device__ __forceinline__ void add_q4(Accumulators<L>& out, const char* values, const uint32_t (&p)[L::kTiles][2],
                                       const ScaleRange<L>& range, int lane) {
  const int g = lane / 4, t = lane % 4;
  const uint32_t low_offset[4] = {kLowOffset, kLowOffset, kLowOffset, kLowOffset};
  const uint32_t high_offset[4] = {kHighOffset, kHighOffset, kHighOffset, kHighOffset};
#pragma unroll
  for (int head = 0; head < L::kHeads; ++head) {
#pragma unroll
    for (int block = 0; block < L::kDim / 32; ++block) {
      uint32_t d[4], x[4];  // bytes 2g and 2g + 1 of keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const char* const at =
            values + (2 * t + k % 2 + k / 2 * 8) * L::kStride + head * L::kHeadBytes + block * block_bytes(Format::kQ4);
        d[k] = half_word(at);
        x[k] = half_word(at + 2 + 2 * g);
      }
      uint32_t weights[L::kTilesOfHead][2];
      scale_weights<L>(weights, p, head, join_halves(d[0], d[1]), join_halves(d[2], d[3]), range.factor[head]);
      const uint32_t u = join_halves(x[0], x[1]), v = join_halves(x[2], x[3]);
      const uint32_t low[4] = {low_nibbles(u), low_nibbles(u >> 8), low_nibbles(v), low_nibbles(v >> 8)};
      const uint32_t high[4] = {high_nibbles(u), high_nibbles(u >> 8), high_nibbles(v), high_nibbles(v >> 8)};
#pragma unroll
      for (int i = 0; i < L::kTilesOfHead; ++i) {
        const int n = head * L::kTilesOfHead + i;
        mma_16816<__half>(out[n][2 * block], low, weights[i][0], weights[i][1]);
        mma_16816<__half>(out[n][2 * block + 1], high, weights[i][0], weights[i][1]);
        mma_16816<__half>(out[n][2 * block], low_offset, weights[i][0], weights[i][1]);
        mma_16816<__half>(out[n][2 * block + 1], high_offset, weights[i][0], weights[i][1]);
      }
    }
  }
}

/// p: for each N tile the operand of keys {2t, 2t + 1} and {2t + 8, 2t + 9}, query row g.
template <class L>
__device__ __forceinline__ void add_values(Accumulators<L>& out, const char* values, const uint32_t (&p)[L::kTiles][2],
                                           const ScaleRange<L>& range, int lane) {
  if constexpr (L::kFormat == Format::kF16) {
    add_16_bit<L, __half>(out, values, p, lane);
  } else if constexpr (L::kFormat == Format::kBF16) {
    add_16_bit<L, __nv_bfloat16>(out, values, p, lane);
  } else if constexpr (L::kFormat == Format::kF8) {
    add_f8<L>(out, values, p, lane);
  } else if constexpr (L::kFormat == Format::kQ8) {
    add_q8<L>(out, values, p, range, lane);
  } else {
    add_q4<L>(out, values, p, range, lane);
  }
}

}  // namespace tsr::cuda::decode
