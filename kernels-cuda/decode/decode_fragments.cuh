// Which head dims the elements of matrix fragments stand for. The order of dims along the depth of K q^T and along the rows
// of V^T P^T is free as long as both operands, or accumulator and output, agree, so lanes take whole words as they lie in
// memory. g = lane / 4 and t = lane % 4 throughout, as in the PTX ISA's drawings of mma.m16n8k16.
//
// Blocked formats: a block's scale comes first, so the values of even blocks of a row start in the middle of a word. There
// word 0 is glued from the second half of the block's first word and the first half of the next block's, which holds the
// block's last two bytes. Odd blocks start at a word.
#pragma once

#include <type_traits>

#include "decode_instructions.cuh"
#include "decode_layout.cuh"

namespace tsr::cuda::decode {

/// A place in the query operand of the matrix products: step along the depth, lane's t, and which of its four elements.
struct DepthPlace {
  int step;
  int t;
  int element;
};

template <Format kFormat>
__device__ __forceinline__ DepthPlace depth_place(int dim) {
  const int block = dim / 32, e = dim % 32;
  if constexpr (is_16_bit(kFormat)) {
    return {dim / 16, dim % 8 / 2, dim % 16 / 8 * 2 + dim % 2};
  } else if constexpr (kFormat == Format::kF8) {
    return {dim / 16, dim % 16 / 4, dim % 4};
  } else if constexpr (kFormat == Format::kQ8) {
    const int byte = block % 2 != 0 ? e : (e + 2) % 32;  // counted from word 0
    return {2 * block + byte / 16, byte / 4 % 4, byte % 4};
  } else {  // step 0 has the low nibbles: bytes 0 and 2 of a word, then 1 and 3; step 1 the high ones
    const int byte = block % 2 != 0 ? e % 16 : (e + 2) % 16;
    return {2 * block + e / 16, byte / 4, byte % 2 * 2 + byte % 4 / 2};
  }
}

/// Head dim of accumulator m, rows g (half 0) and g + 8 (half 1).
template <Format kFormat>
__device__ __forceinline__ int output_dim(int m, int g, int half) {
  const int block = m / 2;
  if constexpr (is_16_bit(kFormat)) {
    return 16 * m + g + 8 * half;
  } else if constexpr (kFormat == Format::kQ4) {
    return 32 * block + 16 * (m % 2) + 2 * g + half;
  } else {
    const int byte = 4 * g + m % 2 * 2 + half;
    if (kFormat == Format::kF8 || block % 2 != 0) return 32 * block + byte;
    return 32 * block + (byte + 30) % 32;
  }
}

/// The query operand in shared memory: for each N tile and step, 4 elements of each lane.
template <class L>
__device__ __forceinline__ uint16_t* query_element(char* queries, int row, int dim) {
  const DepthPlace p = depth_place<L::kFormat>(dim);
  const int lane = row % 8 * 4 + p.t;
  return reinterpret_cast<uint16_t*>(queries) + ((row / 8 * L::kSteps + p.step) * 32 + lane) * 4 + p.element;
}

__device__ __forceinline__ uint32_t word(const char* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ __forceinline__ uint32_t half_word(const char* p) { return *reinterpret_cast<const uint16_t*>(p); }
template <class T>
__device__ __forceinline__ float low_value(uint32_t x) {
  if constexpr (std::is_same_v<T, __half>) return __half2float(__ushort_as_half(static_cast<uint16_t>(x & 0xffff)));
  return __uint_as_float(x << 16);
}
template <class T>
__device__ __forceinline__ float high_value(uint32_t x) {
  if constexpr (std::is_same_v<T, __half>) return __half2float(__ushort_as_half(static_cast<uint16_t>(x >> 16)));
  return __uint_as_float(x & 0xffff0000u);
}
/// Halves {low of x, low of y}.
__device__ __forceinline__ uint32_t join_halves(uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x5410); }

// int8 as fp16: byte u = n + 128 under the exponent of 1024 is 1024 + u, minus 1152 is n, exactly.
__device__ __forceinline__ uint32_t int8_halves(uint32_t biased, int first) {
  return subtract_halves(__byte_perm(biased, 0x64646464u, first == 0 ? 0x4140 : 0x4342), 0x64806480u);
}
__device__ __forceinline__ uint32_t int8_low(uint32_t x) { return int8_halves(x, 0); }
__device__ __forceinline__ uint32_t int8_high(uint32_t x) { return int8_halves(x, 2); }
constexpr uint32_t kInt8Bias = 0x80808080u;

// Nibbles as fp16: as they are they mean n x 2^-24 (subnormal, exact), high ones 16 n x 2^-24; their offset of 8 comes in as a
// constant operand. For values alone, see below.
constexpr float kNibbleUnit = 16777216.0f;
constexpr uint32_t kLowOffset = 0x80088008u;   // -8 x 2^-24
constexpr uint32_t kHighOffset = 0x80808080u;  // -8 x 16 x 2^-24
__device__ __forceinline__ uint32_t low_nibbles(uint32_t x) { return x & 0x000f000fu; }
__device__ __forceinline__ uint32_t high_nibbles(uint32_t x) { return x & 0x00f000f0u; }

// The same converted, n - 8 and 16 (n - 8): slower, but the matrix unit aligns subnormal products by their exponent field, which
// costs sums about six of their bits.
__device__ __forceinline__ uint32_t low_nibbles_converted(uint32_t x) {
  return subtract_halves(low_nibbles(x) | 0x64006400u, 0x64086408u);
}
__device__ __forceinline__ uint32_t high_nibbles_converted(uint32_t x) {
  return subtract_halves(high_nibbles(x) | 0x64006400u, 0x64806480u);
}

}  // namespace tsr::cuda::decode
