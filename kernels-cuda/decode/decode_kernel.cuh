// Attention of few query rows against a long cache: split-KV decode on mma.sync, sm_80 and up.
//
// This kernel takes every option; the usual case has one of its own (decode_plain.cuh).
// Work. A block takes one KV head (the usual case: or two or eight that adjoin in memory), 8 or 16 query rows of it (queries x
//   heads of the group) and one split of the keys that those rows see. Each warp takes every n-th tile of 16 keys for
//   itself, with its own ring of copies, running maximum, sums and accumulators: no barrier of the block between the start
//   and the end. Of several heads each has a warp, and they share a ring. Then the warps are merged in order, and splits by
//   a second small kernel, or, in the usual case, by a cluster of blocks. Results don't depend on timing.
// Copies. cp.async; in the usual case on sm_90 also in bulk, counted by barriers in shared memory.
// Products. S^T = K q^T and O^T = V^T P^T by mma.m16n8k16: keys, then head dims, on M, query rows on N, so a lane keeps two
//   rows' statistics and accumulators (fp32) for each N tile, and P goes from accumulator to operand by movmatrix. K and V of
//   every format enter exactly as stored (decode_scores.cuh, decode_values.cuh).
// Bound. Memory: a multiprocessor of an H200 has to take 33 bytes a ns, 17 to 19 a clock. 16 keys of a head (K and V, D 128)
//   are 8,192 bytes of f16 but 2,304 of q4_0, which leaves 480 issue slots a multiprocessor for everything about those keys;
//   hence words used as they lie, nibbles as subnormals without conversion, and 16-byte copies across two heads.
// Registers. Accumulators: 4 for each 16 dims and N tile; queries: 2; up to 96 together at D 128. At D 256 the queries stay in
//   shared memory. Two N tiles and 16-bit values: 8 warps of up to 255 registers (16 with one tile at D 64); else 16 warps of 128.
// Shared memory. For each warp (or two) `stages` tiles of K and V without bank conflicts (decode_layout.cuh); scores of a tile where options need them; the block's query operand; the merge reuses the tiles.
#pragma once

#include "decode_copy.cuh"
#include "decode_scores.cuh"
#include "decode_weights.cuh"

namespace tsr::cuda::decode {

/// Keys that a block's rows see, and those that every row sees. Its warps take every (splits x warps)-th stage of them: all
/// splits read the same part of the cache at the same time.
struct BlockKeys {
  int begin, end;
  int common_begin, common_end;
};

template <class L>
__device__ __forceinline__ BlockKeys block_keys(const Parameters& p, const Sequence& s, const Work& w) {
  const int rows = static_cast<int>(s.queries) * p.a.group;
  const int first = w.tile * L::kRows, last = min(first + L::kRows, rows);
  if (first >= last) return {0, 0, 0, 0};
  Span queries{0, 1};
  if (p.a.max_queries > 1) queries = {first / p.a.group, (last - 1) / p.a.group + 1};
  const Span all = s.visibility.keys(queries), common = s.visibility.common_keys(queries);
  return {static_cast<int>(all.begin), static_cast<int>(all.end), static_cast<int>(common.begin),
          static_cast<int>(common.end)};
}

/// Of the warps that share a ring. Barrier 0 is the block's.
template <class L>
__device__ __forceinline__ void team_barrier(int team) {
  if constexpr (L::kTeam == 1) {
    __syncwarp();
  } else {
    barrier_sync(team + 1, 32 * L::kTeam);
  }
}

/// One tile of keys: scores, weights, accumulators.
template <class L>
__device__ __forceinline__ void attend_tile(const Parameters& p, const int2& common, int end, int key0, char* stage,
                                            float* scratch, BlockScales<L> scales, const Row* rows,
                                            const Queries<L>& queries, Running<L>& running, Accumulators<L>& out,
                                            ScaleRange<L>& range, int lane) {
  char* const values = stage + L::kSideBytes;
  Scores<L> s;
  score_keys<L>(s, stage, queries, lane);
  if (p.a.plain_score()) {
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= rows[8 * n + lane % 4 * 2 + i % 2].base2_factor;
    }
    if (key0 < common.x || key0 + kTileKeys > common.y) {
      hide_by_structure<L>(s, rows, key0, end, lane);
    }
  } else {
    apply_options<L>(s, scratch, rows, key0, end, lane);
    if (p.a.mask.given() || p.a.bias.given()) clear_hidden_values<L>(s, values, lane);
  }
  follow_maximum<L>(running, out, s);
  if constexpr (is_blocked(L::kFormat)) range.include(values, scales, out, lane);
  Weights<L> weights;
  weigh<L>(running, weights, s);
  if (is_blocked(L::kFormat) && exact_values(p.a)) {
    add_values<L, true>(out, values, weights, scales, lane);
  } else {
    add_values<L, false>(out, values, weights, scales, lane);
  }
}

/// Adds up the warps' rows in order and writes them: out and lse if the keys aren't split, else this split's partials.
template <class L>
__device__ __forceinline__ void merge_warps(const Parameters& p, const Sequence& s, const Work& w, Accumulators<L>& out,
                                            Running<L>& running, const ScaleRange<L>& range, float* merged, int warp,
                                            int warps, int lane) {
  constexpr int kWarpRows = 8 * L::kTiles, kPassRows = 8 * L::kTeam;
  __shared__ float maxima[L::kMostWarps][kWarpRows], sums[L::kMostWarps][kWarpRows];  // maxima: then the warps' weights
  __shared__ RowEnd ends[L::kRows];
  constexpr int kPitch = L::kDim + 4;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float sum = running.sum[n][c];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
      if (g == 0) {
        maxima[warp][8 * n + 2 * t + c] = running.maximum[n][c] - kLift<L>;
        sums[warp][8 * n + 2 * t + c] = sum;
      }
    }
  }
#pragma unroll
  for (int n = 0; n < L::kTiles; ++n) {
    __syncthreads();  // no ring, and no earlier tile of this loop, is read any more
    if (threadIdx.x < kPassRows) {
      const int head = threadIdx.x / 8, warp_row = 8 * n + threadIdx.x % 8, row = head * kWarpRows + warp_row;
      float maximum = TSR_NEG_INF, sum = 0;
      for (int i = head; i < warps; i += L::kTeam) maximum = fmaxf(maximum, maxima[i][warp_row]);
      const float base = maximum == TSR_NEG_INF ? 0.0f : maximum;
      for (int i = head; i < warps; i += L::kTeam) {
        const float weight = exp2_fast(maxima[i][warp_row] - base);
        maxima[i][warp_row] = weight;
        sum += weight * sums[i][warp_row];
      }
      const RowId id = row_id(p.a, L::kVariant, w.tile, w.head_unit, row);
      if (p.splits == 1) {
        ends[row] = end_of_row(p.a, s, w.batch, id, maximum, sum, true);
      } else if (id.query < s.queries) {
        const int64_t partial = (static_cast<int64_t>(w.unit) * L::kRows + row) * p.splits + w.split;
        reinterpret_cast<float2*>(p.partial_stats)[partial] = make_float2(maximum, sum);
        ends[row] = {reinterpret_cast<char*>(p.partial_out + partial * L::kDim), 1.0f};
      } else {
        ends[row] = {nullptr, 0.0f};
      }
    }
    float unit = 1;
    if constexpr (is_blocked(L::kFormat)) unit = range.power();
    if (L::kFormat == Format::kQ4 && !exact_values(p.a)) unit *= kNibbleUnit;
#pragma unroll
    for (int m = 0; m < L::kSteps; ++m) {
      const float f = L::kFormat == Format::kQ4 && m % 2 != 0 ? unit * 0.0625f : unit;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int dim = output_dim<L::kFormat>(m, g, i / 2);
        merged[(warp * 8 + 2 * t + i % 2) * kPitch + dim] = out[n][m][i] * f;
      }
    }
    __syncthreads();
    for (int item = threadIdx.x; item < kPassRows * L::kDim; item += blockDim.x) {
      const int r = item / L::kDim % 8, head = item / L::kDim / 8, dim = item % L::kDim;
      const RowEnd end = ends[head * kWarpRows + 8 * n + r];
      if (end.out == nullptr) continue;
      float value = 0;
      for (int i = head; i < warps; i += L::kTeam) {
        value += maxima[i][8 * n + r] * merged[(i * 8 + r) * kPitch + dim];
      }
      if (p.splits == 1) {
        store_dim(p.a, end, dim, value);
      } else {
        reinterpret_cast<float*>(end.out)[dim] = value;
      }
    }
  }
}

template <class L>
__global__ void __launch_bounds__(L::kMostWarps * 32, 1) decode_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) char memory[];
  __shared__ Row rows[L::kRows];
  __shared__ int2 common;
  __shared__ __align__(16) char scales[L::kMostWarps][BlockScales<L>::kBytes];
  __shared__ uint32_t inside[is_blocked(L::kFormat) ? L::kMostWarps : 1][kMostStages][2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int team = warp / L::kTeam, head = warp % L::kTeam, teams = warps / L::kTeam;
  const int team_lane = threadIdx.x % (32 * L::kTeam);
  auto& began_inside = inside[is_blocked(L::kFormat) ? team : 0];
  const int ring_size = p.stages * L::kStageBytes;
  char* const ring = memory + team * ring_size;
  const int rings = ring_bytes(L::kFormat, L::kDim, L::kVariant, warps, p.stages);
  constexpr int kScratch = scratch_bytes(L::kVariant);
  float* const scratch = reinterpret_cast<float*>(memory + rings + warp * kScratch);
  char* const query_table = memory + rings + warps * kScratch;

  const Work w = work_of(p);
  const Sequence s = sequence_of(p.a, w.batch);
  const BlockKeys keys = block_keys<L>(p, s, w);
  // Seldom read: not worth two registers.
  if (threadIdx.x == 0) common = make_int2(keys.common_begin, min(keys.common_end, keys.end));
  const int step = p.splits * teams * L::kStageKeys;
  const int first = keys.begin + (w.split * teams + team) * L::kStageKeys;
  TileCopier<L> copier(p, s, w.batch, w.head_unit * L::kTeam, first, step, keys.end, team_lane);

  if (p.k_width < L::kHeadBytes * L::kTeam || p.v_width < L::kHeadBytes * L::kTeam) {
    // Copies leave the padding of rows alone: once zero, always zero.
    uint4* const words = reinterpret_cast<uint4*>(ring);
    for (int i = team_lane; i < ring_size / 16; i += 32 * L::kTeam) words[i] = make_uint4(0, 0, 0, 0);
    team_barrier<L>(team);
  }
  const uint32_t ring_address = shared_address(ring);
  for (int i = 0; i < p.stages - 1; ++i) {
    copier.copy(p, ring_address + i * L::kStageBytes, began_inside[i]);
    copy_async_commit();
  }
  prepare_rows<L, false>(p, s, w, rows, query_table);
  __syncthreads();

  Queries<L> queries;
  queries.load(query_table + head * query_bytes(L::kDim, Variant::kOneTile), lane);
  Running<L> running;
  Accumulators<L> out;
  ScaleRange<L> range;
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

  int stage = 0;
  for (int key0 = first; key0 < keys.end; key0 += step) {
    copy_async_wait_for(p.stages - 2);
    team_barrier<L>(team);  // the copies of all lanes are there, and the stage before this one is read
    const int free = stage == 0 ? p.stages - 1 : stage - 1;
    copier.copy(p, ring_address + free * L::kStageBytes, began_inside[free]);
    copy_async_commit();
    if constexpr (is_blocked(L::kFormat) && L::kTeam == 1) {
      char* const k = ring + stage * L::kStageBytes;
      if (copies_words<L>(p.k_width, p.k_unit)) straighten<L>(k, began_inside[stage][0], lane, p.k_width);
      if (copies_words<L>(p.v_width, p.v_unit))
        straighten<L>(k + L::kSideBytes, began_inside[stage][1], lane, p.v_width);
      __syncwarp();
    }
    attend_tile<L>(p, common, keys.end, key0, ring + stage * L::kStageBytes + head * L::kHeadBytes, scratch,
                   BlockScales<L>{scales[warp]}, rows + head * 8, queries, running, out, range, lane);
    stage = stage + 1 == p.stages ? 0 : stage + 1;
  }
  copy_async_wait<0>();
  allow_next_kernel();
  merge_warps<L>(p, s, work_of(p), out, running, range, reinterpret_cast<float*>(memory), warp, warps, lane);
}

}  // namespace tsr::cuda::decode
