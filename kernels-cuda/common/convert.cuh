// Stored elements to fp32 and back, one rounding each, at any byte alignment: what kernels use that take every type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "attention.h"
#include "ptx.cuh"

namespace tsr::cuda {

/// A little-endian word of 2 or 4 bytes at any address.
__device__ __forceinline__ uint16_t load_u16(const char* p) {
  if ((reinterpret_cast<uintptr_t>(p) & 1) == 0) return *reinterpret_cast<const uint16_t*>(p);
  const auto* b = reinterpret_cast<const uint8_t*>(p);
  return static_cast<uint16_t>(b[0] | b[1] << 8);
}
__device__ __forceinline__ uint32_t load_u32(const char* p) {
  if ((reinterpret_cast<uintptr_t>(p) & 3) == 0) return *reinterpret_cast<const uint32_t*>(p);
  const auto* b = reinterpret_cast<const uint8_t*>(p);
  return b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24;
}
__device__ __forceinline__ void store_u16(char* p, uint16_t value) {
  if ((reinterpret_cast<uintptr_t>(p) & 1) == 0) {
    *reinterpret_cast<uint16_t*>(p) = value;
  } else {
    p[0] = static_cast<char>(value);
    p[1] = static_cast<char>(value >> 8);
  }
}
__device__ __forceinline__ void store_u32(char* p, uint32_t value) {
  if ((reinterpret_cast<uintptr_t>(p) & 3) == 0) {
    *reinterpret_cast<uint32_t*>(p) = value;
  } else {
    for (int i = 0; i < 4; ++i) p[i] = static_cast<char>(value >> (8 * i));
  }
}

__device__ __forceinline__ float f16_value(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ __forceinline__ float bf16_value(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
/// e4m3fn. Its fields, moved into those of an fp16, give the value over 2^8 (bias 7 against 15), subnormals too.
__device__ __forceinline__ float f8_value(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return __int_as_float(0x7fc00000);
  return f16_value(static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 256.0f;
}

/// Eight elements of a row from element i on, i a multiple of 8.
__device__ __forceinline__ void load_8(Type type, const char* row, int i, float (&to)[8]) {
  switch (type) {
    case Type::kF32: {
      const char* p = row + i * 4;
      if ((reinterpret_cast<uintptr_t>(p) & 15) == 0) {
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(p);
        *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<const float4*>(p + 16);
      } else {
        for (int e = 0; e < 8; ++e) to[e] = __uint_as_float(load_u32(p + e * 4));
      }
      break;
    }
    case Type::kF16:
    case Type::kBF16: {
      const char* p = row + i * 2;
      uint16_t bits[8];
      if ((reinterpret_cast<uintptr_t>(p) & 15) == 0) {
        const uint4 words = *reinterpret_cast<const uint4*>(p);
        const uint32_t w[4] = {words.x, words.y, words.z, words.w};
        for (int e = 0; e < 8; ++e) bits[e] = static_cast<uint16_t>(w[e / 2] >> (e % 2 * 16));
      } else {
        for (int e = 0; e < 8; ++e) bits[e] = load_u16(p + e * 2);
      }
      for (int e = 0; e < 8; ++e) to[e] = type == Type::kF16 ? f16_value(bits[e]) : bf16_value(bits[e]);
      break;
    }
    case Type::kF8:
      for (int e = 0; e < 8; ++e) to[e] = f8_value(static_cast<uint8_t>(row[i + e]));
      break;
    case Type::kQ8: {
      const char* block = row + i / 32 * 34;
      const float d = f16_value(load_u16(block));
      const char* q = block + 2 + i % 32;
      for (int e = 0; e < 8; ++e) to[e] = d * static_cast<float>(static_cast<int8_t>(q[e]));
      break;
    }
    case Type::kQ4: {
      const char* block = row + i / 32 * 18;
      const float d = f16_value(load_u16(block));
      const char* q = block + 2 + i % 16;  // elements 0..15 are the low nibbles, 16..31 the high ones
      const int shift = i % 32 < 16 ? 0 : 4;
      for (int e = 0; e < 8; ++e) {
        to[e] = d * static_cast<float>((static_cast<uint8_t>(q[e]) >> shift & 15) - 8);
      }
      break;
    }
    default:
      break;
  }
}

/// One element of an f32, f16 or bf16 row.
__device__ __forceinline__ float load_1(Type type, const char* row, int64_t i) {
  if (type == Type::kF32) return __uint_as_float(load_u32(row + i * 4));
  const uint16_t bits = load_u16(row + i * 2);
  return type == Type::kF16 ? f16_value(bits) : bf16_value(bits);
}
/// Two neighbouring elements of an f32, f16 or bf16 row, the first at `p`.
__device__ __forceinline__ float2 load_2(Type type, const char* p) {
  if (type == Type::kF32) {
    if ((reinterpret_cast<uintptr_t>(p) & 7) == 0) return *reinterpret_cast<const float2*>(p);
    return {__uint_as_float(load_u32(p)), __uint_as_float(load_u32(p + 4))};
  }
  uint32_t low, high;
  if ((reinterpret_cast<uintptr_t>(p) & 3) == 0) {
    const uint32_t word = *reinterpret_cast<const uint32_t*>(p);
    low = word & 0xffff, high = word >> 16;
  } else {
    low = load_u16(p), high = load_u16(p + 2);
  }
  const auto value = [&](uint32_t bits) {
    return type == Type::kF16 ? f16_value(static_cast<uint16_t>(bits)) : bf16_value(static_cast<uint16_t>(bits));
  };
  return {value(low), value(high)};
}
__device__ __forceinline__ void store_1(Type type, char* row, int64_t i, float value) {
  if (type == Type::kF32) {
    store_u32(row + i * 4, __float_as_uint(value));
  } else {
    store_u16(row + i * 2, type == Type::kF16 ? __half_as_ushort(__float2half_rn(value))
                                              : __bfloat16_as_ushort(__float2bfloat16_rn(value)));
  }
}

/// Eight elements of an f32, f16 or bf16 row from element i on; `aligned`: to 16 bytes.
__device__ __forceinline__ void store_8(Type type, char* row, int i, float4 low, float4 high, bool aligned) {
  if (!aligned) {
    const float values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int e = 0; e < 8; ++e) store_1(type, row, i + e, values[e]);
  } else if (type == Type::kF32) {
    *reinterpret_cast<float4*>(row + i * 4) = low;
    *reinterpret_cast<float4*>(row + i * 4 + 16) = high;
  } else if (type == Type::kF16) {
    *reinterpret_cast<uint4*>(row + i * 2) = {pack_pair<__half>(low.x, low.y), pack_pair<__half>(low.z, low.w),
                                              pack_pair<__half>(high.x, high.y), pack_pair<__half>(high.z, high.w)};
  } else {
    *reinterpret_cast<uint4*>(row + i * 2) = {
        pack_pair<__nv_bfloat16>(low.x, low.y), pack_pair<__nv_bfloat16>(low.z, low.w),
        pack_pair<__nv_bfloat16>(high.x, high.y), pack_pair<__nv_bfloat16>(high.z, high.w)};
  }
}

}  // namespace tsr::cuda
