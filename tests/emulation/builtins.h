// clang's AMDGPU builtins, as the kernels use them, on the emulator. Included before the unmodified kernel sources, which are
// then C++ for the host; the architecture is chosen by defining __gfx942__ and so on, as the real compiler does.
//
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator.h"
#include "matrix.h"

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
namespace {

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

template <class T>
const T& input(const void* const* in, int lane) {
  return *static_cast<const T*>(in[lane]);
}
template <class T>
T& output(void* const* out, int lane) {
  return *static_cast<T*>(out[lane]);
}

/// v_readfirstlane_b32, with all lanes there.
inline int first_lane(int x) {
  int out;
  meet("readfirstlane", &x, &out, [](const void* const* in, void* const* outs) {
    for (int lane = 0; lane < kWave; ++lane) output<int>(outs, lane) = input<int>(in, 0);
  });
  return out;
}

/// v_cmp into a mask of the lanes, with all of a wavefront of 64 there.
inline uint64_t ballot(bool x) {
  uint64_t out;
  meet("ballot", &x, &out, [](const void* const* in, void* const* outs) {
    uint64_t mask = 0;
    for (int lane = 0; lane < kWave; ++lane) mask |= static_cast<uint64_t>(input<bool>(in, lane)) << lane;
    for (int lane = 0; lane < kWave; ++lane) output<uint64_t>(outs, lane) = mask;
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
  meet("permlane32_swap", &pair, &out, [](const void* const* in, void* const* outs) {
    for (int lane = 0; lane < 32; ++lane) {
      const Pair &low = input<Pair>(in, lane), &high = input<Pair>(in, lane + 32);
      output<Pair>(outs, lane) = {{low.of[0], high.of[0]}};
      output<Pair>(outs, lane + 32) = {{low.of[1], high.of[1]}};
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

}  // namespace
}  // namespace tsr::emulation
