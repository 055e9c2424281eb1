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

#include "../common/convert.cuh"
#include "../common/score.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "schedule.cuh"

namespace tsr::cuda::sm90 {

template <class T, int kDim_, int kValueDim_, int kKeys_, int kConsumers_ = 2, bool kScored_ = false>
struct Shape {
  using Element = T;
  static constexpr bool kScored = kScored_;  ///< with a soft cap or ALiBi
  static constexpr int kDim = kDim_, kValueDim = kValueDim_, kKeys = kKeys_, kConsumers = kConsumers_;
  static constexpr int kWarpgroupRows = 64, kRows = kConsumers * kWarpgroupRows, kWarps = kConsumers * 4;
  static constexpr int kThreads = (kConsumers + 1) * 128, kStages = 2;
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 232;
  static constexpr int kQBytes = kRows * kDim * 2, kKBytes = kKeys * kDim * 2, kVBytes = kKeys * kValueDim * 2;
  static constexpr int kCopiesBytes = kStages * (kKBytes + kVBytes), kMost = 232448 - 1024;
  /// O leaves in parts of so many columns: fewer where shared memory is short.
  static constexpr int kOutColumns = kValueDim % 128 == 0 && kCopiesBytes + kQBytes + kWarps * 4096 <= kMost ? 128 : 64;
  static constexpr int kOutWarpBytes = 16 * kOutColumns * 2;
  static constexpr int kQSlots = kCopiesBytes + 2 * kQBytes + kWarps * kOutWarpBytes <= kMost ? 2 : 1;
  static constexpr int kQAt = 0, kKAt = kQAt + kQSlots * kQBytes, kVAt = kKAt + kStages * kKBytes;
  static constexpr int kOutAt = kVAt + kStages * kVBytes;
  static constexpr int kBarriersAt = kOutAt + kWarps * kOutWarpBytes;
  static constexpr int kTilesAt = kBarriersAt + 192;
  static constexpr int kTileRing =
      8;  ///< the scheduler is up to three tiles ahead of a consumer, which looks back at one
  static constexpr int kTileBytes = (sizeof(Tile) + 15) / 16 * 16;
  static constexpr int kSharedBytes = kTilesAt + kTileRing * kTileBytes;
  static constexpr int kScratchAt = kBarriersAt + 144;
};

/// Addresses of the barriers. All but v_raw are pairs: stage, slot or tile 0 and 1.
struct Barriers {
  uint32_t q_full, q_empty, k_full, k_empty, v_full, v_empty, v_raw, tile_full, tile_taken;
  __device__ __forceinline__ explicit Barriers(uint32_t at)
      : q_full(at),
        q_empty(at + 16),
        k_full(at + 32),
        k_empty(at + 48),
        v_full(at + 64),
        v_empty(at + 80),
        v_raw(at + 96),
        tile_full(at + 112),
        tile_taken(at + 128) {}
};

// ------------------------------------------------------------------------------------------------ producer

template <class Shape>
__device__ __forceinline__ Tile& tile_ring(char* shared, uint32_t n) {
  return reinterpret_cast<Tile*>(shared + Shape::kTilesAt + n % Shape::kTileRing * Shape::kTileBytes)[0];
}

/// A warp that works out what the block does next, a tile ahead of the copies. That takes about as long as a key tile.
template <class Shape>
struct Scheduler {
  const Attention& a;
  const Maps& maps;
  const Launch& launch;
  char* const shared;
  const Barriers bars;
  const int lane;

  __device__ __forceinline__ uint32_t fetch() const {
    if (launch.counter == nullptr) return launch.total;  // nothing is left
    uint32_t index = 0;
    wait_for_earlier_kernel();  // the one that set the counter to 0
    if (lane == 0) index = atomicAdd(launch.counter, 1u) + gridDim.x;
    return __shfl_sync(~0u, index, 0);
  }
  __device__ __forceinline__ void run() const {
    uint32_t index = blockIdx.x;
    for (uint32_t n = 0;; ++n) {
      if (n > 0) {  // no more than a tile ahead: what is taken early can't go to whoever is idle
        barrier_wait(bars.tile_taken + 8 * ((n - 1) & 1), (n - 1) >> 1 & 1);
        index = fetch();
      }
      sm80::Place place{0, 0, 0, false};
      while (index < launch.total) {
        place = sm80::place_of(a, launch.order, index, Shape::kRows);
        if (place.real) break;
        index = fetch();
      }
      if (lane == 0) {
        Tile& t = tile_ring<Shape>(shared, n);
        t.steps = 0;
        if (place.real) make_tile<Shape::kRows, Shape::kKeys>(a, place, t);
        barrier_arrive(bars.tile_full + 8 * (n & 1));
        if (Shape::kQSlots == 1 && place.real) {
#pragma unroll 1
          for (int part = 0; part < Shape::kConsumers * (Shape::kDim / 64); ++part) {
            prefetch_box(&maps.q, part % (Shape::kDim / 64) * 64,
                         t.query_row + t.first_query + part / (Shape::kDim / 64) * Shape::kWarpgroupRows, t.head,
                         a.packed_q ? 0 : t.batch);
          }
        }
      }
      __syncwarp();
      if (!place.real) return;
    }
  }
};

/// A warp that asks for everything that is copied.
template <class Shape>
struct Producer {
  const Attention& a;
  const Maps& maps;
  const Launch& launch;
  const uint32_t base;
  char* const shared;
  const Barriers bars;
  const int lane;

  /// Announces the n-th tile of this block to the consumers and asks for its Q. Its slot must be free.
  __device__ __forceinline__ void open(uint32_t n) const {
    const int slot = n % Shape::kQSlots;
    if (lane == 0) {
      const Tile& t = tile_ring<Shape>(shared, n);
      if (t.steps == 0) {
        barrier_arrive(bars.q_full + 8 * slot);
      } else {
        const int row = t.query_row + t.first_query, head = t.head, batch = a.packed_q ? 0 : t.batch;
        barrier_expect(bars.q_full + 8 * slot, Shape::kQBytes);
#pragma unroll 1
        for (int part = 0; part < Shape::kConsumers * (Shape::kDim / 64); ++part) {
          copy_box(base + Shape::kQAt + slot * Shape::kQBytes + part * 64 * 128, &maps.q, bars.q_full + 8 * slot,
                   part % (Shape::kDim / 64) * 64, row + part / (Shape::kDim / 64) * Shape::kWarpgroupRows, head,
                   batch);
        }
      }
    }
    __syncwarp();
  }

  /// Asks for a tile of keys or values, on `barrier`.
  template <int kTileDim>
  __device__ __forceinline__ void copy_tile(const Tile& t, const CUtensorMap* map, int first_key, uint32_t to,
                                            uint32_t barrier) const {
    if (lane != 0) return;
    const int head = t.kv_head;
    constexpr int kColumns = kTileDim / 64, kPartBytes = Shape::kKeys * 128;
    if (!a.paged()) {
      barrier_expect(barrier, Shape::kKeys * kTileDim * 2);
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        copy_box(to + column * kPartBytes, map, barrier, column * 64, t.key_row + first_key, head,
                 a.packed_k ? 0 : t.batch);
      }
      return;
    }
    // Pages behind the sequence's last key aren't looked up; what is left in their place is cleaned, or hidden.
    const int rows = t.count - first_key < Shape::kKeys ? t.count - first_key : Shape::kKeys;
    const int boxes = rows > 0 ? (rows + launch.box_rows - 1) / launch.box_rows : 0;
    barrier_expect(barrier, boxes * launch.box_rows * kTileDim * 2);
    const auto page_size = static_cast<int>(a.page_size);
    const int32_t* const pages = a.page_table + t.batch * a.page_table_stride;
#pragma unroll 1
    for (int box = 0; box < boxes; ++box) {
      const int key = first_key + box * launch.box_rows;
      const auto page = static_cast<int>(clamped(pages[key / page_size], 0, a.page_count - 1));
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        copy_box(to + column * kPartBytes + box * launch.box_rows * 128, map, barrier, column * 64, key % page_size,
                 head, page);
      }
    }
  }

  __device__ __forceinline__ void load_k(const Tile& t, uint32_t n, int first_key) const {
    const int stage = n & 1;
    barrier_wait(bars.k_empty + 8 * stage, ((n >> 1) & 1) ^ 1);
    copy_tile<Shape::kDim>(t, &maps.k, first_key, base + Shape::kKAt + stage * Shape::kKBytes, bars.k_full + 8 * stage);
    __syncwarp();
  }

  /// Values of keys that no query of the sequence sees may be anything, and 0 x NaN is NaN: where the tile has such, the
  /// producer waits for its copy and makes them zero before the consumers hear of it.
  __device__ __forceinline__ void load_v(const Tile& t, uint32_t n, int first_key, uint32_t& cleaned) const {
    const int stage = n & 1;
    barrier_wait(bars.v_empty + 8 * stage, ((n >> 1) & 1) ^ 1);
    const uint32_t to = Shape::kVAt + stage * Shape::kVBytes;
    const bool dirty = t.clean_from > first_key || t.clean_to < first_key + Shape::kKeys;
    copy_tile<Shape::kValueDim>(t, &maps.v, first_key, base + to,
                                (dirty ? bars.v_raw : bars.v_full) + 8 * (dirty ? 0 : stage));
    if (dirty) {
      barrier_wait(bars.v_raw, cleaned & 1);
      ++cleaned;
      const int from = t.clean_from - first_key, until = t.clean_to - first_key;
#pragma unroll 1
      for (int row = lane / 8; row < Shape::kKeys; row += 4) {
        if (row >= from && row < until) continue;
#pragma unroll
        for (int column = 0; column < Shape::kValueDim / 64; ++column) {
          *reinterpret_cast<uint4*>(shared + to + (column * Shape::kKeys + row) * 128 + lane % 8 * 16) =
              uint4{0, 0, 0, 0};
        }
      }
      fence_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(bars.v_full + 8 * stage);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void run() {
    uint32_t done = 0, cleaned = 0;  // key tiles, tiles of values that had to be cleaned
    barrier_wait(bars.tile_full, 0);
    open(0);
    for (uint32_t n = 0;; ++n) {
      const Tile& t = tile_ring<Shape>(shared, n);
      const int steps = __shfl_sync(~0u, t.steps, 0);
      if (steps == 0) return;
      if (lane == 0) barrier_arrive(bars.tile_taken + 8 * (n & 1));
      __syncwarp();
      const int ask = steps < 2 ? steps : 2;
      for (int j = 0; j <= steps; ++j) {  // K one tile ahead of V: the order in which they are used
        if (j < steps) load_k(t, done + j, t.last_key - j * Shape::kKeys);
        if (j > 0) load_v(t, done + j - 1, t.last_key - (j - 1) * Shape::kKeys, cleaned);
        if (j == ask && Shape::kQSlots == 2) {
          barrier_wait(bars.tile_full + 8 * ((n + 1) & 1), (n + 1) >> 1 & 1);
          barrier_wait(bars.q_empty + 8 * ((n + 1) & 1), (((n + 1) >> 1) & 1) ^ 1);
          open(n + 1);
        }
      }
      done += steps;
      if (Shape::kQSlots == 1) {  // Q is read for the last time with the last key tile
        barrier_wait(bars.tile_full + 8 * ((n + 1) & 1), (n + 1) >> 1 & 1);
        barrier_wait(bars.k_empty + 8 * ((done - 1) & 1), ((done - 1) >> 1) & 1);
        open(n + 1);
      }
    }
  }
};

// ------------------------------------------------------------------------------------------------ consumers

__device__ __forceinline__ float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

/// State of a thread's two rows, g and g + 8 of its warp's 16.
struct RowState {
  float maximum[2];  ///< unscaled
  float sum[2];      ///< of this lane's keys
};

/// What older sums of the two rows shrink by; wanted: if it isn't 1 for all of the warp's.
struct Rescale {
  float by[2];
  bool wanted[2];
};

/// Scores to weights 2^(factor (score - maximum)), factor > 0. kFirst: the row's first tile. Calls middle(x) once n8 block
/// kMiddle - 1 is through, x being a value of that moment.
template <bool kFirst, int kMiddle, int kCount, class Middle>
__device__ __forceinline__ void softmax(float (&s)[kCount], RowState& rows, Rescale& rescale, float factor, float power,
                                        Middle&& middle) {
  float top[2][2] = {{s[0], s[1]}, {s[2], s[3]}};
#pragma unroll
  for (int i = 1; i < kCount / 4; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) top[k >> 1][k & 1] = fmaxf(top[k >> 1][k & 1], s[4 * i + k]);
  }
  float next[2] = {max_of_quad(fmaxf(top[0][0], top[0][1])), max_of_quad(fmaxf(top[1][0], top[1][1]))};
  if (!kFirst) {
    next[0] = fmaxf(next[0], rows.maximum[0]);
    next[1] = fmaxf(next[1], rows.maximum[1]);
    rescale.wanted[0] = __any_sync(~0u, next[0] > rows.maximum[0]);
    rescale.wanted[1] = __any_sync(~0u, next[1] > rows.maximum[1]);
  }
  const RowFactor row[2] = {row_factor(next[0], factor, power), row_factor(next[1], factor, power)};
  if (!kFirst) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      rescale.by[k] = exp2_fast(__fsub_rn(__fmul_rn(rows.maximum[k], row[k].by), row[k].base));
      rows.sum[k] *= rescale.by[k];
    }
  }
  rows.maximum[0] = next[0];
  rows.maximum[1] = next[1];
  float sum[2][2] = {};
  if (kMiddle == 0) middle(row[0].base);
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      s[4 * i + k] = exp2_fast(__fmaf_rn(s[4 * i + k], row[k >> 1].by, -row[k >> 1].base));
      sum[k >> 1][k & 1] += s[4 * i + k];
    }
    if (i == kMiddle - 1) middle(sum[1][1]);
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) rows.sum[k] = (kFirst ? 0.0f : rows.sum[k]) + (sum[k][0] + sum[k][1]);
}

template <class Shape>
struct Consumer {
  using T = typename Shape::Element;
  static constexpr int kScores = Shape::kKeys / 2, kOuts = Shape::kValueDim / 2, kWeights = Shape::kKeys / 4;
  static constexpr bool kTwoSums = Shape::kDim > 128;
  static constexpr int kPart = kTwoSums ? Shape::kDim / 32 : Shape::kDim / 16;  ///< k16 steps of a sum
  /// Registers for S, O and P of one moment only: P V is issued before the next S, not after it.
  static constexpr bool kLate = kTwoSums && 2 * kScores + kOuts + kWeights > 190;
  /// O leaves through the copy engine. With three consumers the branch that it takes costs registers; in two parts it waits.
  static constexpr bool kCopyOut = Shape::kConsumers == 2 && Shape::kValueDim == Shape::kOutColumns;
  static constexpr int kWaitAt = kLate ? -1 : 4;  ///< the n8 block of softmax behind which P V is waited for
  /// O of a query tile leaves while the first S of the next but one key tile is made; it takes registers beside S and P.
  static constexpr bool kShadow = !kLate && Shape::kConsumers == 2;
  /// k16 steps whose Q is held in registers: such a step of Q K^T reads a third less of shared memory, with 64 keys half.
  /// As many as there are registers for, one more would spill; the two that 256 dims have room for make no difference.
  static constexpr int kHeld = Shape::kConsumers == 3 || Shape::kDim == 256 ? 0
                               : !kTwoSums                                  ? Shape::kDim / 16
                               : Shape::kValueDim == 128                    ? (Shape::kScored ? 0 : 2)
                                                                            : 5;

  const Attention& a;
  const Maps& maps;
  const Launch& launch;
  const uint32_t base;
  char* const shared;
  const Barriers bars;
  const int group;  ///< which consumer; the same across the warp, and known to be
  const int lane;
  const uint64_t k_tile, v_tile, q_first;
  uint64_t q_tile;
  uint32_t done = 0;  ///< key tiles
  float s[kScores], o[kOuts];
  float rest[kTwoSums ? kScores : 1];
  uint32_t p[kWeights];
  uint32_t q[kHeld > 0 ? kHeld * 4 : 1];  ///< of those, as A operands
  RowState rows, ended;                   ///< of this query tile, and of the one whose O is about to leave
  Rescale rescale;

  __device__ __forceinline__ Consumer(const Attention& attention, const Maps& maps, const Launch& launch, uint32_t base,
                                      char* shared, int group)
      : a(attention),
        maps(maps),
        launch(launch),
        base(base),
        shared(shared),
        bars(base + Shape::kBarriersAt),
        group(group),
        lane(threadIdx.x & 31),
        k_tile(descriptor(base + Shape::kKAt, 16, 1024)),
        v_tile(descriptor(base + Shape::kVAt, Shape::kKeys * 128, 1024)),
        q_first(descriptor(base + Shape::kQAt + group * Shape::kWarpgroupRows * Shape::kDim * 2, 16, 1024)),
        q_tile(q_first) {}

  __device__ __forceinline__ const Tile& ring(uint32_t n) const { return tile_ring<Shape>(shared, n); }
  /// From here on Q is what `slot` holds.
  __device__ __forceinline__ void take_q(int slot) {
    const int thread = thread_read_anew(), row = (thread / 32 & 3) * 16 + (thread & 15);
    const uint32_t at =
        base + Shape::kQAt + slot * Shape::kQBytes + (group * Shape::kWarpgroupRows * Shape::kDim * 2 + row * 128);
#pragma unroll
    for (int d = 0; d < kHeld; ++d) {
      load_matrix_x4(q + 4 * d,
                     at + d / 4 * (Shape::kWarpgroupRows * 128) + ((d % 4 * 2 + (thread >> 4 & 1) ^ (row & 7)) << 4));
    }
    q_tile = q_first + slot * (Shape::kQBytes >> 4);
  }
  /// Issues S = Q K^T. The tensor cores cut sums off, so that long sums of one sign drift: 128 dims at most go into one, and the
  /// rest into another (scores_done adds them).
  __device__ __forceinline__ void multiply_qk(int stage) {
    multiply_qk_part<0>(s, stage);
    if constexpr (kTwoSums) multiply_qk_part<kPart>(rest, stage);
  }
  template <class Q>
  __device__ __forceinline__ static void multiply_qk_step(float (&to)[kScores], Q q_at, uint64_t k_at, bool first) {
    if (first) {
      Wgmma<T, Shape::kKeys>::first(to, q_at, k_at);
    } else {
      Wgmma<T, Shape::kKeys>::more(to, q_at, k_at);
    }
  }
  template <int kFrom>
  __device__ __forceinline__ void multiply_qk_part(float (&to)[kScores], int stage) {
    const uint64_t k = k_tile + stage * (Shape::kKBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int d = kFrom; d < kFrom + kPart; ++d) {
      const uint64_t k_at = k + d / 4 * (Shape::kKeys * 128 >> 4) + d % 4 * 2;
      if (d < kHeld) {
        multiply_qk_step(to, q + 4 * d, k_at, d == kFrom);
      } else {
        multiply_qk_step(to, q_tile + d / 4 * (Shape::kWarpgroupRows * 128 >> 4) + d % 4 * 2, k_at, d == kFrom);
      }
    }
    wgmma_commit();
  }
  /// Waits for S; kPending groups issued after it may be under way.
  template <int kPending>
  __device__ __forceinline__ void scores_done() {
    wgmma_wait<kPending>(s);
    if constexpr (kTwoSums) {
      wgmma_wait<kPending>(rest);
#pragma unroll
      for (int e = 0; e < kScores; ++e) s[e] += rest[e];
    }
  }
  /// Issues O += P V, or O = P V if it is the tile's first.
  template <bool kFirst>
  __device__ __forceinline__ void multiply_pv(int stage) {
    const uint64_t v = v_tile + stage * (Shape::kVBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 16; ++j) {
      const uint64_t v_at = v + j * (16 * 128 >> 4);
      if (kFirst && j == 0) {
        Wgmma<T, Shape::kValueDim>::set(o, p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3], v_at);
      } else {
        Wgmma<T, Shape::kValueDim>::add(o, p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3], v_at);
      }
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void my_turn() const { named_sync(2 + group, 256); }
  __device__ __forceinline__ void next_turn() const {
    named_arrive(group == Shape::kConsumers - 1 ? 2 : 3 + group, 256);
  }

  /// Of a row's elements in this thread, those of keys below `end`, counted from the thread's first key: two of each eight.
  static __device__ __forceinline__ int elements_below(int end) { return (end >> 3) * 2 + min(end & 7, 2); }
  /// Hides what rows don't see by structure; `key` is the tile's first.
  __device__ __forceinline__ void mask(const Tile& t, int key) {
    const int thread = thread_read_anew();
    const int column = key + thread % 4 * 2;
    const int row = group * Shape::kWarpgroupRows + (thread / 32 & 3) * 16 + (thread & 31) / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = t.first_query + row + half * 8;
      const int begin = elements_below(i + t.low - column);
      const int end = elements_below(min(i >= t.queries ? 0 : i + t.high, t.count) - column);
#pragma unroll
      for (int word = 0; word < (kScores + 63) / 64; ++word) {
        const uint32_t visible = low_bits(end - word * 32) & ~low_bits(begin - word * 32);
#pragma unroll
        for (int bit = 0; bit < 32 && word * 64 + bit * 2 < kScores; ++bit) {
          float& x = s[word * 64 + bit / 2 * 4 + half * 2 + bit % 2];
          x = visible & 1u << bit ? x : TSR_NEG_INF;
        }
      }
    }
  }

  /// Soft cap and ALiBi on the tile of keys from `key` on. With ALiBi S is in natural units afterwards, else softcap (without one, scale) times them.
  __device__ __forceinline__ void score(const Tile& t, int key) {
    if (a.softcap > 0) {
      const float inner = cap_factor(fabsf(a.scale), a.softcap);
#pragma unroll
      for (int e = 0; e < kScores; ++e) s[e] = tanh_of(s[e] * inner);
    }
    if (a.alibi_slopes == nullptr) return;
    const float unit = a.softcap > 0 ? a.softcap : fabsf(a.scale), slope = a.alibi_slopes[t.head];
    const int thread = thread_read_anew();
    const int64_t first = int64_t{t.first_query} + group * Shape::kWarpgroupRows + (thread / 32 & 3) * 16 +
                          (thread & 31) / 4 + t.offset - key - thread % 4 * 2;
    const float distance[2] = {static_cast<float>(first), static_cast<float>(first + 8)};
#pragma unroll
    for (int e = 0; e < kScores; ++e) {
      s[e] = __fmaf_rn(s[e], unit, -slope * fabsf(distance[e >> 1 & 1] - static_cast<float>(e / 4 * 8 + e % 2)));
    }
  }

  __device__ __forceinline__ void round_weights() {
#pragma unroll
    for (int i = 0; i < kWeights; ++i) p[i] = pack_pair<T>(s[2 * i], s[2 * i + 1]);
  }
  __device__ __forceinline__ void shrink_out() {
    if (rescale.wanted[0]) {
#pragma unroll
      for (int e = 0; e < kOuts; ++e) {
        if (e & 2) continue;
        o[e] *= rescale.by[e >> 1 & 1];
      }
    }
    if (rescale.wanted[1]) {
#pragma unroll
      for (int e = 2; e < kOuts; e += 4) {
        o[e] *= rescale.by[1];
        o[e + 1] *= rescale.by[1];
      }
    }
  }
  /// Ends the rows of a query tile: stores lse, and tells what O is still to be multiplied by.
  __device__ __forceinline__ void end_rows(const Tile& t, const RowState& of, float (&factors)[2]) const {
    const int thread = thread_read_anew(), lane = thread & 31, warp = thread / 32 & 3;
    const int first_row = t.first_query + group * Shape::kWarpgroupRows + warp * 16;
    const auto last_row = static_cast<int>(a.packed_q ? t.queries : a.query_rows);
    float top[2] = {of.maximum[0] * launch.factor, of.maximum[1] * launch.factor};
    float sum[2] = {sum_of_quad(of.sum[0]), sum_of_quad(of.sum[1])};
    factors[0] = factors[1] = 1.0f;
    if (a.sinks != nullptr) {                                 // one more weight; a row that saw nothing has it alone
      const float sink = __fmul_rn(a.sinks[t.head], kLog2e);  // not fused with what follows
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float next = fmaxf(top[half], sink), base = next == TSR_NEG_INF ? 0.0f : next;
        factors[half] = exp2_fast(top[half] - base);
        sum[half] = sum[half] * factors[half] + exp2_fast(sink - base);
        top[half] = next;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = first_row + lane / 4 + half * 8;
      const bool none = sum[half] == 0 || i >= t.queries;  // it saw nothing, or is padding
      factors[half] = none ? 0.0f : __fdividef(factors[half], sum[half]);
      if (a.lse.given()) {
        const float lse = none ? TSR_NEG_INF : __fmaf_rn(top[half], kLn2, __logf(sum[half]));
        store_if(a.lse.at(t.batch, t.query_row + i, t.head), lse, lane % 4 == 0 && i < last_row);
      }
    }
  }
  /// Normalises O and stores it, a warp at a time, kOutColumns columns at a time through shared memory of its own, in 64-column
  /// parts in TMA's swizzle.
  __device__ __forceinline__ void finish(const Tile& t, const RowState& of) {
    const int thread = thread_read_anew(), lane = thread & 31, warp = thread / 32 & 3;
    constexpr int kColumns = Shape::kOutColumns, kChunks = kColumns / 8, kCopies = 16 * kChunks / 32;
    const int stage_at = Shape::kOutAt + (group * 4 + warp) * Shape::kOutWarpBytes;
    const int first_row = t.first_query + group * Shape::kWarpgroupRows + warp * 16;
    const auto last_row = static_cast<int>(a.packed_q ? t.queries : a.query_rows);
    float factors[2];
    end_rows(t, of, factors);
    // A row that saw nothing may hold 0 x NaN of another row's V.
    if (__any_sync(~0u, factors[0] == 0 || factors[1] == 0)) {
#pragma unroll
      for (int e = 0; e < kOuts; ++e) o[e] = factors[e >> 1 & 1] == 0 ? 0.0f : o[e];
    }
    // The copy engine leaves out rows behind the tensor's end, but not those behind a sequence's.
    const bool whole = kCopyOut && (!a.packed_q || first_row + 16 <= last_row);
#pragma unroll
    for (int part = 0; part < Shape::kValueDim / kColumns; ++part) {
      if (kCopyOut) copies_out_read();  // of the tile before
      __syncwarp();
      if (a.out.type == Type::kF16) {
        stage_out<__half>(part, base + stage_at, lane, factors);
      } else {
        stage_out<__nv_bfloat16>(part, base + stage_at, lane, factors);
      }
      if (kCopyOut) fence_async();
      __syncwarp();
      if (whole) {
        if (lane == 0) {
#pragma unroll
          for (int column = 0; column < kColumns / 64; ++column) {
            copy_box_out(&maps.out, base + stage_at + column * 2048, part * kColumns + column * 64,
                         t.query_row + first_row, t.head, a.packed_q ? 0 : t.batch);
          }
          copies_out_commit();
        }
        continue;
      }
      const int row = lane / kChunks, chunk = lane % kChunks;
      const int64_t out_step = a.out.row * (32 / kChunks);
      char* at = a.out.at(t.batch, t.query_row + first_row + row, t.head) + part * kColumns * 2 + chunk * 16;
      const int rows_wanted = part * kColumns + chunk * 8 < a.value_dim ? last_row - first_row - row : 0;
      uint4 value[kCopies];
#pragma unroll
      for (int step = 0; step < kCopies; ++step) {
        const int r = row + step * (32 / kChunks);
        value[step] = *reinterpret_cast<const uint4*>(shared + stage_at + chunk / 8 * 2048 + r * 128 +
                                                      ((chunk & 7 ^ (r & 7)) << 4));
      }
#pragma unroll
      for (int step = 0; step < kCopies; ++step) {
        store_if(at, value[step], step * (32 / kChunks) < rows_wanted);
        at += out_step;
      }
    }
  }
  template <class Out>
  __device__ __forceinline__ void stage_out(int part, uint32_t stage, int lane, const float (&factors)[2]) const {
    constexpr int kChunks = Shape::kOutColumns / 8;
    const auto pair = [&](int e) { return pack_pair<Out>(o[e] * factors[e >> 1 & 1], o[e + 1] * factors[e >> 1 & 1]); };
    const uint32_t row_at = stage + (lane & 15) * 128;
#pragma unroll
    for (int n = 0; n < kChunks; n += 2) {
      const int e = (part * kChunks + n) * 4;
      store_matrix_x4(row_at + n / 8 * 2048 + (((n & 7) + (lane >> 4) ^ (lane & 7)) << 4), pair(e), pair(e + 2),
                      pair(e + 4), pair(e + 6));
    }
  }

  /// Issues S of the next key tile, then P V of this one; softmax of the next comes between the two waits. What has to happen
  /// to O before P V does so while S is made. kFirst: this key tile is its query tile's first, and the O of the query tile
  /// before it leaves now (`leaves`: there is one). kBoundary: the next key tile is the first of the next query tile, `next`.
  template <bool kFirst, bool kBoundary, bool kMasked>
  __device__ __forceinline__ void step(const Tile& next, int key, bool masked, const Tile& before, bool leaves) {
    const int v_stage = done & 1, v_parity = (done >> 1) & 1, k_stage = (done + 1) & 1,
              k_parity = ((done + 1) >> 1) & 1;
    const auto values_done = [&](float x) {
      pin(x, base + Shape::kScratchAt);
      wgmma_wait<0>(o);
      if (lane == 0) barrier_arrive(bars.v_empty + 8 * v_stage);
    };
    if constexpr (kLate) {
      barrier_wait(bars.v_full + 8 * v_stage, v_parity);
      my_turn();
      multiply_pv<kFirst>(v_stage);
      if (kBoundary) {
        next_turn();
        wgmma_wait<0>(o);
        if (lane == 0) barrier_arrive(bars.v_empty + 8 * v_stage);
        finish(before, rows);
        barrier_wait(bars.k_full + 8 * k_stage, k_parity);
        multiply_qk(k_stage);
      } else {
        barrier_wait(bars.k_full + 8 * k_stage, k_parity);
        multiply_qk_part<0>(s, k_stage);
        wgmma_wait<1>(o);  // P's registers are those of the second sum
        multiply_qk_part<kPart>(rest, k_stage);
        next_turn();
        if (lane == 0) barrier_arrive(bars.v_empty + 8 * v_stage);
      }
      scores_done<0>();
    } else {
      barrier_wait(bars.k_full + 8 * k_stage, k_parity);
      my_turn();
      multiply_qk(k_stage);
      if (kFirst) {
        if (kShadow && leaves) finish(before, ended);
      } else {
        shrink_out();
      }
      barrier_wait(bars.v_full + 8 * v_stage, v_parity);
      multiply_pv<kFirst>(v_stage);
      next_turn();
      scores_done<1>();
    }
    if (lane == 0) barrier_arrive(bars.k_empty + 8 * k_stage);
    if (Shape::kScored) score(next, key);
    if (kMasked && masked) mask(next, key);
    if (kBoundary) {
      if (!kLate) ended = rows;
      softmax<true, kWaitAt>(s, rows, rescale, launch.factor, launch.power, values_done);
      round_weights();
      if (!kLate && !kShadow) finish(before, ended);
    } else {
      softmax<false, kWaitAt>(s, rows, rescale, launch.factor, launch.power, values_done);
      round_weights();
      if (kLate) shrink_out();
    }
    ++done;
  }

  /// A negative scale becomes a positive one by negating Q, exactly.
  __device__ __forceinline__ void negate_q(int slot) {
    uint32_t* const q = reinterpret_cast<uint32_t*>(shared + Shape::kQAt + slot * Shape::kQBytes +
                                                    group * Shape::kWarpgroupRows * Shape::kDim * 2) +
                        (thread_read_anew() & 127);
#pragma unroll 1
    for (int i = 0; i < Shape::kWarpgroupRows * Shape::kDim / 2; i += 128) q[i] ^= 0x80008000u;
    fence_async();
    named_sync(5 + group, 128);
  }

  __device__ __forceinline__ void run() {
    const bool negate = a.scale < 0;
    if (group == Shape::kConsumers - 1) next_turn();
    barrier_wait(bars.q_full, 0);
    if (__shfl_sync(~0u, ring(0).steps, 0) == 0) return;
    if (negate) negate_q(0);
    take_q(0);
    barrier_wait(bars.k_full, 0);
    multiply_qk(0);
    scores_done<0>();
    if (lane == 0) barrier_arrive(bars.k_empty);
    if (Shape::kScored) score(ring(0), ring(0).last_key);
    mask(ring(0), ring(0).last_key);
    softmax<true, -1>(s, rows, rescale, launch.factor, launch.power, [](float) {});
    round_weights();
    for (uint32_t n = 0;; ++n) {
      const Tile& t = ring(n);
      const Tile& before = ring(n - 1);
      const int steps = __shfl_sync(~0u, t.steps, 0), masked = __shfl_sync(~0u, t.masked, 0);
      const int unmasked = __shfl_sync(~0u, t.unmasked, 0);
      int key = __shfl_sync(~0u, t.last_key, 0);
      // The step after a tile's first is behind us at its start; the step of its last is the boundary's.
      int j = 1;
      if (steps > 1) {
        step<true, false, true>(t, key -= Shape::kKeys, masked > 1 || masked + unmasked < 2, before, n > 0);
        j = 2;
      }
      for (; j < masked; ++j) step<false, false, true>(t, key -= Shape::kKeys, true, t, false);
      for (const int until = masked + unmasked; j < until; ++j)
        step<false, false, false>(t, key -= Shape::kKeys, false, t, false);
      for (; j < steps; ++j) step<false, false, true>(t, key -= Shape::kKeys, true, t, false);
      const int slot = n % Shape::kQSlots, next_slot = (n + 1) % Shape::kQSlots;
      if (Shape::kQSlots == 2 && lane == 0) barrier_arrive(bars.q_empty + 8 * slot);
      barrier_wait(bars.q_full + 8 * next_slot, (n + 1) / Shape::kQSlots & 1);
      const Tile& next = ring(n + 1);
      const bool last = __shfl_sync(~0u, next.steps, 0) == 0;
      if (last) {
        finish_all(t, before, steps == 1, n > 0);
        return;
      }
      if (negate) negate_q(next_slot);
      take_q(next_slot);
      const int next_key = __shfl_sync(~0u, next.last_key, 0);
      const bool next_masked = __shfl_sync(~0u, next.masked, 0) > 0;
      if (steps == 1) {
        step<true, true, true>(next, next_key, next_masked, kShadow ? before : t, n > 0);
      } else {
        step<false, true, true>(next, next_key, next_masked, t, false);
      }
    }
  }
  /// The last P V of a block's last tile.
  __device__ __forceinline__ void finish_all(const Tile& t, const Tile& before, bool first, bool leaves) {
    barrier_wait(bars.v_full + 8 * (done & 1), (done >> 1) & 1);
    if (first) {
      if (kShadow && leaves) finish(before, ended);
      multiply_pv<true>(done & 1);
      wgmma_wait<0>(o);
    } else {
      if (!kLate) shrink_out();
      multiply_pv<false>(done & 1);
      wgmma_wait<0>(o);
    }
    finish(t, rows);
    if (kCopyOut) copies_out_read();
  }
};

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
