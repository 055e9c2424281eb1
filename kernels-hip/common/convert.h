// Stored elements to fp32 and back, one rounding each, at any byte alignment.
#pragma once

#include "device.h"
#include "tessera/common/device_problem.h"

namespace tsr::hip {

using namespace tsr::device;

TSR_DEVICE bool aligned(const void* p, uintptr_t bytes) { return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0; }

/// A little-endian word at any address.
TSR_DEVICE uint32_t load_u16(const char* p) {
  if (aligned(p, 2)) return *reinterpret_cast<const uint16_t*>(p);
  const auto* b = reinterpret_cast<const uint8_t*>(p);
  return b[0] | static_cast<uint32_t>(b[1]) << 8;
}
TSR_DEVICE uint32_t load_u32(const char* p) {
  if (aligned(p, 4)) return *reinterpret_cast<const uint32_t*>(p);
  return load_u16(p) | load_u16(p + 2) << 16;
}
TSR_DEVICE void store_u16(char* p, uint32_t value) {
  if (aligned(p, 2)) {
    *reinterpret_cast<uint16_t*>(p) = static_cast<uint16_t>(value);
  } else {
    p[0] = static_cast<char>(value);
    p[1] = static_cast<char>(value >> 8);
  }
}
TSR_DEVICE void store_u32(char* p, uint32_t value) {
  if (aligned(p, 4)) {
    *reinterpret_cast<uint32_t*>(p) = value;
  } else {
    store_u16(p, value);
    store_u16(p + 2, value >> 16);
  }
}

TSR_DEVICE float f16_value(uint32_t bits) { return static_cast<float>(bits_of<_Float16>(static_cast<uint16_t>(bits))); }
TSR_DEVICE uint32_t f16_bits(float x) { return bits_of<uint16_t>(static_cast<_Float16>(x)); }
TSR_DEVICE float bf16_value(uint32_t bits) { return bits_of<float>(bits << 16); }
/// Nearest, ties to even; NaN stays NaN.
TSR_DEVICE uint32_t bf16_bits(float x) {
  const auto bits = bits_of<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
/// e4m3fn. Its fields, moved into those of an fp16, give the value over 2^8 (bias 7 against 15), subnormals too.
TSR_DEVICE float f8_value(uint32_t bits) {
  if ((bits & 0x7fu) == 0x7fu) return __builtin_nanf("");
  return f16_value((bits & 0x80u) << 8 | (bits & 0x7fu) << 7) * 256.0f;
}
/// Nearest, ties to even; what is too large, infinity included, becomes 448.
TSR_DEVICE uint32_t f8_bits(float x) {
  const auto bits = bits_of<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7fu;
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;
  if (magnitude >= 0x3c800000u) return sign | (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  // Subnormal: units of 2^-9. Adding 2^14 x 1.5 leaves them in the low bits of the sum, rounded as the addition does.
  return sign | (bits_of<uint32_t>(bits_of<float>(magnitude) + 24576.0f) & 0xfu);
}

/// Eight elements of a row from element i on, i a multiple of 8.
TSR_DEVICE void load_8(Type type, const char* row, int i, float (&to)[8]) {
  switch (type) {
    case Type::kF32: {
      const char* p = row + i * 4;
      if (aligned(p, 16)) {
        const auto low = *reinterpret_cast<const float4v*>(p), high = *reinterpret_cast<const float4v*>(p + 16);
        TSR_UNROLL for (int e = 0; e < 4; ++e) to[e] = low[e], to[e + 4] = high[e];
      } else {
        TSR_UNROLL for (int e = 0; e < 8; ++e) to[e] = bits_of<float>(load_u32(p + e * 4));
      }
      break;
    }
    case Type::kF16:
    case Type::kBF16: {
      const char* p = row + i * 2;
      word4v words;
      if (aligned(p, 16)) {
        words = *reinterpret_cast<const word4v*>(p);
      } else {
        TSR_UNROLL for (int w = 0; w < 4; ++w) words[w] = load_u32(p + w * 4);
      }
      TSR_UNROLL for (int e = 0; e < 8; ++e) {
        const uint32_t bits = words[e / 2] >> (e % 2 * 16) & 0xffffu;
        to[e] = type == Type::kF16 ? f16_value(bits) : bf16_value(bits);
      }
      break;
    }
    case Type::kF8:
      TSR_UNROLL for (int e = 0; e < 8; ++e) to[e] = f8_value(static_cast<uint8_t>(row[i + e]));
      break;
    case Type::kQ8: {
      const char* block = row + i / 32 * 34;
      const float d = f16_value(load_u16(block));
      const char* q = block + 2 + i % 32;
      TSR_UNROLL for (int e = 0; e < 8; ++e) to[e] = d * static_cast<float>(static_cast<int8_t>(q[e]));
      break;
    }
    case Type::kQ4: {
      const char* block = row + i / 32 * 18;
      const float d = f16_value(load_u16(block));
      const char* q = block + 2 + i % 16;  // elements 0..15 are the low nibbles, 16..31 the high ones
      const int shift = i % 32 < 16 ? 0 : 4;
      TSR_UNROLL for (int e = 0; e < 8; ++e) {
        to[e] = d * static_cast<float>((static_cast<uint8_t>(q[e]) >> shift & 15) - 8);
      }
      break;
    }
    default:
      break;
  }
}

/// One element of an f32, f16 or bf16 row.
TSR_DEVICE float load_1(Type type, const char* row, int64_t i) {
  if (type == Type::kF32) return bits_of<float>(load_u32(row + i * 4));
  const uint32_t bits = load_u16(row + i * 2);
  return type == Type::kF16 ? f16_value(bits) : bf16_value(bits);
}
TSR_DEVICE void store_1(Type type, char* row, int64_t i, float value) {
  if (type == Type::kF32) {
    store_u32(row + i * 4, bits_of<uint32_t>(value));
  } else {
    store_u16(row + i * 2, type == Type::kF16 ? f16_bits(value) : bf16_bits(value));
  }
}

}  // namespace tsr::hip
