// The usual case of decode_kernel.cuh by itself, with the same tiles, products and order of sums: scores without options, rows
// that are copied whole and in wide units, a page a stage, 16-bit output. What is settled before the launch is settled here:
// a third of the instructions, which matters twice. Short caches wait for instructions that the keys of the step before
// have driven out of the caches, and long ones for each tile's chain of dependent instructions.
//
// Clusters. The splits' blocks are a cluster: each ends up with the sums of its rows (every splits-th), which the others store into
// its shared memory and count on a barrier there (st.async), so nobody fetches, and nothing is waited for twice.
#pragma once

#include <climits>

#include "decode_kernel.cuh"

namespace tsr::cuda::decode {

/// x as it is now: the compiler can't make it again from what it was made of.
__device__ __forceinline__ int settled(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// The batch entry whose length has that rank, the longest first: whoever works longest begins first, so that blocks end at about
/// the same time. Read on the device, like the lengths themselves. Each warp holds all lengths and ranks some of them.
__device__ __forceinline__ int entry_of_rank(const Attention& a, int rank, int warp, int warps, int lane) {
  constexpr int kHeld = kMostSorted / 32;
  __shared__ int entry;
  const auto batch = static_cast<int>(a.batch);
  int lengths[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) lengths[i] = lane + 32 * i < batch ? a.seq_lens_k[lane + 32 * i] : INT_MIN;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
#pragma unroll 1
    for (int of = warp; of < min(batch - 32 * i, 32); of += warps) {
      const int length = __shfl_sync(~0u, lengths[i], of);
      int before = 0;
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const bool earlier = lane + 32 * j < of + 32 * i ? lengths[j] >= length : lengths[j] > length;
        before += __popc(__ballot_sync(~0u, earlier));
      }
      if (before == rank) entry = of + 32 * i;  // all lanes, one value
    }
  }
  __syncthreads();
  return entry;
}

/// Copies the stages of a warp, or of the warps that share a ring.
template <class L>
class PlainCopier {
 public:
  static constexpr bool kBulk = kHasBulkCopies && copies_in_bulk(L::kVariant);

  __device__ __forceinline__ PlainCopier(const Parameters& p, int64_t key_row, int64_t b, int64_t kv_head, int first,
                                         int step, int end, int lane)
      : key_(first), step_(step), end_(end), lane_(lane) {
    const Attention& a = p.a;
    const bool paged = kMayPage && a.paged();
    const int64_t batch = paged ? 0 : b, row = paged ? 0 : key_row + first;
    k_ = a.k.at(batch, row, kv_head);
    v_ = a.v.at(batch, row, kv_head);
    if (paged) table_ = a.page_table + b * a.page_table_stride;
    find_page(p);
  }

  /// Starts copying the next stage to shared memory at `stage`: K, then V. Past the end: nothing.
  __device__ __forceinline__ void copy(const Parameters& p, uint32_t stage, uint32_t barrier) {
    if (key_ < end_) {
      const Attention& a = p.a;
      const int count = end_ - key_;
      const char *k = k_, *v = v_;
      if (paged()) {
        k += page_ * a.k.batch + slot_ * a.k.row;
        v += page_ * a.v.batch + slot_ * a.v.row;
      } else {
        k_ += step_ * a.k.row;
        v_ += step_ * a.v.row;
      }
      if constexpr (kBulk) {
        copy_bulk(p, stage, barrier, k, v, min(count, L::kStageKeys));
      } else if constexpr (kContinues && L::kTeam == 1) {
        if (count >= L::kStageKeys) {
          copy_continuing<true>(stage, k, static_cast<int>(a.k.row), count);
          copy_continuing<true>(stage + L::kSideBytes, v, static_cast<int>(a.v.row), count);
        } else {
          copy_continuing<false>(stage, k, static_cast<int>(a.k.row), count);
          copy_continuing<false>(stage + L::kSideBytes, v, static_cast<int>(a.v.row), count);
        }
      } else if (count >= L::kStageKeys) {
        copy_side<true>(stage, k, static_cast<int>(a.k.row), count);
        copy_side<true>(stage + L::kSideBytes, v, static_cast<int>(a.v.row), count);
      } else {
        copy_side<false>(stage, k, static_cast<int>(a.k.row), count);
        copy_side<false>(stage + L::kSideBytes, v, static_cast<int>(a.v.row), count);
      }
    }
    key_ += step_;
    find_page(p);
  }

 private:
  static constexpr bool kMayPage = L::kVariant != Variant::kAdjoiningKeys;
  __device__ __forceinline__ bool paged() const { return kMayPage && table_ != nullptr; }
  static constexpr int kWidth = L::kHeadBytes * L::kTeam;
  static constexpr int kUnit = usual_unit(kWidth), kRowUnits = kWidth / kUnit;

  /// Rows of 12 or 6 units: lanes go on from one row into the next, and after three rounds are where they were, some rows on.
  static constexpr bool kContinues =
      kRowUnits % 3 == 0 && (kRowUnits / 3 & (kRowUnits / 3 - 1)) == 0 && kRowUnits / 3 <= 32;
  template <bool kWhole>
  __device__ __forceinline__ void copy_continuing(uint32_t to, const char* from, int stride, int count) const {
    constexpr int kPeriod = 3 * 32 / kRowUnits;  // rows
    static_assert(L::kTeam == 1 && L::kStageKeys % kPeriod == 0);
#pragma unroll
    for (int round = 0; round < 3; ++round) {
      const int unit = lane_ + 32 * round, row = unit / kRowUnits, byte = unit % kRowUnits * kUnit;
      uint32_t offset = row * stride + byte;
#pragma unroll
      for (int first = 0; first < L::kStageKeys; first += kPeriod) {
        copy_async<kUnit>(to + L::place(row + first, byte), from + offset, kWhole || row + first < count);
        offset += kPeriod * stride;
      }
    }
  }

  /// Lanes go along the row for the largest power of two of units that fits, and over rows; what is left of rows follows.
  template <bool kWhole, int kUnits = kWidth / kUnit, int kFirst = 0>
  __device__ __forceinline__ void copy_side(uint32_t to, const char* from, int stride, int count) const {
    constexpr int kAlong = kUnits >= 32   ? 32
                           : kUnits >= 16 ? 16
                           : kUnits >= 8  ? 8
                           : kUnits >= 4  ? 4
                           : kUnits >= 2  ? 2
                                          : 1;
    constexpr int kRowsAtOnce = 32 * L::kTeam / kAlong;
    const int row = lane_ / kAlong, byte = (kFirst + lane_ % kAlong) * kUnit;
    uint32_t offset = row * stride + byte;
#pragma unroll
    for (int first = 0; first < L::kStageKeys; first += kRowsAtOnce) {
      if (kRowsAtOnce <= L::kStageKeys || row < L::kStageKeys) {
        copy_async<kUnit>(to + L::place(row + first, byte), from + offset, kWhole || row + first < count);
      }
      offset += kRowsAtOnce * stride;
    }
    if constexpr (kUnits > kAlong) copy_side<kWhole, kUnits - kAlong, kFirst + kAlong>(to, from, stride, count);
  }

  __device__ __forceinline__ void copy_bulk(const Parameters& p, uint32_t stage, uint32_t barrier, const char* k,
                                            const char* v, int count) const {
    if constexpr (L::kVariant == Variant::kEightHeads) {
      constexpr int kEach = L::kStageKeys / L::kTeam;  // rows of K, and of V, that a warp copies, a lane each
      const int row = lane_ / 32 * kEach + lane_ % kEach;
      const bool of_v = lane_ % 32 >= kEach;
      if (lane_ == 0) bulk_expect(barrier, 2 * count * kWidth);
      if (lane_ % 32 < 2 * kEach && row < count) {
        const char* const from = (of_v ? v : k) + row * static_cast<int>(of_v ? p.a.v.row : p.a.k.row);
        bulk_copy(stage + (of_v ? L::kSideBytes : 0) + row * L::kStride, from, kWidth, barrier);
      }
    } else {
      const int bytes = count * kWidth, whole = bytes / 16 * 16;
      if (lane_ == 0) {
        bulk_expect(barrier, 2 * whole);
        bulk_copy(stage, k, whole, barrier);
        bulk_copy(stage + L::kSideBytes, v, whole, barrier);
      }
      if (whole != bytes) {  // what is left of the last rows
        const int at = whole + lane_ % 4 * 4;
        if (lane_ < 8 && at < bytes) {
          copy_async<4>(stage + (lane_ >= 4 ? L::kSideBytes : 0) + at, (lane_ >= 4 ? v : k) + at, true);
        }
      }
    }
  }

  /// Looks up the page of the next stage, a stage ahead of its use. Entries past the sequence's end aren't read.
  __device__ __forceinline__ void find_page(const Parameters& p) {
    if (!paged() || key_ >= end_) return;
    const int index = key_ >> p.page_shift;
    slot_ = key_ - (index << p.page_shift);
    page_ = static_cast<int>(clamped(table_[index], 0, p.a.page_count - 1));
  }

  const char* k_;  ///< the next stage's first row; paged: page 0
  const char* v_;
  const int32_t* table_ = nullptr;
  int key_;
  int step_;
  int end_;
  int lane_;  ///< of the team
  int page_ = 0;
  int slot_ = 0;
};

/// A warp's queries of 16-bit caches as they lie in memory, where they stay in registers.
template <class L>
__device__ __forceinline__ void load_queries(uint2 (&held)[L::kTiles * L::kSteps], const Parameters& p,
                                             const Sequence& s, const Work& w, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
    const RowId id = row_id(p.a, L::kVariant, w.tile, w.head_unit, 8 * n + g);
    const bool there = id.query < s.queries;
    const char* const q = there ? p.a.q.at(w.batch, s.query_row + id.query, id.head) + 4 * t : nullptr;
#pragma unroll
    for (int step = 0; step < L::kSteps; ++step) {
      held[n * L::kSteps + step] = there ? make_uint2(word(q + 32 * step), word(q + 32 * step + 16)) : make_uint2(0, 0);
    }
  }
}

/// Merges what the warps hold, then writes rows, partials of a split, or the cluster's rows.
template <class L>
__device__ __forceinline__ void merge_plain(const Parameters& p, const Sequence& s, const Work& w, Accumulators<L>& out,
                                            Running<L>& running, const ScaleRange<L>& range, float* merged,
                                            char* received, uint32_t arrived, int warp, int warps, int lane) {
  constexpr int kWarpRows = 8 * L::kTiles, kPitch = L::kDim + 4, kFours = L::kDim / 4;
  constexpr int kTeams = L::kMostWarps / L::kTeam;
  __shared__ float2 stats[L::kTiles][L::kMostWarps][8];  // maximum, sum
  const int g = lane / 4, t = lane % 4;
  float unit = 1;
  if constexpr (is_blocked(L::kFormat)) unit = range.power();
  if constexpr (L::kFormat == Format::kQ4) unit *= kNibbleUnit;
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float sum = running.sum[n][c];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
      if (g == 0) stats[n][warp][2 * t + c] = make_float2(running.maximum[n][c] - kLift<L>, sum);
    }
  }
  const bool clustered = kHasClusters && p.clustered != 0;
  if (clustered) cluster_wait();  // all blocks are there to be stored to
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
    __syncthreads();  // no ring, and no earlier tile of this loop, is read any more
#pragma unroll
    for (int m = 0; m < L::kSteps; ++m) {
      const float f = L::kFormat == Format::kQ4 && m % 2 != 0 ? unit * 0.0625f : unit;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        merged[(warp * 8 + 2 * t + i % 2) * kPitch + output_dim<L::kFormat>(m, g, i / 2)] = out[n][m][i] * f;
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < 8 * L::kTeam * kFours; item += blockDim.x) {
      const int r = item / kFours % 8, head = item / kFours / 8, four = item % kFours,
                row = head * kWarpRows + 8 * n + r;
      float2 each[kTeams];
      float maximum = TSR_NEG_INF, sum = 0;
#pragma unroll
      for (int i = 0; i < kTeams; ++i) {
        const int from = head + i * L::kTeam;
        each[i] = from < warps ? stats[n][from][r] : make_float2(TSR_NEG_INF, 0.0f);
        maximum = fmaxf(maximum, each[i].x);
      }
      const float base = maximum == TSR_NEG_INF ? 0.0f : maximum;
      float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < kTeams; ++i) {
        const int from = head + i * L::kTeam;
        if (from >= warps) break;
        const float weight = exp2_fast(each[i].x - base);
        const float4 x = *reinterpret_cast<const float4*>(merged + (from * 8 + r) * kPitch + 4 * four);
        sum += weight * each[i].y;
        value.x += weight * x.x;
        value.y += weight * x.y;
        value.z += weight * x.z;
        value.w += weight * x.w;
      }
      if (p.splits == 1) {
        store_plain<L>(p, s, w, row_id(p.a, L::kVariant, w.tile, w.head_unit, row), four, value, maximum, sum);
      } else if (clustered) {
        const int owner = row % p.splits, slot = w.split * received_rows(L::kRows, p.splits) + row / p.splits;
        const uint32_t to = address_in(shared_address(received), owner), barrier = address_in(arrived, owner);
        store_4_in_cluster(to + slot * (L::kDim * 4 + 16) + 16 + 16 * four, value, barrier);
        if (four == 0) store_2_in_cluster(to + slot * (L::kDim * 4 + 16), make_float2(maximum, sum), barrier);
      } else {
        const int64_t partial = (static_cast<int64_t>(w.unit) * L::kRows + row) * p.splits + w.split;
        reinterpret_cast<float4*>(p.partial_out + partial * L::kDim)[four] = value;
        if (four == 0) reinterpret_cast<float2*>(p.partial_stats)[partial] = make_float2(maximum, sum);
      }
    }
  }
  if (!clustered) return;
  const int rows = received_rows(L::kRows, p.splits);
  if (threadIdx.x >= (rows * kFours + 31) / 32 * 32) return;
  cluster_barrier_wait(arrived);
  for (int item = threadIdx.x; item < rows * kFours; item += blockDim.x) {
    const int mine = item / kFours, four = item % kFours, row = mine * p.splits + w.split;
    if (row >= L::kRows) break;
    const char* const at = received + mine * (L::kDim * 4 + 16);
    float2 each[kMostClustered];
    float4 x[kMostClustered];
    float maximum = TSR_NEG_INF, sum = 0;
#pragma unroll
    for (int i = 0; i < kMostClustered; ++i) {
      const char* const from = at + (i < p.splits ? i : 0) * rows * (L::kDim * 4 + 16);
      each[i] = *reinterpret_cast<const float2*>(from);
      x[i] = *reinterpret_cast<const float4*>(from + 16 + 16 * four);
      if (i < p.splits) maximum = fmaxf(maximum, each[i].x);
    }
    const float base = maximum == TSR_NEG_INF ? 0.0f : maximum;
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kMostClustered; ++i) {
      const float weight = i < p.splits ? exp2_fast(each[i].x - base) : 0.0f;
      sum += weight * each[i].y;
      value.x += weight * x[i].x;
      value.y += weight * x[i].y;
      value.z += weight * x[i].z;
      value.w += weight * x[i].w;
    }
    store_plain<L>(p, s, w, row_id(p.a, L::kVariant, w.tile, w.head_unit, row), four, value, maximum, sum);
  }
}

template <class L>
__device__ __forceinline__ void plain_block(const Parameters& p) {
  constexpr bool kBulk = PlainCopier<L>::kBulk;
  // Queries go to registers by themselves.
  constexpr bool kDirect = is_16_bit(L::kFormat) && L::kDim <= (L::kTiles == 4 ? 64 : 128);
  extern __shared__ __align__(128) char memory[];
  __shared__ Row rows[L::kRows];
  __shared__ __align__(16) char scales[L::kMostWarps][BlockScales<L>::kBytes];
  __shared__ __align__(8) uint64_t barriers[kBulk ? L::kMostWarps / L::kTeam : 1][kMostStages];
  __shared__ __align__(8) uint64_t arrived;
  __shared__ int2 common;  // what all rows see: blocked formats have no registers to keep it in
  const int warp = settled(threadIdx.x / 32), lane = settled(threadIdx.x % 32), warps = blockDim.x / 32;
  const int team = warp / L::kTeam, head = warp % L::kTeam, teams = warps / L::kTeam;
  const int team_lane = head * 32 + lane;
  char* const ring = memory + team * (p.stages * L::kStageBytes);
  char* const query_table = memory + ring_bytes(L::kFormat, L::kDim, L::kVariant, warps, p.stages);
  char* const received = query_table + query_bytes(L::kDim, L::kVariant);

  Work w = work_of(p);
  if (p.longest_first != 0) {
    w.batch = entry_of_rank(p.a, w.batch, warp, warps, lane);
    w.unit = w.batch * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  }
  const Sequence s = sequence_of(p.a, w.batch);
  BlockKeys keys = block_keys<L>(p, s, w);
  int step = p.splits * teams * L::kStageKeys, first = keys.begin + (w.split * teams + team) * L::kStageKeys;
  if (L::kTeam > 1 && p.splits > 1 && p.a.paged()) {
    // One after the other instead: few warps look up pages here, and a split's entries of the table are neighbours then.
    const int stages = (keys.end - keys.begin + L::kStageKeys - 1) / L::kStageKeys;
    const int part = (stages + p.splits - 1) / p.splits * L::kStageKeys;
    first = keys.begin + w.split * part + team * L::kStageKeys;
    step = teams * L::kStageKeys;
    keys.end = min(keys.begin + (w.split + 1) * part, keys.end);
  }
  PlainCopier<L> copier(p, s.key_row, w.batch, w.head_unit * L::kTeam, first, step, keys.end, team_lane);
  const uint32_t ring_address = shared_address(ring), barrier = shared_address(barriers[kBulk ? team : 0]);
  if constexpr (kBulk) {
    if (team_lane == 0) {
      for (int i = 0; i < p.stages; ++i) bulk_barrier_init(barrier + 8 * i);
    }
    bulk_barrier_init_done();
    team_barrier<L>(team);
  }

  Queries<L> queries;
  Running<L> running;
  Accumulators<L> out;
  ScaleRange<L> range;
  constexpr bool kHoldsFactors = L::kFormat != Format::kQ4;  // of rows; q4_0's products leave no registers
  float factors[L::kTiles][2];
  range.set(0);
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      running.maximum[n][c] = TSR_NEG_INF;
      running.sum[n][c] = 0;
    }
#pragma unroll
    for (int m = 0; m < L::kSteps; ++m) out[n][m][0] = out[n][m][1] = out[n][m][2] = out[n][m][3] = 0;
  }

  // Stage `turn` is copied to, stage `read` is read: stages - 1 are under way between them.
  int turn = 0, read = 0;  // over all stages twice: a barrier's phases alternate
  const auto next = [&](int stage) { return stage + 1 == 2 * p.stages ? 0 : stage + 1; };
  const auto stage_of = [&](int at) { return at < p.stages ? at : at - p.stages; };
#pragma unroll 1
  for (int key0 = first - (p.stages - 1) * step;; key0 += step) {
    if (key0 == first) {
      if (kHasClusters && p.clustered != 0) {
        if (threadIdx.x == 0) {
          const uint32_t at = shared_address(&arrived);
          bulk_barrier_init(at);
          const int mine = (L::kRows - w.split + p.splits - 1) / p.splits;
          bulk_expect(at, p.splits * mine * (L::kDim * 4 + 8));
        }
        bulk_barrier_init_done();
        cluster_arrive();
      }
      if (is_blocked(L::kFormat) && threadIdx.x == 0) common = make_int2(keys.common_begin, keys.common_end);
      prepare_rows<L, kDirect, true>(p, s, w, rows, query_table);
      if constexpr (kDirect) {
        load_queries<L>(queries.held(), p, s, w, lane);
      }
      __syncthreads();
      if constexpr (!kDirect) queries.load(query_table + head * query_bytes(L::kDim, Variant::kOneTile), lane);
#pragma unroll
      for (int n = 0; n < L::kTiles && kHoldsFactors; ++n) {
        factors[n][0] = rows[head * 8 + 8 * n + lane % 4 * 2].base2_factor;
        factors[n][1] = rows[head * 8 + 8 * n + lane % 4 * 2 + 1].base2_factor;
      }
    }
    if (key0 >= first) {
      if (key0 >= keys.end) break;
      team_barrier<L>(team);  // the stage that is copied to is read
    }
    copier.copy(p, ring_address + stage_of(turn) * L::kStageBytes, barrier + 8 * stage_of(turn));
    copy_async_commit();
    turn = next(turn);
    if (key0 < first) continue;

    const int stage = stage_of(read);
    char* const tile = ring + stage * L::kStageBytes + head * L::kHeadBytes;
    if constexpr (kBulk) {
      bulk_wait(barrier + 8 * stage, read < p.stages ? 0 : 1);
      if (key0 + L::kStageKeys > keys.end) {
        copy_async_wait<0>();
        clear_rows<L>(tile + L::kSideBytes, keys.end - key0, lane);
      }
    } else {
      copy_async_wait_for(p.stages - 1);
      team_barrier<L>(team);  // the copies of all lanes are there
    }
    read = next(read);
#pragma unroll 1
    for (int i = 0; i < L::kStageTiles && (i == 0 || key0 + i * kTileKeys < keys.end); ++i) {
      char* const k = tile + i * L::kTileBytes;
      char* const v = k + L::kSideBytes;
      const int key = key0 + i * kTileKeys;
      const int2 seen = is_blocked(L::kFormat) ? common : make_int2(keys.common_begin, keys.common_end);
      const bool cut = key < seen.x || key + kTileKeys > seen.y;
      Scores<L> scores;
      score_keys<L>(scores, k, queries, lane);
#pragma unroll
      for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[n][e] *=
              kHoldsFactors ? factors[n][e % 2] : rows[head * 8 + 8 * n + lane % 4 * 2 + e % 2].base2_factor;
        }
      }
      if (cut) hide_by_structure<L>(scores, rows + head * 8, key, keys.end, lane);
      follow_maximum<L>(running, out, scores);
      const BlockScales<L> block_scales{scales[warp]};
      if constexpr (is_blocked(L::kFormat)) range.include(v, block_scales, out, lane);
      Weights<L> weights;
      weigh<L>(running, weights, scores);
      add_values<L, false>(out, v, weights, block_scales, lane);
    }
  }
  copy_async_wait<0>();
  allow_next_kernel();
  merge_plain<L>(p, s, w, out, running, range, reinterpret_cast<float*>(memory), received, shared_address(&arrived),
                 warp, warps, lane);
}

template <class L>
__global__ void __launch_bounds__(L::kMostWarps * 32, 1) plain_kernel(const __grid_constant__ Parameters p) {
  if constexpr (kHasBulkCopies || !copies_in_bulk(L::kVariant)) plain_block<L>(p);  // else never launched
}

}  // namespace tsr::cuda::decode
