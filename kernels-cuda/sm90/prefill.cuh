// Fused attention for Hopper (sm_90a): q, k, v of one 16-bit type T, wgmma with fp32 sums, tiles brought by TMA.
//
// A persistent block an SM. Warpgroup 0 has two warps at work: the scheduler takes query tiles from a counter and works out
// what each sees, the producer copies Q, K and V. The other two or three warpgroups, the consumers, own 64 query rows each.
// Keys go by in tiles of kKeys from the last that the tile sees to the first. A consumer's step: issue S(j+1) = Q K^T, shrink O
// if a maximum moved, issue O += P(j) V(j), wait for S, mask it or not, new maximum and exponentials (the wait for P V sits four
// n8 blocks in), round to T: P(j+1) stays in registers. At a query tile's end "j + 1" is the next query tile's first key tile,
// so that products stay queued; the O that is done leaves while the S after that one is made.
// Named barriers make the consumers take turns: one multiplies while the others exponentiate.
//
// Registers: setmaxnreg makes it 40 (producer) and 232 (consumers), with three consumers 32 and 160. A consumer holds S (kKeys /
// 2), O (kValueDim / 2) and P (kKeys / 4).
// Shared memory: Q in one slot or two, K and V two stages each, an O stage for each warp, barriers, tiles. Tiles are 64-column
// parts in TMA's 128-byte swizzle. K is wgmma's K-major B operand, V its MN-major one.
//
// What keeps it fast and does not show in the source:
//  - The compiler must prove descriptors and loop control the same across a warp, else every wgmma waits for an R2UR. Hence
//    the shuffles, and plain nested loops: steps with a mask, without, with.
//  - ptxas moves the wait for P V over arithmetic; pin() keeps it where it is.
//  - Softmax is what the turns wait for: nothing belongs behind it that fits beside Q K^T.
//  - The next tile's Q is asked for two key tiles into this one.
#pragma once

#include "consumer.cuh"
#include "producer.cuh"

namespace tsr::cuda::sm90 {

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    prefill(const __grid_constant__ Attention a, const __grid_constant__ Maps maps,
            const __grid_constant__ Launch launch) {
  extern __shared__ __align__(1024) char shared[];
  const uint32_t base = shared_address(shared);
  const Barriers bars(base + Shape::kBarriersAt);
  if (threadIdx.x == 96) {  // of a warp that has nothing else to do
    prefetch_map(&maps.q);
    prefetch_map(&maps.k);
    prefetch_map(&maps.v);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < 16; i += 8) {
      barrier_init(bars.q_full + i, 1);
      barrier_init(bars.q_empty + i, Shape::kWarps);
      barrier_init(bars.k_full + i, 1);
      barrier_init(bars.k_empty + i, Shape::kWarps);
      barrier_init(bars.v_full + i, 1);
      barrier_init(bars.v_empty + i, Shape::kWarps);
      barrier_init(bars.tile_full + i, 1);
      barrier_init(bars.tile_taken + i, 1);
    }
    barrier_init(bars.v_raw, 1);
    barrier_init_done();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);  // the same across a warp, provably
  if (warpgroup == 0) {
    give_registers<Shape::kProducerRegisters>();
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
    if (warp == 0) {
      Producer<Shape>{a, maps, launch, base, shared, bars, lane}.run();
    } else if (warp == 1) {
      Scheduler<Shape>{a, maps, launch, shared, bars, lane}.run();
    }
  } else {
    take_registers<Shape::kConsumerRegisters>();
    Consumer<Shape> consumer(a, maps, launch, base, shared, warpgroup - 1);
    consumer.run();
  }
}

}  // namespace tsr::cuda::sm90
