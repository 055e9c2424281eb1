// Matrix instructions. Which lane and element holds which row and k is from AMD's matrix instruction calculator; each layout names
// its instructions. Products are summed in fp32, in the order of k; the chip's own order isn't documented.
#pragma once

#include <cstdint>

#include "emulator.h"

namespace tsr::emulation {
// Each architecture has its own: what one compiles must not stand in for another's of the same name.
namespace {

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif

// ---- what operands hold, as fp32: all elements of a lane at once

template <int kCount>
using Floats = float __attribute__((ext_vector_type(kCount)));
template <int kCount>
using Bits = uint32_t __attribute__((ext_vector_type(kCount)));
typedef int16_t EightWords16 __attribute__((ext_vector_type(8)));
template <class Operand>
constexpr int kElements = sizeof(Operand) / 2;

struct HalfValue {
  template <class Operand>
  Floats<kElements<Operand>> operator()(Operand x) const {
    typedef _Float16 Halves __attribute__((ext_vector_type(kElements<Operand>)));
    return __builtin_convertvector(__builtin_bit_cast(Halves, x), Floats<kElements<Operand>>);
  }
  template <class Sum>
  static Sum result(Sum d) {
    return d;
  }
};
struct BrainValue {
  template <class Operand>
  Floats<kElements<Operand>> operator()(Operand x) const {
    typedef uint16_t Words __attribute__((ext_vector_type(kElements<Operand>)));
    typedef Bits<kElements<Operand>> Wide;
    return __builtin_bit_cast(Floats<kElements<Operand>>, __builtin_convertvector(__builtin_bit_cast(Words, x), Wide)
                                                              << 16);
  }
  template <class Sum>
  static Sum result(Sum d) {
    return d;
  }
};
/// gfx90a's fp16 and bf16 MFMA takes subnormal operands for 0, and gives 0 for a subnormal sum (CDNA2 ISA guide, "denormals").
template <class Value, int kSmallestExponent>
struct Flushed {
  template <class Operand>
  Floats<kElements<Operand>> operator()(Operand x) const {
    typedef Bits<kElements<Operand>> Wide;
    const auto value = Value{}(x);
    // A normal number's exponent is large enough; so are those of infinity and NaN.
    const auto bits = __builtin_bit_cast(Wide, value);
    const Wide normal =
        __builtin_bit_cast(Wide, (bits & 0x7f800000u) >= static_cast<uint32_t>(kSmallestExponent + 127) << 23);
    return __builtin_bit_cast(decltype(value), bits & normal);
  }
  template <class Sum>
  static Sum result(Sum d) {
    typedef Bits<sizeof(Sum) / 4> Wide;
    const auto bits = __builtin_bit_cast(Wide, d);
    return __builtin_bit_cast(Sum, bits & __builtin_bit_cast(Wide, (bits & 0x7f800000u) != 0));
  }
};
#if defined(__gfx90a__)
using HalfOperand = Flushed<HalfValue, -14>;
using BrainOperand = Flushed<BrainValue, -126>;
#else
using HalfOperand = HalfValue;
using BrainOperand = BrainValue;
#endif

// ---- layouts: the k of a lane's elements of A and B, the rows of those of C and D. A's row, and B's and D's column, is lane % side.

// v_mfma_f32_16x16x16_f16, _bf16: four elements a lane.
struct Mfma16x16 {
  static constexpr int kLanes = 64, kSide = 16, kDepth = 16;
  static constexpr int k_of(int lane, int e) { return 4 * (lane / 16) + e; }
  static constexpr int row_of(int lane, int e) { return 4 * (lane / 16) + e; }
};
// v_mfma_f32_32x32x8_f16, _bf16: four elements a lane, sixteen rows of D.
struct Mfma32x8 {
  static constexpr int kLanes = 64, kSide = 32, kDepth = 8;
  static constexpr int k_of(int lane, int e) { return 4 * (lane / 32) + e; }
  static constexpr int row_of(int lane, int e) { return 8 * (e / 4) + 4 * (lane / 32) + e % 4; }
};
// v_mfma_f32_32x32x16_f16, _bf16 of gfx950: eight elements.
struct Mfma32x16 : Mfma32x8 {
  static constexpr int kDepth = 16;
  static constexpr int k_of(int lane, int e) { return 8 * (lane / 32) + e; }
};
// v_wmma_f32_16x16x16_f16, _bf16 of gfx11, wave32: sixteen elements, both halves of the wavefront hold the same.
struct Wmma11 {
  static constexpr int kLanes = 32, kSide = 16, kDepth = 16;
  static constexpr int k_of(int, int e) { return e; }
  static constexpr int row_of(int lane, int e) { return 2 * e + lane / 16; }
};
// The same of gfx12: eight elements.
struct Wmma12 {
  static constexpr int kLanes = 32, kSide = 16, kDepth = 16;
  static constexpr int k_of(int lane, int e) { return 8 * (e / 4) + 4 * (lane / 16) + e % 4; }
  static constexpr int row_of(int lane, int e) { return 8 * (lane / 16) + e; }
};

template <class Operand, class Sum>
struct Operands {
  Operand a, b;
  Sum c;
};

/// D = A B + C of a wavefront. A lane's rows of D are those of all lanes of its group (lane / side): a vector of them at a time.
template <class Layout, class Value, class Operand, class Sum>
void multiply_matrices(const void* const* in, void* const* out) {
  constexpr int kSide = Layout::kSide, kDepth = Layout::kDepth, kSums = sizeof(Sum) / 4;
  const auto operands = [&](int lane) -> const Operands<Operand, Sum>& {
    return *static_cast<const Operands<Operand, Sum>*>(in[lane]);
  };
  float rows[kDepth][kSide], columns[kSide][kDepth];
  for (int lane = 0; lane < Layout::kLanes; ++lane) {
    const auto row = Value{}(operands(lane).a), column = Value{}(operands(lane).b);
    for (int e = 0; e < kElements<Operand>; ++e) {
      const int k = Layout::k_of(lane, e);
      rows[k][lane % kSide] = row[e];
      columns[lane % kSide][k] = column[e];
    }
  }
  for (int group = 0; group < Layout::kLanes / kSide; ++group) {
    Sum own_rows[kDepth];
    for (int k = 0; k < kDepth; ++k) {
      for (int e = 0; e < kSums; ++e) own_rows[k][e] = rows[k][Layout::row_of(group * kSide, e)];
    }
    for (int n = 0; n < kSide; ++n) {
      const int lane = group * kSide + n;
      Sum d = operands(lane).c;
      for (int k = 0; k < kDepth; ++k) d += own_rows[k] * columns[n][k];
      *static_cast<Sum*>(out[lane]) = Value::result(d);
    }
  }
}
template <class Layout, class Value, class Operand, class Sum>
Sum matrix_operation(const char* name, Operand a, Operand b, Sum c) {
  const Operands<Operand, Sum> in{a, b, c};
  Sum out;
  meet(name, &in, &out, &multiply_matrices<Layout, Value, Operand, Sum>);
  return out;
}

}  // namespace
}  // namespace tsr::emulation

#define TSR_MATRIX_OPERATION(name, layout, value, a, b, c) \
  ::tsr::emulation::matrix_operation<::tsr::emulation::layout, ::tsr::emulation::value>(name, a, b, c)

#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, ...) \
  TSR_MATRIX_OPERATION("mfma_f32_16x16x16f16", Mfma16x16, HalfOperand, a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, ...) \
  TSR_MATRIX_OPERATION("mfma_f32_16x16x16bf16_1k", Mfma16x16, BrainOperand, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, ...) \
  TSR_MATRIX_OPERATION("mfma_f32_32x32x8f16", Mfma32x8, HalfOperand, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, ...) \
  TSR_MATRIX_OPERATION("mfma_f32_32x32x8bf16_1k", Mfma32x8, BrainOperand, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, ...) \
  TSR_MATRIX_OPERATION("mfma_f32_32x32x16_f16", Mfma32x16, HalfOperand, a, b, c)
// As words: x86's calls convert vectors of __bf16.
#define __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, ...)                 \
  TSR_MATRIX_OPERATION("mfma_f32_32x32x16_bf16", Mfma32x16, BrainOperand,     \
                       __builtin_bit_cast(::tsr::emulation::EightWords16, a), \
                       __builtin_bit_cast(::tsr::emulation::EightWords16, b), c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) \
  TSR_MATRIX_OPERATION("wmma_f32_16x16x16_f16", Wmma11, HalfOperand, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) \
  TSR_MATRIX_OPERATION("wmma_f32_16x16x16_bf16", Wmma11, BrainOperand, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) \
  TSR_MATRIX_OPERATION("wmma_f32_16x16x16_f16", Wmma12, HalfOperand, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) \
  TSR_MATRIX_OPERATION("wmma_f32_16x16x16_bf16", Wmma12, BrainOperand, a, b, c)
