// PTX instructions of the decode kernel beyond common/ptx.cuh.
#pragma once

#include "../common/ptx.cuh"

namespace tsr::cuda::decode {

/// kBytes (16, 8 or 4) from global to shared memory; zeros if `there` is false, and then nothing is read.
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t to, const char* from, bool there) {
  if constexpr (kBytes == 16) {
    copy_async_16(to, from, there);
  } else {
    static_assert(kBytes == 8 || kBytes == 4, "cp.async copies 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(there ? kBytes : 0)
                 : "memory");
  }
}
/// The first `bytes` (0 to 4) of a word, the rest zeros; no more is read.
__device__ __forceinline__ void copy_async_part(uint32_t to, const char* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/// The same as copy_async for 2 or 1 bytes, by way of a register: done on return.
__device__ __forceinline__ void copy_2(uint32_t to, const char* from, bool there) {
  const uint16_t value = there ? *reinterpret_cast<const uint16_t*>(from) : uint16_t{0};
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(value) : "memory");
}
__device__ __forceinline__ void copy_1(uint32_t to, const char* from, bool there) {
  const auto value = static_cast<uint16_t>(there ? *reinterpret_cast<const uint8_t*>(from) : 0);
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(to), "h"(value) : "memory");
}

/// Waits until at most `pending` (0 to 3) groups of this thread are under way.
__device__ __forceinline__ void copy_async_wait_for(int pending) {
  if (pending == 3) {
    copy_async_wait<3>();
  } else if (pending == 2) {
    copy_async_wait<2>();
  } else if (pending == 1) {
    copy_async_wait<1>();
  } else {
    copy_async_wait<0>();
  }
}

/// Waits for `threads` threads (whole warps) at one of the block's 16 barriers; orders their shared memory accesses.
__device__ __forceinline__ void barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// An 8 x 8 matrix of 16-bit elements, from accumulator layout transposed.
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t x) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}

__device__ __forceinline__ uint32_t multiply_halves(uint32_t x, uint32_t y) {
  uint32_t r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  return r;
}
__device__ __forceinline__ uint32_t multiply_add_halves(uint32_t x, uint32_t y, uint32_t z) {
  uint32_t r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z));
  return r;
}
__device__ __forceinline__ uint32_t subtract_halves(uint32_t x, uint32_t y) {
  uint32_t r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  return r;
}

/// The two e4m3 in the low 16 bits as two fp16, exactly.
__device__ __forceinline__ uint32_t e4m3_halves(uint32_t x) {
#if __CUDA_ARCH__ >= 890
  uint32_t r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(static_cast<uint16_t>(x)));
  return r;
#else
  // Their fields, moved into those of an fp16, give the value over 2^8 (bias 7 against 15), subnormals too. NaN isn't kept.
  const uint32_t high_bytes = __byte_perm(x, 0, 0x1404);
  uint32_t r = multiply_halves((high_bytes & 0x80008000u) | ((high_bytes & 0x7f007f00u) >> 1), 0x5c005c00u);
  if ((((x & 0x7f7fu) + 0x0101u) & 0x8080u) != 0) {
    if ((x & 0x7fu) == 0x7fu) r |= 0x7fffu;
    if ((x & 0x7f00u) == 0x7f00u) r |= 0x7fff0000u;
  }
  return r;
#endif
}

// Bulk copies, their barriers and clusters: sm_90 and up.
#if __CUDA_ARCH__ >= 900
constexpr bool kHasBulkCopies = __CUDA_ARCH__ < 1000, kHasClusters = true;  // (sm_100 and sm_120 would spill)
__device__ __forceinline__ void bulk_barrier_init(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
/// After the barriers' init, before a barrier of the threads.
__device__ __forceinline__ void bulk_barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The barrier's one arrival: its phase ends when `bytes` have been copied.
__device__ __forceinline__ void bulk_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// All of it 16-byte aligned.
__device__ __forceinline__ void bulk_copy(uint32_t to, const char* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void bulk_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// All threads of the cluster arrive, and wait for each other later. Orders nothing but what a fence did before.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// Phase 0 of a barrier that other blocks of the cluster complete.
__device__ __forceinline__ void cluster_barrier_wait(uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra WAIT_%=;\n"
      "}" ::"r"(barrier)
      : "memory");
}
/// What lies at the same place in the shared memory of the cluster's block `rank`.
__device__ __forceinline__ uint32_t address_in(uint32_t address, int rank) {
  uint32_t r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
/// To another block's shared memory; counted on `barrier` there.
__device__ __forceinline__ void store_2_in_cluster(uint32_t to, float2 x, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "f"(x.x), "f"(x.y), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void store_4_in_cluster(uint32_t to, float4 x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}
#else  // never called
constexpr bool kHasBulkCopies = false, kHasClusters = false;
__device__ __forceinline__ void bulk_barrier_init(uint32_t) {}
__device__ __forceinline__ void bulk_barrier_init_done() {}
__device__ __forceinline__ void bulk_expect(uint32_t, int) {}
__device__ __forceinline__ void bulk_copy(uint32_t, const char*, int, uint32_t) {}
__device__ __forceinline__ void bulk_wait(uint32_t, uint32_t) {}
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() {}
__device__ __forceinline__ void cluster_barrier_wait(uint32_t) {}
__device__ __forceinline__ uint32_t address_in(uint32_t address, int) { return address; }
__device__ __forceinline__ void store_2_in_cluster(uint32_t, float2, uint32_t) {}
__device__ __forceinline__ void store_4_in_cluster(uint32_t, float4, uint32_t) {}
#endif

/// Lets the next kernel of the stream start, if it was launched to overlap with this one.
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Waits until the kernel before this one has ended and its writes can be seen.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace tsr::cuda::decode
