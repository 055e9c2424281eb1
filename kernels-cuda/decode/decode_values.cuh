// V^T P^T over 16 keys: head dims on the rows of the matrix product, query rows on its columns, as in the scores. V enters
// exactly as stored. The scale of a block multiplies P: P x d x 2^-E in fp16, E a power of two that keeps d x 2^-E below 1
// and follows the largest scale seen as a softmax follows its maximum.
#pragma once

#include "decode_fragments.cuh"

namespace tsr::cuda::decode {

template <class L>
using Accumulators = float[L::kTiles][L::kSteps][4];

/// Whether what rounding takes off P counts too. Not for 16-bit values, which may be infinite: it may be 0 or negative.
TSR_HOST_DEVICE constexpr bool keeps_rest(Format f) { return !is_16_bit(f); }

/// P of 16 keys as operands: for each N tile keys {2t, 2t + 1} and {2t + 8, 2t + 9}, query row g; and what rounding took off.
template <class L>
struct Weights {
  uint32_t rounded[L::kTiles][2];
  uint32_t rest[L::kTiles][2];
};

/// The scales of a tile of values, times 2^-E, as halves in shared memory: pairs of keys side by side, then the blocks.
template <class L>
struct BlockScales {
  static constexpr int kBytes = is_blocked(L::kFormat) ? kTileKeys * (L::kDim / 32) * 2 : 4;  ///< of a warp
  char* at;

  __device__ __forceinline__ void put(int key, int block, uint32_t scale) const {
    *reinterpret_cast<uint16_t*>(at + (key / 2 * kBlocks + block) * 4 + key % 2 * 2) = static_cast<uint16_t>(scale);
  }
  /// Of keys {2t, 2t + 1} (half 0) or {2t + 8, 2t + 9}.
  __device__ __forceinline__ uint32_t get(int half, int t, int block) const {
    return word(at + ((4 * half + t) * kBlocks + block) * 4);
  }

 private:
  static constexpr int kBlocks = L::kDim / 32;
};

/// 2^-E, twice in a word; E by the exponent field of the largest scale seen.
template <class L>
struct ScaleRange {
  uint32_t field;
  uint32_t factor;

  __device__ __forceinline__ void set(uint32_t to) {
    field = to;
    factor = __half_as_ushort(__float2half_rn(inverse())) * 0x10001u;
  }
  /// 2^-E, E = field - 14.
  __device__ __forceinline__ float inverse() const { return __uint_as_float((127 + 14 - field) << 23); }
  __device__ __forceinline__ float power() const { return __uint_as_float((127 - 14 + field) << 23); }

  /// Before the tile of values is used: takes its scales into account and leaves them, times 2^-E, in `scales`.
  __device__ __forceinline__ void include(const char* values, BlockScales<L> scales, Accumulators<L>& out, int lane) {
    const int key = lane % 16;
    uint32_t each[L::kDim / 64], largest = 0;
#pragma unroll
    for (int i = 0; i < L::kDim / 64; ++i) {
      each[i] = half_word(values + key * L::kStride + (lane / 16 + 2 * i) * block_bytes(L::kFormat));
      largest = max(largest, each[i] & 0x7fffu);
    }
    const uint32_t next = __reduce_max_sync(~0u, largest) >> 10;
    if (next > field) {
      const float before = power();
      set(next);
      const float change = before * inverse();
#pragma unroll
      for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
        for (int m = 0; m < L::kSteps; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) out[n][m][i] *= change;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < L::kDim / 64; ++i) scales.put(key, lane / 16 + 2 * i, multiply_halves(each[i], factor));
    __syncwarp();
  }
};

template <class L, class T>
__device__ __forceinline__ void add_16_bit(Accumulators<L>& out, const char* values, const Weights<L>& p, int lane) {
  const uint32_t address = shared_address(values) + L::place(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16);
#pragma unroll
  for (int m = 0; m < L::kSteps; ++m) {
    uint32_t v[4];
    load_matrix_x4_transposed(v, L::onwards(address, m));
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) mma_16816<T>(out[n][m], v, p.rounded[n][0], p.rounded[n][1]);
  }
}

/// Word g of 32 dims, bytes {0, 1} for the first M tile, {2, 3} for the second: interleaved by pairs of keys.
__device__ __forceinline__ uint32_t interleave(uint32_t x, uint32_t y, int tile) {
  return __byte_perm(x, y, tile == 0 ? 0x5140 : 0x7362);
}

template <class L>
__device__ __forceinline__ void add_f8(Accumulators<L>& out, const char* values, const Weights<L>& p, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int block = 0; block < L::kDim / 32; ++block) {
    uint32_t x[4];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x[k] = word(values + L::place(2 * t + k % 2 + k / 2 * 8, block * 32 + 4 * g));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t u = interleave(x[0], x[1], i), v = interleave(x[2], x[3], i);
      const uint32_t a[4] = {e4m3_halves(u), e4m3_halves(u >> 16), e4m3_halves(v), e4m3_halves(v >> 16)};
#pragma unroll
      for (int n = 0; n < L::kTiles; ++n) {
        mma_16816<__half>(out[n][2 * block + i], a, p.rest[n][0], p.rest[n][1]);
        mma_16816<__half>(out[n][2 * block + i], a, p.rounded[n][0], p.rounded[n][1]);
      }
    }
  }
}

/// P x d x 2^-E; the latter of keys {2t, 2t + 1} and {2t + 8, 2t + 9}. Rounded once, which 16-bit output does anyway; kExact
/// keeps what that takes off, for fp32 output.
template <class L, bool kExact>
struct ScaledWeights {
  uint32_t rounded[L::kTiles][2];
  uint32_t rest[L::kTiles][2];

  __device__ __forceinline__ ScaledWeights(const Weights<L>& p, uint32_t scales, uint32_t scales_8) {
    const uint32_t d[2] = {scales, scales_8};
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t high = p.rounded[n][i], low = p.rest[n][i];
        if constexpr (kExact) {
          rounded[n][i] = multiply_halves(high, d[i]);
          const uint32_t lost = multiply_add_halves(high, d[i], rounded[n][i] ^ 0x80008000u);
          rest[n][i] = multiply_add_halves(low, d[i], lost);
        } else {
          rounded[n][i] = multiply_add_halves(high, d[i], multiply_halves(low, d[i]));
        }
      }
    }
  }

  __device__ __forceinline__ void add(float (&out)[4], const uint32_t (&values)[4], int n) const {
    mma_16816<__half>(out, values, rounded[n][0], rounded[n][1]);
    if constexpr (kExact) mma_16816<__half>(out, values, rest[n][0], rest[n][1]);
  }
};

template <class L, bool kExact>
__device__ __forceinline__ void add_q8(Accumulators<L>& out, const char* values, const Weights<L>& p,
                                       BlockScales<L> scales, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int pair = 0; pair < L::kDim / 64; ++pair) {
    uint32_t x[2][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const char* const at = values + (2 * t + k % 2 + k / 2 * 8) * L::kStride + pair * 2 * block_bytes(Format::kQ8);
      x[0][k] = word(at + 4 * g);
      x[1][k] = word(at + 36 + 4 * g);
      if (g == 0) x[0][k] = __byte_perm(x[0][k], word(at + 32), 0x3254);
    }
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const ScaledWeights<L, kExact> weights(p, scales.get(0, t, 2 * pair + odd), scales.get(1, t, 2 * pair + odd));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t u = interleave(x[odd][0], x[odd][1], i) ^ kInt8Bias;
        const uint32_t v = interleave(x[odd][2], x[odd][3], i) ^ kInt8Bias;
        const uint32_t a[4] = {int8_low(u), int8_high(u), int8_low(v), int8_high(v)};
#pragma unroll
        for (int n = 0; n < L::kTiles; ++n) weights.add(out[n][4 * pair + 2 * odd + i], a, n);
      }
    }
  }
}

template <class L, bool kExact>
__device__ __forceinline__ void add_q4(Accumulators<L>& out, const char* values, const Weights<L>& p,
                                       BlockScales<L> scales, int lane) {
  const int g = lane / 4, t = lane % 4;
  const uint32_t low_offset[4] = {kLowOffset, kLowOffset, kLowOffset, kLowOffset};
  const uint32_t high_offset[4] = {kHighOffset, kHighOffset, kHighOffset, kHighOffset};
#pragma unroll
  for (int block = 0; block < L::kDim / 32; ++block) {
    uint32_t x[4];  // bytes 2g and 2g + 1 of keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const char* const at = values + (2 * t + k % 2 + k / 2 * 8) * L::kStride + block * block_bytes(Format::kQ4);
      x[k] = half_word(at + 2 + 2 * g);
    }
    const ScaledWeights<L, kExact> weights(p, scales.get(0, t, block), scales.get(1, t, block));
    const uint32_t u = join_halves(x[0], x[1]), v = join_halves(x[2], x[3]);
    if constexpr (kExact) {
      const uint32_t low[4] = {low_nibbles_converted(u), low_nibbles_converted(u >> 8), low_nibbles_converted(v),
                               low_nibbles_converted(v >> 8)};
      const uint32_t high[4] = {high_nibbles_converted(u), high_nibbles_converted(u >> 8), high_nibbles_converted(v),
                                high_nibbles_converted(v >> 8)};
#pragma unroll
      for (int n = 0; n < L::kTiles; ++n) {
        weights.add(out[n][2 * block], low, n);
        weights.add(out[n][2 * block + 1], high, n);
      }
    } else {
      const uint32_t low[4] = {low_nibbles(u), low_nibbles(u >> 8), low_nibbles(v), low_nibbles(v >> 8)};
      const uint32_t high[4] = {high_nibbles(u), high_nibbles(u >> 8), high_nibbles(v), high_nibbles(v >> 8)};
#pragma unroll
      for (int n = 0; n < L::kTiles; ++n) {
        weights.add(out[n][2 * block], low, n);
        weights.add(out[n][2 * block + 1], high, n);
        weights.add(out[n][2 * block], low_offset, n);
        weights.add(out[n][2 * block + 1], high_offset, n);
      }
    }
  }
}

/// Whether sums are kept to fp32's precision: for fp32 output. Otherwise those of q4_0 are in units of 2^-24.
__device__ __forceinline__ bool exact_values(const Attention& a) { return a.out.type == Type::kF32; }

template <class L, bool kExact>
__device__ __forceinline__ void add_values(Accumulators<L>& out, const char* values, const Weights<L>& p,
                                           BlockScales<L> scales, int lane) {
  if constexpr (L::kFormat == Format::kF16) {
    add_16_bit<L, __half>(out, values, p, lane);
  } else if constexpr (L::kFormat == Format::kBF16) {
    add_16_bit<L, __nv_bfloat16>(out, values, p, lane);
  } else if constexpr (L::kFormat == Format::kF8) {
    add_f8<L>(out, values, p, lane);
  } else if constexpr (L::kFormat == Format::kQ8) {
    add_q8<L, kExact>(out, values, p, scales, lane);
  } else {
    add_q4<L, kExact>(out, values, p, scales, lane);
  }
}

}  // namespace tsr::cuda::decode
