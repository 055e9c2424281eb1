// clang's AMDGPU builtins, as the kernels use them, on the emulator. Included before the unmodified kernel sources, which are
// then C++ for the host; the architecture is chosen by defining __gfx942__ and so on, as the real compiler does.
//
// Layouts of matrix operands (which lane and element holds which row and k) are from AMD's matrix instruction calculator; each
// function names its instruction. Products are summed in fp32, in the order of k; the chip's own order isn't documented.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator.h"

#define TSR_EMULATED 1
#define __device__
#define __host__
#define TSR_KERNEL(threads) static
#define TSR_KERNEL_OF(threads, waves) static
#define TSR_LDS(name, bytes) char* const name = ::tsr::emulation::lds(bytes)
#define TSR_LDS_READ(address, bytes) ::tsr::emulation::lds_read(address, bytes)
#define TSR_LDS_WRITE(address, bytes) ::tsr::emulation::lds_write(address, bytes)

#define __builtin_amdgcn_workitem_id_x() ::tsr::emulation::thread_index()
#define __builtin_amdgcn_workgroup_id_x() ::tsr::emulation::block_index()
#define __builtin_amdgcn_fence(...) static_cast<void>(0)
#define __builtin_amdgcn_s_barrier() ::tsr::emulation::block_barrier()
#define __builtin_amdgcn_wave_barrier() ::tsr::emulation::wave_barrier()
#define __builtin_amdgcn_s_setprio(level) static_cast<void>(0)
#define __builtin_amdgcn_sched_barrier(mask) static_cast<void>(0)
#define __builtin_amdgcn_sched_group_barrier(mask, count, id) static_cast<void>((mask) + (count))
#define __builtin_amdgcn_s_waitcnt(counters) ::tsr::emulation::wait(counters)
#define __builtin_amdgcn_readfirstlane(x) ::tsr::emulation::first_lane(x)
#define __builtin_amdgcn_ballot_w64(x) ::tsr::emulation::ballot(x)
#define __builtin_amdgcn_permlane32_swap(x, y, ...) ::tsr::emulation::swap_halves(x, y)
#define __builtin_amdgcn_perm(high, low, select) ::tsr::emulation::bytes_of(high, low, select)
#define __builtin_amdgcn_cvt_pk_f32_fp8(word, high) ::tsr::emulation::floats_of_f8<::tsr::emulation::kF8>(word, high)
#define __builtin_amdgcn_cvt_pkrtz(x, y) ::tsr::emulation::truncated_pair(x, y)
#define __builtin_amdgcn_exp2f(x) ::tsr::emulation::exp2_flushed(x)
#define __builtin_amdgcn_logf(x) std::log2(x)
#define __builtin_amdgcn_ds_bpermute(address, value) ::tsr::emulation::permute(value, (address) >> 2)
#define __builtin_amdgcn_ds_swizzle(value, pattern) ::tsr::emulation::swizzle(value, pattern)

namespace tsr::emulation {

/// v_exp_f32: 2^x; results that would be subnormal are 0.
inline float exp2_flushed(float x) {
  const float result = std::exp2(x);
  return result < 0x1p-126f ? 0.0f : result;
}

/// ds_swizzle_b32 in bit mode: in each half of 32 lanes, lane ((lane & and) | or) ^ xor.
inline int swizzle(int value, int pattern) {
  const int and_mask = pattern & 31, or_mask = pattern >> 5 & 31, xor_mask = pattern >> 10 & 31;
  const int lane = lane_index();
  return permute(value, (lane & ~31) | (((lane & and_mask) | or_mask) ^ xor_mask));
}

/// s_waitcnt of gfx9: vmcnt in bits 0 to 3, 14 and 15. Copies into LDS are all waited for or not at all.
inline void wait(int counters) {
  if ((counters & 0xc00f) == 0) land_copies();
}

/// v_readfirstlane_b32, with all lanes there.
inline int first_lane(int x) {
  int out;
  meet("readfirstlane", &x, sizeof x, &out, sizeof out,
       [](const unsigned char (*in)[kSlot], unsigned char (*outs)[kSlot]) {
         unsigned char first[sizeof(int)];
         std::memcpy(first, in[0], sizeof first);
         for (int lane = 0; lane < kLanes; ++lane) std::memcpy(outs[lane], first, sizeof first);
       });
  return out;
}

/// v_cmp into a mask of the lanes, with all of a wavefront of 64 there.
inline uint64_t ballot(bool x) {
  uint64_t out;
  meet("ballot", &x, sizeof x, &out, sizeof out, [](const unsigned char (*in)[kSlot], unsigned char (*outs)[kSlot]) {
    uint64_t mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) mask |= static_cast<uint64_t>(in[lane][0] != 0) << lane;
    for (int lane = 0; lane < kLanes; ++lane) std::memcpy(outs[lane], &mask, sizeof mask);
  });
  return out;
}

/// v_permlane32_swap_b32 (CDNA4 ISA guide): the upper half of the first operand and the lower half of the second change places.
struct Pair {
  uint32_t of[2];
  uint32_t operator[](int i) const { return of[i]; }
};
inline Pair swap_halves(uint32_t x, uint32_t y) {
  const Pair pair{{x, y}};
  Pair out;
  meet("permlane32_swap", &pair, sizeof pair, &out, sizeof out,
       [](const unsigned char (*in)[kSlot], unsigned char (*outs)[kSlot]) {
         for (int lane = 0; lane < 32; ++lane) {
           Pair low, high;
           std::memcpy(&low, in[lane], sizeof low);
           std::memcpy(&high, in[lane + 32], sizeof high);
           const Pair new_low{{low.of[0], high.of[0]}}, new_high{{low.of[1], high.of[1]}};
           std::memcpy(outs[lane], &new_low, sizeof new_low);
           std::memcpy(outs[lane + 32], &new_high, sizeof new_high);
         }
       });
  return out;
}

/// v_perm_b32: byte i is byte (select >> 8 i) of {high, low}, low first; selectors above 7 aren't used here.
inline uint32_t bytes_of(uint32_t high, uint32_t low, uint32_t select) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(both >> (select >> 8 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}

/// v_cvt_pkrtz_f16_f32: towards 0, subnormal results kept (fp16 denormals are on in a HIP kernel's mode).
inline uint16_t truncated_half(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude == 0x7f800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (exponent > 15) return static_cast<uint16_t>(sign | 0x7bffu);
  if (exponent >= -14)
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent + 15) << 10 | (fraction >> 13 & 0x3ffu));
  const int shift = 13 + (-14 - exponent);
  return static_cast<uint16_t>(sign | (shift < 24 ? fraction >> shift : 0));
}
typedef uint16_t PairOfHalves __attribute__((ext_vector_type(2)));
inline PairOfHalves truncated_pair(float x, float y) { return PairOfHalves{truncated_half(x), truncated_half(y)}; }

/// v_cvt_pk_bf16_f32: nearest, ties to even.
inline uint32_t brain_pair(float x, float y) {
  const auto one = [](float value) -> uint32_t {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  };
  return one(x) | one(y) << 16;
}

/// The two e4m3: OCP's has bias 7, a negative zero, and NaN at 0x7f and 0xff, no infinity (OCP 8-bit floating point specification
/// 1.0); fnuz has bias 8, and its one NaN where the negative zero would be (CDNA3 ISA guide, "FP8").
enum class F8 {
  kOcp,
  kFnuz
};
template <F8 kFormat>
float f8_to_float(uint32_t bits) {
  bits &= 0xffu;
  const uint32_t magnitude = bits & 0x7fu, exponent = magnitude >> 3, fraction = magnitude & 7u;
  if (kFormat == F8::kOcp ? magnitude == 0x7fu : bits == 0x80u) return std::nanf("");
  constexpr int kBias = kFormat == F8::kOcp ? 7 : 8;
  const float size = exponent == 0
                         ? std::ldexp(static_cast<float>(fraction), 1 - kBias - 3)
                         : std::ldexp(static_cast<float>(8 + fraction), static_cast<int>(exponent) - kBias - 3);
  return bits & 0x80u ? -size : size;
}
#if defined(__gfx942__)
constexpr F8 kF8 = F8::kFnuz;
#else
constexpr F8 kF8 = F8::kOcp;
#endif
/// v_cvt_pk_f32_fp8: two bytes of a word, the upper ones if `high`.
template <F8 kFormat>
auto floats_of_f8(int word, bool high) {
  typedef float Floats __attribute__((ext_vector_type(2)));
  const uint32_t bits = static_cast<uint32_t>(word) >> (high ? 16 : 0);
  return Floats{f8_to_float<kFormat>(bits), f8_to_float<kFormat>(bits >> 8)};
}

/// D = A B + C of 16 x 16 x K (or 32 x 32 x K): operands of a lane's A and B by `k_of(lane, element)`, its D by
/// `row_of(lane, element)`; A's row, and B's and D's column, is lane % kSide.
template <int kWave, int kSide, int kDepth, class Operand, class Sum, class KOf, class RowOf, class Value>
Sum matrix_operation(const char* name, Operand a, Operand b, Sum c, KOf, RowOf, Value) {
  struct In {
    Operand a, b;
    Sum c;
  };
  constexpr int kElements = sizeof(Operand) / 2, kSums = sizeof(Sum) / 4;
  const In in{a, b, c};
  Sum out;
  meet(name, &in, sizeof in, &out, sizeof out, [](const unsigned char (*ins)[kSlot], unsigned char (*outs)[kSlot]) {
    static float rows[kSide][kDepth], columns[kSide][kDepth];
    for (int lane = 0; lane < kWave; ++lane) {
      In x;
      std::memcpy(&x, ins[lane], sizeof x);
      for (int e = 0; e < kElements; ++e) {
        const int k = KOf{}(lane, e);
        rows[lane % kSide][k] = Value{}(x.a[e]);
        columns[lane % kSide][k] = Value{}(x.b[e]);
      }
    }
    for (int lane = 0; lane < kWave; ++lane) {
      In x;
      std::memcpy(&x, ins[lane], sizeof x);
      Sum d;
      for (int e = 0; e < kSums; ++e) {
        float sum = x.c[e];
        const int i = RowOf{}(lane, e);
        for (int k = 0; k < kDepth; ++k) sum += rows[i][k] * columns[lane % kSide][k];
        d[e] = sum;
      }
      std::memcpy(outs[lane], &d, sizeof d);
    }
  });
  return out;
}

struct HalfValue {
  float operator()(_Float16 x) const { return static_cast<float>(x); }
};
struct BrainValue {
  template <class T>
  float operator()(T bits) const {
    const uint32_t word = static_cast<uint32_t>(__builtin_bit_cast(uint16_t, bits)) << 16;
    return __builtin_bit_cast(float, word);
  }
};
/// gfx90a's fp16 and bf16 MFMA takes subnormal operands as 0 (CDNA2 ISA guide, "denormals").
template <class Value, int kSmallestExponent>
struct Flushed {
  template <class T>
  float operator()(T x) const {
    const float value = Value{}(x);
    return std::fabs(value) < std::ldexp(1.0f, kSmallestExponent) ? 0.0f : value;
  }
};

// v_mfma_f32_16x16x16_f16, _bf16: four elements a lane.
struct K16 {
  int operator()(int lane, int e) const { return 4 * (lane / 16) + e; }
};
using Row16 = K16;
// v_wmma_f32_16x16x16_f16, _bf16 of gfx11, wave32: sixteen elements, both halves of the wavefront hold the same.
struct K11 {
  int operator()(int, int e) const { return e; }
};
struct Row11 {
  int operator()(int lane, int e) const { return 2 * e + lane / 16; }
};
// The same of gfx12: eight elements.
struct K12 {
  int operator()(int lane, int e) const { return 8 * (e / 4) + 4 * (lane / 16) + e % 4; }
};
struct Row12 {
  int operator()(int lane, int e) const { return 8 * (lane / 16) + e; }
};

#if defined(__gfx90a__)
using HalfOperand = Flushed<HalfValue, -14>;
using BrainOperand = Flushed<BrainValue, -126>;
#else
using HalfOperand = HalfValue;
using BrainOperand = BrainValue;
#endif

// v_mfma_f32_32x32x8_f16, _bf16: four elements a lane; of gfx950, 32x32x16: eight. Sixteen rows of D.
struct K32x8 {
  int operator()(int lane, int e) const { return 4 * (lane / 32) + e; }
};
struct K32x16 {
  int operator()(int lane, int e) const { return 8 * (lane / 32) + e; }
};
struct Row32 {
  int operator()(int lane, int e) const { return 8 * (e / 4) + 4 * (lane / 32) + e % 4; }
};
typedef int16_t EightWords16 __attribute__((ext_vector_type(8)));
template <class Value, class A, class C>
C mfma32x8(const char* name, A a, A b, C c) {
  return matrix_operation<64, 32, 8>(name, a, b, c, K32x8{}, Row32{}, Value{});
}
template <class Value, class A, class C>
C mfma32x16(const char* name, A a, A b, C c) {
  return matrix_operation<64, 32, 16>(name, a, b, c, K32x16{}, Row32{}, Value{});
}
template <class A, class C>
C mfma16(const char* name, A a, A b, C c) {
  return matrix_operation<64, 16, 16>(name, a, b, c, K16{}, Row16{}, HalfOperand{});
}
template <class A, class C>
C mfma16_brain(const char* name, A a, A b, C c) {
  return matrix_operation<64, 16, 16>(name, a, b, c, K16{}, Row16{}, BrainOperand{});
}
template <class Value, class A, class C>
C wmma11(const char* name, A a, A b, C c) {
  return matrix_operation<32, 16, 16>(name, a, b, c, K11{}, Row11{}, Value{});
}
template <class Value, class A, class C>
C wmma12(const char* name, A a, A b, C c) {
  return matrix_operation<32, 16, 16>(name, a, b, c, K12{}, Row12{}, Value{});
}

}  // namespace tsr::emulation

#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, ...) ::tsr::emulation::mfma16("mfma_f32_16x16x16f16", a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, ...) \
  ::tsr::emulation::mfma16_brain("mfma_f32_16x16x16bf16_1k", a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, ...) \
  ::tsr::emulation::mfma32x8<::tsr::emulation::HalfOperand>("mfma_f32_32x32x8f16", a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, ...) \
  ::tsr::emulation::mfma32x8<::tsr::emulation::BrainOperand>("mfma_f32_32x32x8bf16_1k", a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, ...) \
  ::tsr::emulation::mfma32x16<::tsr::emulation::HalfOperand>("mfma_f32_32x32x16_f16", a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, ...)                          \
  ::tsr::emulation::mfma32x16<::tsr::emulation::BrainOperand>(                         \
      "mfma_f32_32x32x16_bf16", __builtin_bit_cast(::tsr::emulation::EightWords16, a), \
      __builtin_bit_cast(::tsr::emulation::EightWords16, b), c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) \
  ::tsr::emulation::wmma11<::tsr::emulation::HalfValue>("wmma_f32_16x16x16_f16", a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) \
  ::tsr::emulation::wmma11<::tsr::emulation::BrainValue>("wmma_f32_16x16x16_bf16", a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) \
  ::tsr::emulation::wmma12<::tsr::emulation::HalfValue>("wmma_f32_16x16x16_f16", a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) \
  ::tsr::emulation::wmma12<::tsr::emulation::BrainValue>("wmma_f32_16x16x16_bf16", a, b, c)
