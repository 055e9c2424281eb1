// The machine, in the few words that the kernels use. Freestanding: no HIP header, no device library; clang's builtins alone.
// tests/emulation gives the same builtins a meaning on the host and includes these very files.
#pragma once

#include "attributes.h"

#if !defined(TSR_EMULATED)
#define TSR_KERNEL(threads) extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(threads, threads)))
/// And with `waves` wavefronts on a SIMD, neither fewer nor more: as many registers as they leave.
#define TSR_KERNEL_OF(threads, waves) \
  extern "C" __global__               \
      __attribute__((amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(waves, waves)))
/// LDS of a block, of a constant number of bytes. All accesses go through lds_load and lds_store.
#define TSR_LDS(name, bytes) __attribute__((shared, aligned(16))) static char name[bytes]
#define TSR_LDS_READ(address, bytes)
#define TSR_LDS_WRITE(address, bytes)
#endif

#include <cstdint>

#define TSR_DEVICE __device__ inline __attribute__((always_inline))
#define TSR_UNROLL _Pragma("unroll")
/// Loops that the compiler would unroll until nothing fits into registers.
#define TSR_ROLLED _Pragma("clang loop unroll(disable)")

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define TSR_CDNA 1
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1150__) || \
    defined(__gfx1151__)
#define TSR_RDNA3 1
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define TSR_RDNA4 1
#endif
/// Its conversions of 8 bits take and give e4m3fn.
#if defined(__gfx950__) || defined(TSR_RDNA4)
#define TSR_OCP_F8 1
#endif

namespace tsr::hip {

#if defined(TSR_CDNA)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif

typedef float float2v __attribute__((ext_vector_type(2)));
typedef float float4v __attribute__((ext_vector_type(4)));
typedef float float8v __attribute__((ext_vector_type(8)));
typedef uint32_t word2v __attribute__((ext_vector_type(2)));
typedef uint32_t word4v __attribute__((ext_vector_type(4)));
typedef _Float16 half2v __attribute__((ext_vector_type(2)));
typedef _Float16 half4v __attribute__((ext_vector_type(4)));
typedef _Float16 half8v __attribute__((ext_vector_type(8)));
typedef _Float16 half16v __attribute__((ext_vector_type(16)));
typedef int16_t short4v __attribute__((ext_vector_type(4)));
typedef int16_t short8v __attribute__((ext_vector_type(8)));
typedef int16_t short16v __attribute__((ext_vector_type(16)));
typedef __bf16 brain2v __attribute__((ext_vector_type(2)));
typedef __bf16 brain8v __attribute__((ext_vector_type(8)));

TSR_DEVICE int thread_index() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
TSR_DEVICE uint32_t block_index() { return __builtin_amdgcn_workgroup_id_x(); }

/// Global memory at an address of the whole wavefront, in scalar registers, plus a lane's offset.
template <class V>
TSR_DEVICE V global_load(const char* base, uint32_t offset) {
#if defined(TSR_EMULATED)
  return *reinterpret_cast<const V*>(base + offset);
#else
  auto address = reinterpret_cast<uint64_t>(base);
  // Else the compiler adds the two up front, in vector registers.
  asm("" : "+s"(address));
  asm("" : "+v"(offset));
  typedef __attribute__((address_space(1))) const char* Global;
  typedef __attribute__((address_space(1))) const V* GlobalV;
  return *reinterpret_cast<GlobalV>(reinterpret_cast<Global>(address) + offset);
#endif
}

/// All threads of the block; what they wrote to LDS before is seen behind.
TSR_DEVICE void block_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

template <class V>
TSR_DEVICE V lds_load(const char* at) {
  TSR_LDS_READ(at, sizeof(V));
  return *reinterpret_cast<const V*>(at);
}
template <class V>
TSR_DEVICE void lds_store(char* at, V value) {
  TSR_LDS_WRITE(at, sizeof(V));
  *reinterpret_cast<V*>(at) = value;
}

/// Where in LDS: its 32 bits.
TSR_DEVICE uint32_t lds_address(const char* at) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)); }

template <class To, class From>
TSR_DEVICE To bits_of(From from) {
  return __builtin_bit_cast(To, from);
}

/// The value of lane ^ kMask, kMask < 32.
template <int kMask>
TSR_DEVICE float exchange(float x) {
  return bits_of<float>(__builtin_amdgcn_ds_swizzle(bits_of<int>(x), kMask << 10 | 0x1f));
}
/// The value of any lane of the wavefront.
TSR_DEVICE float from_lane(float x, int lane) {
  return bits_of<float>(__builtin_amdgcn_ds_bpermute(lane << 2, bits_of<int>(x)));
}
TSR_DEVICE int from_lane(int x, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, x); }
TSR_DEVICE int64_t from_lane(int64_t x, int lane) {
  const auto low = static_cast<uint32_t>(from_lane(static_cast<int>(x), lane));
  return static_cast<int64_t>(from_lane(static_cast<int>(x >> 32), lane)) << 32 | low;
}
TSR_DEVICE int lane_index() { return thread_index() & (kWave - 1); }
/// The wavefront's number in its block, known to be the same for all of its lanes.
TSR_DEVICE int wave_index() { return __builtin_amdgcn_readfirstlane(thread_index() / kWave); }

TSR_DEVICE float negative_infinity() { return -__builtin_inff(); }
TSR_DEVICE float larger(float x, float y) { return __builtin_fmaxf(x, y); }  // the other, if one is NaN
/// 2^x to 1 ulp; results below 2^-126 may be 0.
TSR_DEVICE float exp2_fast(float x) { return __builtin_amdgcn_exp2f(x); }
/// Base-2 logarithm, to 1 ulp.
TSR_DEVICE float log2_fast(float x) { return __builtin_amdgcn_logf(x); }

}  // namespace tsr::hip
