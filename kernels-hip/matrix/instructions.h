// Matrix instructions of 16 x 16 x 16, one face for MFMA (CDNA, wave64) and WMMA (RDNA3 and 4, wave32): D = A B + C, A 16 rows
// of 16, B 16 columns of 16, sums in fp32. A row and a column is lane % 16; which of their elements a lane holds, and which
// rows of D, differs. Layouts are from AMD's matrix instruction calculator; l = lane, e = element:
//
//                               elements of A and B      rows of D
//   MFMA 16x16x16               k = 4 (l / 16) + e, 4    4 (l / 16) + e, 4
//   WMMA gfx11                  k = e, 16 (twice)        2 e + l / 16, 8
//   WMMA gfx12, k permuted      k = 8 (l / 16) + e, 8    8 (l / 16) + e, 8
//
// The order of k is free as long as A and B agree: on gfx12 a lane's eight elements are taken as neighbours, so that D of one
// product is B of the next as it is, as it is on CDNA. On gfx11 it takes one exchange with lane ^ 16.
#pragma once

#include "../common/convert.h"

#if defined(TSR_CDNA) || defined(TSR_RDNA3) || defined(TSR_RDNA4)
#define TSR_MATRIX 1

namespace tsr::hip::matrix {

#if defined(TSR_CDNA)
constexpr int kElements = 4;
constexpr int kSums = 4;
typedef half4v HalfFragment;
typedef short4v BrainFragment;
typedef float4v Sum;
TSR_DEVICE int row_of(int lane, int e) { return 4 * (lane / 16) + e; }
TSR_DEVICE Sum multiply(HalfFragment a, HalfFragment b, Sum c) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
}
TSR_DEVICE Sum multiply(BrainFragment a, BrainFragment b, Sum c) {
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
}
#elif defined(TSR_RDNA3)
constexpr int kElements = 16;
constexpr int kSums = 8;
typedef half16v HalfFragment;
typedef short16v BrainFragment;
typedef float8v Sum;
TSR_DEVICE int row_of(int lane, int e) { return 2 * e + lane / 16; }
TSR_DEVICE Sum multiply(HalfFragment a, HalfFragment b, Sum c) {
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
}
TSR_DEVICE Sum multiply(BrainFragment a, BrainFragment b, Sum c) {
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
}
#else
constexpr int kElements = 8;
constexpr int kSums = 8;
typedef half8v HalfFragment;
typedef short8v BrainFragment;
typedef float8v Sum;
TSR_DEVICE int row_of(int lane, int e) { return 8 * (lane / 16) + e; }
TSR_DEVICE Sum multiply(HalfFragment a, HalfFragment b, Sum c) {
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
}
TSR_DEVICE Sum multiply(BrainFragment a, BrainFragment b, Sum c) {
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
}
#endif

struct Half {
  static constexpr Type kType = Type::kF16;
  typedef HalfFragment Fragment;
  TSR_DEVICE static _Float16 round(float x) { return static_cast<_Float16>(x); }
};
struct Brain {
  static constexpr Type kType = Type::kBF16;
  typedef BrainFragment Fragment;
  /// Of weights: a NaN may become something else, but its row's sum stays NaN.
  TSR_DEVICE static int16_t round(float x) {
    const auto bits = bits_of<uint32_t>(x);
    return static_cast<int16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
};

/// This lane's elements of 16 neighbouring 16-bit elements of a row in LDS, 8-byte aligned.
template <class T>
TSR_DEVICE typename T::Fragment load_fragment(const char* row, int lane) {
#if defined(TSR_RDNA3)
  const auto low = lds_load<word4v>(row), high = lds_load<word4v>(row + 16);
  struct {
    word4v low, high;
  } const both{low, high};
  static_cast<void>(lane);
  return bits_of<typename T::Fragment>(both);
#elif defined(TSR_RDNA4)
  return bits_of<typename T::Fragment>(lds_load<word4v>(row + lane / 16 * 16));
#else
  return bits_of<typename T::Fragment>(lds_load<word2v>(row + lane / 16 * 8));
#endif
}

/// D of one product, rounded, as B of another.
template <class T>
TSR_DEVICE typename T::Fragment to_operand(Sum d, int lane) {
  typename T::Fragment b;
#if defined(TSR_RDNA3)
  TSR_UNROLL for (int e = 0; e < kSums; ++e) {
    const float other = exchange<16>(d[e]);
    b[2 * e] = T::round(lane < 16 ? d[e] : other);
    b[2 * e + 1] = T::round(lane < 16 ? other : d[e]);
  }
#else
  static_cast<void>(lane);
  TSR_UNROLL for (int e = 0; e < kSums; ++e) b[e] = T::round(d[e]);
#endif
  return b;
}

/// Largest, and sum, over the lanes that share a column.
TSR_DEVICE float max_of_column(float x, int lane) {
  x = larger(x, exchange<16>(x));
  return kWave == 64 ? larger(x, from_lane(x, lane ^ 32)) : x;
}
TSR_DEVICE float sum_of_column(float x, int lane) {
  x += exchange<16>(x);
  return kWave == 64 ? x + from_lane(x, lane ^ 32) : x;
}

}  // namespace tsr::hip::matrix
#endif
