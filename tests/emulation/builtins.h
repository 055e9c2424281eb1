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
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) \
  ::tsr::emulation::wmma11<::tsr::emulation::HalfValue>("wmma_f32_16x16x16_f16", a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) \
  ::tsr::emulation::wmma11<::tsr::emulation::BrainValue>("wmma_f32_16x16x16_bf16", a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) \
  ::tsr::emulation::wmma12<::tsr::emulation::HalfValue>("wmma_f32_16x16x16_f16", a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) \
  ::tsr::emulation::wmma12<::tsr::emulation::BrainValue>("wmma_f32_16x16x16_bf16", a, b, c)
