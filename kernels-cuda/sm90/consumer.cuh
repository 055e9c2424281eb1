// The warpgroups that compute: scores, weights, O, and the way out.
#pragma once

#include "../common/convert.cuh"
#include "../common/score.cuh"
#include "launch.h"
#include "ptx.cuh"
#include "shape.cuh"

namespace tsr::cuda::sm90 {

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

}  // namespace tsr::cuda::sm90
