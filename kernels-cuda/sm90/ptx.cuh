// The PTX that only sm_90a has: mbarrier, TMA, wgmma, register reallocation. Names and layouts as in the PTX ISA.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tsr::cuda::sm90 {

// ------------------------------------------------------------------------------------------------ mbarrier
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
/// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// One arrival, and `bytes` more that copies have to bring.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int parity) {
  uint32_t done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (done == 0);
}
/// Named barriers of `threads` threads.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Ordinary stores to shared memory before it are seen by wgmma and copies behind it.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ------------------------------------------------------------------------------------------------ copies
/// A box of a 4-D tensor map: columns from `column` on, rows from `row` on, of one head and batch entry.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int row,
                                         int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

/// The map itself, so that the first copy needn't wait for it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// The same box, into the L2 cache alone.
__device__ __forceinline__ void prefetch_box(const CUtensorMap* map, int column, int row, int head, int batch) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(column),
               "r"(row), "r"(head), "r"(batch)
               : "memory");
}
/// A box from shared memory to the tensor; the part outside its extents is left out.
__device__ __forceinline__ void copy_box_out(const CUtensorMap* map, uint32_t from, int column, int row, int head,
                                             int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row), "r"(head), "r"(batch)
               : "memory");
}
__device__ __forceinline__ void copies_out_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until what this thread's copies out bring has left shared memory.
__device__ __forceinline__ void copies_out_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrix_x4(uint32_t* to, uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_matrix_x4(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

// ------------------------------------------------------------------------------------------------ launches
/// In a kernel launched programmatically behind another: until that one is through and what it wrote is seen.
__device__ __forceinline__ void wait_for_earlier_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// In the earlier kernel: the later one may start.
__device__ __forceinline__ void let_later_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ------------------------------------------------------------------------------------------------ registers
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ------------------------------------------------------------------------------------------------ wgmma
/// Matrix descriptor of a tile in 128-byte swizzle: start, and leading and stride byte offsets, in units of 16 bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, int leading, int stride) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | uint64_t{1} << 62;
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Operand lists of the inline statements: accumulators come first.
#define TSR_LIST_8(a, i, k) \
  k((a)[i]), k((a)[i + 1]), k((a)[i + 2]), k((a)[i + 3]), k((a)[i + 4]), k((a)[i + 5]), k((a)[i + 6]), k((a)[i + 7])
#define TSR_LIST_16(a, i, k) TSR_LIST_8(a, i, k), TSR_LIST_8(a, i + 8, k)
#define TSR_LIST_32(a, i, k) TSR_LIST_16(a, i, k), TSR_LIST_16(a, i + 16, k)
#define TSR_LIST_64(a, i, k) TSR_LIST_32(a, i, k), TSR_LIST_32(a, i + 32, k)
#define TSR_LIST(COUNT, a, k) TSR_LIST_OF_##COUNT(a, k)
#define TSR_LIST_OF_32(a, k) TSR_LIST_32(a, 0, k)
#define TSR_LIST_OF_40(a, k) TSR_LIST_32(a, 0, k), TSR_LIST_8(a, 32, k)
#define TSR_LIST_OF_48(a, k) TSR_LIST_32(a, 0, k), TSR_LIST_16(a, 32, k)
#define TSR_LIST_OF_56(a, k) TSR_LIST_OF_48(a, k), TSR_LIST_8(a, 48, k)
#define TSR_LIST_OF_64(a, k) TSR_LIST_64(a, 0, k)
#define TSR_LIST_OF_88(a, k) TSR_LIST_64(a, 0, k), TSR_LIST_16(a, 64, k), TSR_LIST_8(a, 80, k)
#define TSR_LIST_OF_96(a, k) TSR_LIST_64(a, 0, k), TSR_LIST_32(a, 64, k)
#define TSR_LIST_OF_128(a, k) TSR_LIST_64(a, 0, k), TSR_LIST_64(a, 64, k)
#define TSR_NAMES_32                                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TSR_NAMES_40 \
  TSR_NAMES_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TSR_NAMES_48 \
  TSR_NAMES_40       \
  ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TSR_NAMES_56 \
  TSR_NAMES_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TSR_NAMES_64 \
  TSR_NAMES_56       \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TSR_NAMES_88                                                                                  \
  TSR_NAMES_64                                                                                        \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
  "%83, %84, %85, %86, %87"
#define TSR_NAMES_96 \
  TSR_NAMES_88       \
  ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TSR_NAMES_128                                                                                    \
  TSR_NAMES_96                                                                                           \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/// m64 x kN x k16 in fp32, of one 16-bit type. The accumulators are kN / 2 floats of each thread.
template <class T, int kN>
struct Wgmma;

// first: d = a b; more: d += a b; A from shared memory or registers, B from shared memory, both K-major. add: d += a b with A from registers, B MN-major; set: d = a b.
#define TSR_WGMMA(T, NAME, N, COUNT, OPERANDS, OPERANDS_ADD)                                                          \
  template <>                                                                                                         \
  struct Wgmma<T, N> {                                                                                                \
    __device__ __forceinline__ static void first(float (&d)[COUNT], uint64_t a, uint64_t b) {                         \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME     \
                   "." NAME " {" TSR_NAMES_##COUNT "}, " OPERANDS ", p, 1, 1, 0, 0;\n}"                               \
                   : TSR_LIST(COUNT, d, "=f")                                                                         \
                   : "l"(a), "l"(b));                                                                                 \
    }                                                                                                                 \
    __device__ __forceinline__ static void more(float (&d)[COUNT], uint64_t a, uint64_t b) {                          \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME     \
                   "." NAME " {" TSR_NAMES_##COUNT "}, " OPERANDS ", p, 1, 1, 0, 0;\n}"                               \
                   : TSR_LIST(COUNT, d, "+f")                                                                         \
                   : "l"(a), "l"(b));                                                                                 \
    }                                                                                                                 \
    __device__ __forceinline__ static void first(float (&d)[COUNT], const uint32_t* a, uint64_t b) {                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME     \
                   "." NAME " {" TSR_NAMES_##COUNT "}, " OPERANDS_ADD ", p, 1, 1, 0;\n}"                              \
                   : TSR_LIST(COUNT, d, "=f")                                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                             \
    }                                                                                                                 \
    __device__ __forceinline__ static void more(float (&d)[COUNT], const uint32_t* a, uint64_t b) {                   \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME     \
                   "." NAME " {" TSR_NAMES_##COUNT "}, " OPERANDS_ADD ", p, 1, 1, 0;\n}"                              \
                   : TSR_LIST(COUNT, d, "+f")                                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                             \
    }                                                                                                                 \
    __device__ __forceinline__ static void add(float (&d)[COUNT], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, \
                                               uint64_t b) {                                                          \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME     \
                   "." NAME " {" TSR_NAMES_##COUNT "}, " OPERANDS_ADD ", p, 1, 1, 1;\n}"                              \
                   : TSR_LIST(COUNT, d, "+f")                                                                         \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                                     \
    }                                                                                                                 \
    __device__ __forceinline__ static void set(float (&d)[COUNT], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, \
                                               uint64_t b) {                                                          \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME     \
                   "." NAME " {" TSR_NAMES_##COUNT "}, " OPERANDS_ADD ", p, 1, 1, 1;\n}"                              \
                   : TSR_LIST(COUNT, d, "=f")                                                                         \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                                     \
    }                                                                                                                 \
  };
#define TSR_WGMMA_OF(N, COUNT, OPERANDS, OPERANDS_ADD)                                                                \
  TSR_WGMMA(__half, "f16", N, COUNT, OPERANDS, OPERANDS_ADD)                                                          \
  TSR_WGMMA(__nv_bfloat16, "bf16", N, COUNT, OPERANDS, OPERANDS_ADD)                                                  \
  template <int kPending>                                                                                             \
  __device__ __forceinline__ void wgmma_wait(float (&d)[COUNT]) {                                                     \
    asm volatile("wgmma.wait_group.sync.aligned %" #COUNT ";" : TSR_LIST(COUNT, d, "+f") : "n"(kPending) : "memory"); \
  }

/// wgmma_wait: until at most kPending groups of this warpgroup are under way. The accumulators are operands: nothing that
/// reads them may be moved before it.
TSR_WGMMA_OF(64, 32, "%32, %33", "{%32, %33, %34, %35}, %36")
TSR_WGMMA_OF(80, 40, "%40, %41", "{%40, %41, %42, %43}, %44")
TSR_WGMMA_OF(96, 48, "%48, %49", "{%48, %49, %50, %51}, %52")
TSR_WGMMA_OF(112, 56, "%56, %57", "{%56, %57, %58, %59}, %60")
TSR_WGMMA_OF(128, 64, "%64, %65", "{%64, %65, %66, %67}, %68")
TSR_WGMMA_OF(176, 88, "%88, %89", "{%88, %89, %90, %91}, %92")
TSR_WGMMA_OF(192, 96, "%96, %97", "{%96, %97, %98, %99}, %100")
TSR_WGMMA_OF(256, 128, "%128, %129", "{%128, %129, %130, %131}, %132")

/// threadIdx.x, read at this place: what is computed from it is then computed here, not kept in registers through a loop.
__device__ __forceinline__ int thread_read_anew() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// A store without a branch: ptxas takes everything around a branch of single lanes for divergent, and then keeps what wgmma
/// needs in ordinary registers.
__device__ __forceinline__ void store_if(void* to, uint4 value, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(static_cast<int>(wanted))
               : "memory");
}

__device__ __forceinline__ void store_if(void* to, float value, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p st.global.f32 [%0], %1;\n}" ::"l"(to), "f"(value),
               "r"(static_cast<int>(wanted))
               : "memory");
}
/// The lowest `count` bits; none below 0, all above 32.
__device__ __forceinline__ uint32_t low_bits(int count) { return __funnelshift_lc(~0u, 0u, max(count, 0)); }

/// A store that never happens, on a value just made. ptxas moves the wait for a wgmma over arithmetic, but not over memory
/// operations: this keeps it where the source has it.
__device__ __forceinline__ void pin(float x, uint32_t scratch) {
  asm volatile("{\n.reg .pred p;\nsetp.eq.f32 p, %0, 0f7F7FFFFF;\n@p st.shared.f32 [%1], %0;\n}" ::"f"(x), "r"(scratch)
               : "memory");
}

}  // namespace tsr::cuda::sm90
