// The storage types, written from their definitions with ordinary arithmetic and on purpose apart from the back ends' own
// conversions (tessera/common/numeric.h), so that a mistake there shows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "reach.h"
#include "tessera/tessera.h"

namespace fuzz {

inline bool is_block(tsr_dtype t) { return t == TSR_Q8_0 || t == TSR_Q4_0; }

/// A binary floating-point type with gradual underflow: the exponent of its smallest normal number, its bits of fraction,
/// its largest finite value.
struct Format {
  int least_exponent, fraction, exponent_bits;
  double largest;
};
inline Format format_of(tsr_dtype t) {
  if (t == TSR_F16) return {-14, 10, 5, 65504};
  if (t == TSR_BF16) return {-126, 7, 8, 0x1.fep127};
  if (t == TSR_F8_E4M3) return {-6, 3, 4, 448};
  return {-126, 23, 8, 0x1.fffffep127};
}

/// The value of a bit pattern of f16, bf16 or f8_e4m3.
inline double decode_bits(tsr_dtype t, uint32_t bits) {
  const Format f = format_of(t);
  const uint32_t most = (1u << f.exponent_bits) - 1;
  const uint32_t exponent = (bits >> f.fraction) & most, fraction = bits & ((1u << f.fraction) - 1);
  const double sign = (bits >> (f.fraction + f.exponent_bits)) & 1u ? -1 : 1;
  if (t == TSR_F8_E4M3) {
    if (exponent == most && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == most) {
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, f.least_exponent - f.fraction);
  return sign *
         std::ldexp((1u << f.fraction) + fraction, static_cast<int>(exponent) - 1 + f.least_exponent - f.fraction);
}

/// The bit pattern of the number of f16, bf16 or f8_e4m3 next to `x` towards zero: inputs needn't be rounded, they need to be
/// numbers of their type.
inline uint32_t encode_bits(tsr_dtype t, double x) {
  const Format f = format_of(t);
  const uint32_t sign = std::signbit(x) ? 1u << (f.fraction + f.exponent_bits) : 0;
  const double size = std::fmin(std::fabs(x), f.largest);
  if (size < std::ldexp(1, f.least_exponent))
    return sign | static_cast<uint32_t>(std::ldexp(size, f.fraction - f.least_exponent));
  const int exponent = std::ilogb(size);
  const auto whole = static_cast<uint32_t>(std::ldexp(size, f.fraction - exponent));
  return sign | static_cast<uint32_t>(exponent - f.least_exponent + 1) << f.fraction | (whole - (1u << f.fraction));
}

/// `x` rounded to f16 or bf16, to nearest, ties to even.
inline double rounded(tsr_dtype t, double x) {
  if (t == TSR_F32) return static_cast<float>(x);
  if (!std::isfinite(x) || x == 0) return x;
  const Format f = format_of(t);
  const int exponent = std::ilogb(x) > f.least_exponent ? std::ilogb(x) : f.least_exponent;
  const double unit = std::ldexp(1, exponent - f.fraction), r = std::nearbyint(x / unit) * unit;
  return std::fabs(r) > f.largest ? std::copysign(std::numeric_limits<double>::infinity(), x) : r;
}

/// Most that rounding a number of this size to a type may cost.
inline double half_unit(tsr_dtype t, double size) {
  if (t == TSR_F32) return size * 0x1p-24 + 0x1p-149;
  const Format f = format_of(t);
  const int exponent = size > 0 ? std::max(std::ilogb(size), f.least_exponent) : f.least_exponent;
  return std::ldexp(1, exponent - f.fraction - 1);
}

/// Every value of f16, bf16 or f8_e4m3, by its bits.
inline const std::vector<float>& values_of(tsr_dtype t) {
  const auto all = [](tsr_dtype type) {
    std::vector<float> values(type == TSR_F8_E4M3 ? 256 : 65536);
    for (size_t i = 0; i < values.size(); i++)
      values[i] = static_cast<float>(decode_bits(type, static_cast<uint32_t>(i)));
    return values;
  };
  static const std::vector<float> f16 = all(TSR_F16), bf16 = all(TSR_BF16), f8 = all(TSR_F8_E4M3);
  return t == TSR_F16 ? f16 : t == TSR_BF16 ? bf16 : f8;
}

/// A contiguous row of a type, as numbers. fp32 holds each of them exactly.
inline void decode_row(tsr_dtype t, const uint8_t* from, int64_t count, float* to) {
  if (t == TSR_F32) {
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
  } else if (t == TSR_F16 || t == TSR_BF16) {
    const float* const values = values_of(t).data();
    for (int64_t i = 0; i < count; i++) to[i] = values[from[2 * i] | from[2 * i + 1] << 8];
  } else if (t == TSR_F8_E4M3) {
    const float* const values = values_of(t).data();
    for (int64_t i = 0; i < count; i++) to[i] = values[from[i]];
  } else if (is_block(t)) {
    for (int64_t block = 0; block < count / 32; block++) {
      const uint8_t* at = from + bytes_of(t, 32) * block;
      const double d = decode_bits(TSR_F16, static_cast<uint32_t>(at[0] | at[1] << 8));
      for (int i = 0; i < 32; i++) {
        const int q = t == TSR_Q8_0 ? static_cast<int8_t>(at[2 + i])
                                    : static_cast<int>(i < 16 ? at[2 + i] & 15 : at[2 + i - 16] >> 4) - 8;
        to[32 * block + i] = static_cast<float>(d * q);
      }
    }
  } else {
    for (int64_t i = 0; i < count; i++) to[i] = from[i];
  }
}

}  // namespace fuzz
