// Fused attention for Hopper (sm_90a): q, k, v of one 16-bit type T, wgmma with fp32 sums, tiles brought by TMA.
//
// A persistent block an SM, three warpgroups. Warpgroup 0 is the producer (one warp: takes query tiles from a counter, copies
// Q, K and V); warpgroups 1 and 2 own 64 query rows each of a 128-row tile. Keys go by in tiles of kKeys from the last that
// the tile sees to the first. A consumer's step: issue S(j+1) = Q K^T, issue O += P(j) V(j), wait for S, mask it or not, new
// maximum and exponentials (the wait for P V sits four n8 blocks in), round to T: P(j+1) stays in registers. At a query tile's
// end "j + 1" is the next query tile's first key tile: products stay queued across the boundary, and O leaves during that step.
// Named barriers make the two consumers take turns: one multiplies while the other exponentiates.
//
// Registers: 168 at entry; setmaxnreg makes it 40 (producer) and 232 (consumers: S kKeys / 2, O kValueDim / 2, P kKeys / 4).
// Shared memory: Q kQSlots x 128 x kDim, K and V two stages each, an O stage of 4 KB a warp, barriers, tiles. Tiles are
// 64-column parts in TMA's 128-byte swizzle. K is wgmma's K-major B operand, V its MN-major one.
//
// What keeps it fast and does not show in the source:
//  - The compiler must prove descriptors and loop control the same across a warp, else every wgmma waits for an R2UR. Hence
//    the shuffles, and plain nested loops: steps with a mask, without, with.
//  - ptxas moves the wait for P V over arithmetic; pin() keeps it where it is.
//  - The next tile's Q is asked for two key tiles into this one, and the counter's answer isn't waited for.
#pragma once

#include "../common/output.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "schedule.cuh"

namespace tsr::cuda::sm90 {

template <class T, int kDim_, int kValueDim_, int kKeys_>
struct Shape {
  using Element = T;
  static constexpr int kDim = kDim_, kValueDim = kValueDim_, kKeys = kKeys_;
  static constexpr int kRows = 128, kWarpgroupRows = 64, kThreads = 384, kStages = 2;
  static constexpr int kQSlots = kDim > 128 ? 1 : 2;
  static constexpr int kQBytes = kRows * kDim * 2, kKBytes = kKeys * kDim * 2, kVBytes = kKeys * kValueDim * 2;
  static constexpr int kQAt = 0, kKAt = kQAt + kQSlots * kQBytes, kVAt = kKAt + kStages * kKBytes;
  static constexpr int kOutAt = kVAt + kStages * kVBytes, kOutWarpBytes = 16 * (kValueDim < 128 ? kValueDim : 128) * 2;
  static constexpr int kBarriersAt = kOutAt + 8 * kOutWarpBytes;
  static constexpr int kTilesAt = kBarriersAt + 128;
  static constexpr int kTileRing = 4;  ///< the producer is at most two tiles ahead
  static constexpr int kSharedBytes = kTilesAt + kTileRing * 64;
  static constexpr int kScratchAt = kBarriersAt + 120;
};
static_assert(sizeof(Tile) <= 64);

/// Addresses of the barriers. Each is a pair: stage or slot 0 and 1.
struct Barriers {
  uint32_t q_full, q_empty, k_full, k_empty, v_full, v_empty, v_raw;
  __device__ __forceinline__ explicit Barriers(uint32_t at)
      : q_full(at),
        q_empty(at + 16),
        k_full(at + 32),
        k_empty(at + 48),
        v_full(at + 64),
        v_empty(at + 80),
        v_raw(at + 96) {}
};

// ------------------------------------------------------------------------------------------------ producer

template <class Shape>
struct Producer {
  const Attention& a;
  const Maps& maps;
  const Launch& launch;
  const uint32_t base;
  char* const shared;
  const Barriers bars;
  const int lane;
  uint32_t fetched = 0;  ///< lane 0: the counter's answer

  __device__ __forceinline__ Tile& ring(uint32_t n) const {
    return reinterpret_cast<Tile*>(shared + Shape::kTilesAt + n % Shape::kTileRing * 64)[0];
  }
  __device__ __forceinline__ void fetch() {
    if (lane == 0) fetched = atomicAdd(launch.counter, 1u) + gridDim.x;
  }
  __device__ __forceinline__ uint32_t next_index() const { return __shfl_sync(~0u, fetched, 0); }

  /// Announces the n-th tile of this block to the consumers and asks for its Q.
  __device__ __forceinline__ void open(uint32_t n, uint32_t index) {
    const int slot = n % Shape::kQSlots;
    const int round = n / Shape::kQSlots;
    sm80::Place place{0, 0, 0, false};
    while (index < launch.total) {
      place = sm80::place_of(a, launch.order, index, Shape::kRows);
      if (place.real) break;
      fetch();
      index = next_index();
    }
    barrier_wait(bars.q_empty + 8 * slot, (round & 1) ^ 1);
    Tile& tile = ring(n);
    if (!place.real) {
      if (lane == 0) {
        tile.steps = 0;
        barrier_arrive(bars.q_full + 8 * slot);
      }
      __syncwarp();
      return;
    }
    if (lane == 0) {
      const Tile t = tile_of<Shape::kRows, Shape::kKeys>(a, place);
      tile = t;
      barrier_expect(bars.q_full + 8 * slot, Shape::kQBytes);
      const int batch = a.packed_q ? 0 : t.batch;
#pragma unroll 1
      for (int part = 0; part < 2 * (Shape::kDim / 64); ++part) {
        const int half = part / (Shape::kDim / 64), column = part % (Shape::kDim / 64);
        copy_box(base + Shape::kQAt + slot * Shape::kQBytes + (half * (Shape::kDim / 64) + column) * 64 * 128, &maps.q,
                 bars.q_full + 8 * slot, column * 64, t.query_row + t.first_query + half * Shape::kWarpgroupRows,
                 t.head, batch);
      }
    }
    __syncwarp();
  }

  /// Asks for a tile of keys or values, on `barrier`.
  template <int kTileDim>
  __device__ __forceinline__ void copy_tile(const Tile& t, const CUtensorMap* map, int first_key, uint32_t to,
                                            uint32_t barrier) const {
    if (lane != 0) return;
    const int head = t.head / a.group;
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

  /// Keys behind which the memory that a tile's copies read ends, and reads as zeros.
  __device__ __forceinline__ int64_t readable(const Tile& t) const {
    return a.paged() ? int64_t{1} << 40 : a.packed_k ? a.key_rows - t.key_row : a.key_rows;
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
    const bool dirty = t.clean_from > first_key || (t.clean_to < first_key + Shape::kKeys && t.clean_to < readable(t));
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
    open(0, blockIdx.x);
    for (uint32_t n = 0;; ++n) {
      const Tile& t = ring(n);
      const int steps = __shfl_sync(~0u, t.steps, 0);
      if (steps == 0) return;
      fetch();
      const int ask = steps < 2 ? steps : 2;
      for (int j = 0; j <= steps; ++j) {  // K one tile ahead of V: the order in which they are used
        if (j < steps) load_k(t, done + j, t.last_key - j * Shape::kKeys);
        // With one Q slot the next Q has to wait for the end of this tile's products.
        if (j > 0) load_v(t, done + j - 1, t.last_key - (j - 1) * Shape::kKeys, cleaned);
        if (j == (Shape::kQSlots == 1 ? steps : ask)) open(n + 1, next_index());
      }
      done += steps;
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

/// Scores to weights 2^(factor (score - maximum)), factor > 0. kFirst: the row's first tile. Calls middle(x) once n8 block
/// kMiddle - 1 is through, x being a value of that moment. `rescale` is what older sums shrink by; true if any of the warp's does.
template <bool kFirst, int kMiddle, int kCount, class Middle>
__device__ __forceinline__ bool softmax(float (&s)[kCount], RowState& rows, float (&rescale)[2], float factor,
                                        Middle&& middle) {
  float top[2][2] = {{s[0], s[1]}, {s[2], s[3]}};
#pragma unroll
  for (int i = 1; i < kCount / 4; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) top[k >> 1][k & 1] = fmaxf(top[k >> 1][k & 1], s[4 * i + k]);
  }
  float next[2] = {max_of_quad(fmaxf(top[0][0], top[0][1])), max_of_quad(fmaxf(top[1][0], top[1][1]))};
  bool moves = false;
  if (!kFirst) {
    next[0] = fmaxf(next[0], rows.maximum[0]);
    next[1] = fmaxf(next[1], rows.maximum[1]);
    moves = __any_sync(~0u, next[0] > rows.maximum[0] || next[1] > rows.maximum[1]);
  }
  const float base[2] = {next[0] == TSR_NEG_INF ? 0.0f : next[0] * factor,
                         next[1] == TSR_NEG_INF ? 0.0f : next[1] * factor};
  if (!kFirst) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      rescale[k] = exp2_fast(rows.maximum[k] * factor - base[k]);
      rows.sum[k] *= rescale[k];
    }
  }
  rows.maximum[0] = next[0];
  rows.maximum[1] = next[1];
  float sum[2][2] = {};
  if (kMiddle == 0) middle(base[0]);
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      s[4 * i + k] = exp2_fast(__fmaf_rn(s[4 * i + k], factor, -base[k >> 1]));
      sum[k >> 1][k & 1] += s[4 * i + k];
    }
    if (i == kMiddle - 1) middle(sum[1][1]);
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) rows.sum[k] = (kFirst ? 0.0f : rows.sum[k]) + (sum[k][0] + sum[k][1]);
  return moves;
}

template <class Shape>
struct Consumer {
  using T = typename Shape::Element;
  static constexpr int kScores = Shape::kKeys / 2, kOuts = Shape::kValueDim / 2, kWeights = Shape::kKeys / 4;
  static constexpr bool kTwoSums = Shape::kDim > 128;
  static constexpr int kPart = kTwoSums ? Shape::kDim / 32 : Shape::kDim / 16;  ///< k16 steps of a sum
  static constexpr int kWaitAt = 4;  ///< the n8 block of softmax behind which P V is waited for

  const Attention& a;
  const uint32_t base;
  char* const shared;
  const Barriers bars;
  const int group;  ///< 0 or 1: which consumer; the same across the warp, and known to be
  const int lane;
  const float factor;
  const uint64_t k_tile, v_tile, q_first;
  uint64_t q_tile;
  uint32_t done = 0;  ///< key tiles
  float s[kScores], o[kOuts];
  float rest[kTwoSums ? kScores : 1];
  uint32_t p[kWeights];
  RowState rows;

  __device__ __forceinline__ Consumer(const Attention& attention, uint32_t base, char* shared, int group)
      : a(attention),
        base(base),
        shared(shared),
        bars(base + Shape::kBarriersAt),
        group(group),
        lane(threadIdx.x & 31),
        factor(fmaxf(fabsf(attention.scale) * kLog2e, 1e-37f)),  // a scale of 0: no score notices, and 0 x -inf is NaN
        k_tile(descriptor(base + Shape::kKAt, 16, 1024)),
        v_tile(descriptor(base + Shape::kVAt, Shape::kKeys * 128, 1024)),
        q_first(descriptor(base + Shape::kQAt + group * Shape::kWarpgroupRows * Shape::kDim * 2, 16, 1024)),
        q_tile(q_first) {}

  __device__ __forceinline__ const Tile& ring(uint32_t n) const {
    return reinterpret_cast<const Tile*>(shared + Shape::kTilesAt + n % Shape::kTileRing * 64)[0];
  }
  /// Issues S = Q K^T. The tensor cores cut sums off, so that long sums of one sign drift: 128 dims at most go into one, and the
  /// rest into another (scores_done adds them).
  __device__ __forceinline__ void multiply_qk(int stage) {
    const uint64_t k = k_tile + stage * (Shape::kKBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < Shape::kDim / 16; ++d) {
      const uint64_t q_at = q_tile + d / 4 * (Shape::kWarpgroupRows * 128 >> 4) + d % 4 * 2;
      const uint64_t k_at = k + d / 4 * (Shape::kKeys * 128 >> 4) + d % 4 * 2;
      if (d == 0) {
        Wgmma<T, Shape::kKeys>::first(s, q_at, k_at);
      } else if (d < kPart) {
        Wgmma<T, Shape::kKeys>::more(s, q_at, k_at);
      } else if constexpr (kTwoSums) {
        if (d == kPart) {
          Wgmma<T, Shape::kKeys>::first(rest, q_at, k_at);
        } else {
          Wgmma<T, Shape::kKeys>::more(rest, q_at, k_at);
        }
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
  __device__ __forceinline__ void multiply_pv(int stage) {
    const uint64_t v = v_tile + stage * (Shape::kVBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 16; ++j) {
      Wgmma<T, Shape::kValueDim>::add(o, p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3], v + j * (16 * 128 >> 4));
    }
    wgmma_commit();
  }

  /// Hides what rows don't see by structure; `key` is the tile's first.
  __device__ __forceinline__ void mask(const Tile& t, int key) {
    const int thread = thread_read_anew();
    const int column = key + thread % 4 * 2;
    const int row = group * Shape::kWarpgroupRows + (thread / 32 & 3) * 16 + (thread & 31) / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = t.first_query + row + half * 8;
      const int begin = (i + t.low > 0 ? i + t.low : 0) - column;
      const int end = (i >= t.queries ? 0 : i + t.high < t.count ? i + t.high : t.count) - column;
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool visible = n * 8 + e >= begin && n * 8 + e < end;
          s[n * 4 + half * 2 + e] = visible ? s[n * 4 + half * 2 + e] : TSR_NEG_INF;
        }
      }
    }
  }

  __device__ __forceinline__ void round_weights() {
#pragma unroll
    for (int i = 0; i < kWeights; ++i) p[i] = pack_pair<T>(s[2 * i], s[2 * i + 1]);
  }
  __device__ __forceinline__ void clear_out() {
#pragma unroll
    for (int e = 0; e < kOuts; ++e) o[e] = 0;
  }

  /// Normalises O and stores it, a warp at a time, 128 columns at a time through its 4 KB of shared memory.
  __device__ __forceinline__ void finish(const Tile& t, const RowState& of) {
    const int thread = thread_read_anew(), lane = thread & 31, warp = thread / 32 & 3;
    constexpr int kColumns = Shape::kValueDim < 128 ? Shape::kValueDim : 128, kChunks = kColumns / 8;
    char* const stage = shared + Shape::kOutAt + (group * 4 + warp) * Shape::kOutWarpBytes;
    const uint32_t stage_address = base + Shape::kOutAt + (group * 4 + warp) * Shape::kOutWarpBytes;
    const int first_row = t.first_query + group * Shape::kWarpgroupRows + warp * 16;
    const int64_t last_row = a.packed_q ? t.queries : a.query_rows;
    Ending ending[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float maximum = of.maximum[half] == TSR_NEG_INF ? TSR_NEG_INF : of.maximum[half] * factor;
      ending[half] = end_row(a, t.head, maximum, sum_of_quad(of.sum[half]));
      const int i = first_row + lane / 4 + half * 8;
      if (i >= t.queries) ending[half] = {0.0f, TSR_NEG_INF};  // padding
      if (lane % 4 == 0 && i < last_row) store_lse(a, t.batch, t.query_row + i, t.head, ending[half].lse);
    }
    const bool f16 = a.out.type == Type::kF16;
    const auto pair = [&](int e, int half) {
      // Chosen, not multiplied by 0: a row that saw nothing may hold 0 x NaN of another row's V.
      const float x = ending[half].factor == 0 ? 0.0f : o[e] * ending[half].factor;
      const float y = ending[half].factor == 0 ? 0.0f : o[e + 1] * ending[half].factor;
      return f16 ? pack_pair<__half>(x, y) : pack_pair<__nv_bfloat16>(x, y);
    };
    const int matrix_row = lane & 15, matrix_chunk = lane >> 4;
    const int rows_here = last_row - first_row < 16 ? static_cast<int>(last_row - first_row) : 16;
#pragma unroll
    for (int part = 0; part < Shape::kValueDim / kColumns; ++part) {
      __syncwarp();
#pragma unroll
      for (int n = 0; n < kColumns / 8; n += 2) {
        const int e = (part * kColumns / 8 + n) * 4;
        const uint32_t at = stage_address + matrix_row * kColumns * 2 + (((n + matrix_chunk) ^ (matrix_row & 7)) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(pair(e, 0)),
                     "r"(pair(e + 2, 1)), "r"(pair(e + 4, 0)), "r"(pair(e + 6, 1))
                     : "memory");
      }
      __syncwarp();
      char* const to = a.out.at(t.batch, t.query_row + first_row, t.head) + part * kColumns * 2;
#pragma unroll
      for (int step = 0; step < 16 * kChunks / 32; ++step) {
        const int row = (step * 32 + lane) / kChunks, chunk = (step * 32 + lane) % kChunks;
        const uint4 value = *reinterpret_cast<const uint4*>(stage + row * kColumns * 2 + ((chunk ^ (row & 7)) << 4));
        store_if(to + row * a.out.row + chunk * 16, value,
                 row < rows_here && part * kColumns + chunk * 8 < a.value_dim);
      }
    }
  }

  /// Issues S of the next key tile, then P V of this one; softmax of the next comes between the two waits. kBoundary: the next
  /// key tile is the first of the next query tile, `t` the tile that ends, `next` the one that begins.
  template <bool kBoundary, bool kMasked>
  __device__ __forceinline__ void step(const Tile& t, const Tile& next, int key) {
    const int v_stage = done & 1, v_parity = (done >> 1) & 1, k_stage = (done + 1) & 1,
              k_parity = ((done + 1) >> 1) & 1;
    const auto values_done = [&](float x) {
      pin(x, base + Shape::kScratchAt);
      wgmma_wait<0>(o);
      if (lane == 0) barrier_arrive(bars.v_empty + 8 * v_stage);
    };
    if constexpr (kTwoSums) {  // registers for one product at a time; the other warpgroup fills the gaps
      barrier_wait(bars.v_full + 8 * v_stage, v_parity);
      named_sync(2 + group, 256);
      multiply_pv(v_stage);
      wgmma_wait<0>(o);
      if (lane == 0) barrier_arrive(bars.v_empty + 8 * v_stage);
      if (kBoundary) finish(t, rows);
      barrier_wait(bars.k_full + 8 * k_stage, k_parity);
      multiply_qk(k_stage);
      named_arrive(3 - group, 256);
      scores_done<0>();
    } else {
      barrier_wait(bars.k_full + 8 * k_stage, k_parity);
      named_sync(2 + group, 256);
      multiply_qk(k_stage);
      barrier_wait(bars.v_full + 8 * v_stage, v_parity);
      multiply_pv(v_stage);
      named_arrive(3 - group, 256);
      scores_done<1>();
    }
    if (lane == 0) barrier_arrive(bars.k_empty + 8 * k_stage);
    if (kMasked) mask(next, key);
    float rescale[2];
    if (kBoundary) {
      const RowState ended = rows;
      softmax<true, kTwoSums ? -1 : kWaitAt>(s, rows, rescale, factor, values_done);
      round_weights();
      if (!kTwoSums) finish(t, ended);
      clear_out();
    } else {
      const bool moves = softmax<false, kTwoSums ? -1 : kWaitAt>(s, rows, rescale, factor, values_done);
      round_weights();
      if (moves) {
#pragma unroll
        for (int e = 0; e < kOuts; ++e) o[e] *= rescale[e >> 1 & 1];
      }
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
    named_sync(4 + group, 128);
  }

  __device__ __forceinline__ void run() {
    const bool negate = a.scale < 0;
    if (group == 1) named_arrive(2, 256);
    barrier_wait(bars.q_full, 0);
    if (__shfl_sync(~0u, ring(0).steps, 0) == 0) return;
    if (negate) negate_q(0);
    barrier_wait(bars.k_full, 0);
    multiply_qk(0);
    scores_done<0>();
    if (lane == 0) barrier_arrive(bars.k_empty);
    float rescale[2];
    mask(ring(0), ring(0).last_key);
    softmax<true, -1>(s, rows, rescale, factor, [](float) {});
    round_weights();
    clear_out();
    uint32_t n = 0;
    for (;; ++n) {
      const Tile& t = ring(n);
      const int steps = __shfl_sync(~0u, t.steps, 0), masked = __shfl_sync(~0u, t.masked, 0);
      const int unmasked = __shfl_sync(~0u, t.unmasked, 0) - (masked == 0 ? 1 : 0);  // the first step is behind us
      int key = __shfl_sync(~0u, t.last_key, 0);
      int j = 1;
      for (; j < masked; ++j) step<false, true>(t, t, key -= Shape::kKeys);
      for (const int until = j + unmasked; j < until; ++j) step<false, false>(t, t, key -= Shape::kKeys);
      for (; j < steps; ++j) step<false, true>(t, t, key -= Shape::kKeys);
      const int slot = n % Shape::kQSlots, next_slot = (n + 1) % Shape::kQSlots;
      if (lane == 0) barrier_arrive(bars.q_empty + 8 * slot);
      barrier_wait(bars.q_full + 8 * next_slot, (n + 1) / Shape::kQSlots & 1);
      const Tile& next = ring(n + 1);
      if (__shfl_sync(~0u, next.steps, 0) == 0) break;
      if (negate) negate_q(next_slot);
      q_tile = q_first + next_slot * (Shape::kQBytes >> 4);
      step<true, true>(t, next, __shfl_sync(~0u, next.last_key, 0));
    }
    barrier_wait(bars.v_full + 8 * (done & 1), (done >> 1) & 1);
    multiply_pv(done & 1);
    wgmma_wait<0>(o);
    finish(ring(n), rows);
  }
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    prefill(const __grid_constant__ Attention a, const __grid_constant__ Maps maps,
            const __grid_constant__ Launch launch) {
  extern __shared__ __align__(1024) char shared[];
  const uint32_t base = shared_address(shared);
  const Barriers bars(base + Shape::kBarriersAt);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 16; i += 8) {
      barrier_init(bars.q_full + i, 1);
      barrier_init(bars.q_empty + i, 8);  // a warp of a consumer each
      barrier_init(bars.k_full + i, 1);
      barrier_init(bars.k_empty + i, 8);
      barrier_init(bars.v_full + i, 1);
      barrier_init(bars.v_empty + i, 8);
    }
    barrier_init(bars.v_raw, 1);
    barrier_init_done();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);  // the same across a warp, provably
  if (warpgroup == 0) {
    give_registers<40>();
    if (threadIdx.x < 32) {
      Producer<Shape> producer{a, maps, launch, base, shared, bars, static_cast<int>(threadIdx.x)};
      producer.run();
    }
  } else {
    take_registers<232>();
    Consumer<Shape> consumer(a, base, shared, warpgroup - 1);
    consumer.run();
  }
}

}  // namespace tsr::cuda::sm90
