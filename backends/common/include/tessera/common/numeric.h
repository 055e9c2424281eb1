// Exact conversions between fp32 and the storage types, one rounding each (nearest, ties to even), subnormals included.
// The scalars are `static`, not `inline`: each translation unit has its own copy, so that one compiled for a newer
// instruction set never becomes the copy that the linker keeps for all.
#pragma once

#include <cstdint>
#include <cstring>

#include "tessera/tessera.h"

namespace tsr {

/// Values of a q8_0 or q4_0 block, and the bytes one takes.
constexpr int64_t kBlock = 32;
constexpr int64_t kQ8Bytes = 34;
constexpr int64_t kQ4Bytes = 18;

/// Bits of a float, and back.
static inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
static inline float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// IEEE binary16 to fp32, exact. NaNs come out quiet, as the F16C instructions make them.
static inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) return bits_float(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return bits_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  return bits_float(sign | float_bits(static_cast<float>(mantissa) * 0x1p-24f));
}

/// fp32 to IEEE binary16. Too large becomes infinity.
static inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t x = bits & 0x7fffffffu;
  if (x > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((x >> 13) & 0x1ffu));
  if (x >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and up round to infinity
  if (x >= 0x38800000u) return static_cast<uint16_t>(sign | ((x - 0x38000000u + 0xfffu + ((x >> 13) & 1u)) >> 13));
  const uint32_t exponent = x >> 23;  // below 2^-14: count units of 2^-24
  if (exponent < 102) return static_cast<uint16_t>(sign);
  const uint32_t mantissa = (x & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 126 - exponent;
  const uint32_t half_down = (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1u);
  return static_cast<uint16_t>(sign | ((mantissa + half_down) >> shift));
}

/// bfloat16 to fp32, exact.
static inline float bf16_to_f32(uint16_t brain) { return bits_float(static_cast<uint32_t>(brain) << 16); }

/// fp32 to bfloat16.
static inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// OCP e4m3fn to fp32, exact. 0x7f and 0xff are NaN; there are no infinities.
static inline float f8_e4m3_to_f32(uint8_t f8) {
  const uint32_t sign = static_cast<uint32_t>(f8 & 0x80u) << 24;
  const uint32_t exponent = (f8 >> 3) & 15u;
  const uint32_t mantissa = f8 & 7u;
  if (exponent == 15 && mantissa == 7) return bits_float(sign | 0x7fc00000u);
  if (exponent != 0) return bits_float(sign | ((exponent + 120) << 23) | (mantissa << 20));
  return bits_float(sign | float_bits(static_cast<float>(mantissa) * 0x1p-9f));
}

/// fp32 to OCP e4m3fn. Too large, infinity included, becomes +-448; NaN stays NaN.
static inline uint8_t f32_to_f8_e4m3(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t x = bits & 0x7fffffffu;
  if (x > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (x >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448
  if (x >= 0x3c800000u) return static_cast<uint8_t>(sign | ((x - 0x3c000000u + 0x7ffffu + ((x >> 20) & 1u)) >> 20));
  const uint32_t exponent = x >> 23;  // below 2^-6: count units of 2^-9
  if (exponent < 117) return static_cast<uint8_t>(sign);
  const uint32_t mantissa = (x & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 141 - exponent;
  const uint32_t half_down = (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1u);
  return static_cast<uint8_t>(sign | ((mantissa + half_down) >> shift));
}

/// ggml's reference quantisers. `count` is a multiple of 32; `blocks` needs no alignment. A block with a NaN in it gets
/// a NaN scale (ggml leaves that undefined), so that the NaN shows.
void quantise_q8_0(const float* values, int64_t count, void* blocks);
void quantise_q4_0(const float* values, int64_t count, void* blocks);
void dequantise_q8_0(const void* blocks, int64_t count, float* values);
void dequantise_q4_0(const void* blocks, int64_t count, float* values);

/// A contiguous row of any of the types, to fp32. No alignment needed; block formats need a multiple of 32.
void load_row(tsr_dtype dtype, const void* row, int64_t count, float* values);
/// fp32 to a contiguous row of any of the types.
void store_row(tsr_dtype dtype, const float* values, int64_t count, void* row);

}  // namespace tsr
