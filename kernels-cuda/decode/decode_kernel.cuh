// Attention of few query rows against a long cache: split-KV decode on mma.sync, sm_80 and up.
//
// Work. A block takes one KV head (or two that adjoin in memory), 8 or 16 query rows of it (queries x heads of the group) and
//   one split of the keys that those rows see. Each warp takes every warps-th tile of 16 or 32 keys for itself, with its own
//   ring of copies, running maximum, sums and accumulators: no barrier of the block between the start and the end. Then the
//   warps are merged in order; splits by a second small kernel, in order too. Results don't depend on timing.
// Products. S^T = K q^T and O^T = V^T P^T by mma.m16n8k16: keys, then head dims, on M, query rows on N, so a lane keeps two
//   rows' statistics and accumulators (fp32) for each N tile, and P goes from accumulator to operand by movmatrix. K and V of
//   every format enter exactly as stored (decode_scores.cuh, decode_values.cuh).
// Bound. Memory: an SM of an H200 has to take 33 bytes a ns, 17 to 19 a clock. 16 keys of a head (K and V, D 128) are 8,192
//   bytes of f16 but 2,304 of q4_0, which leaves 480 issue slots a multiprocessor for everything about those keys; hence
//   words loaded as they lie, nibbles used as subnormals without conversion, and copies of two heads at once.
// Registers. Accumulators: 4 a 16 dims and N tile; queries: 2; up to 96 together at D 128, at D 256 the queries stay in
//   shared memory.
// Shared memory. For each warp `stages` tiles of K and V, rows padded to an odd multiple of 16 bytes (no bank conflicts);
//   scores of a tile where options need them; the block's query operand; the merge reuses the tiles.
#pragma once

#include "decode_copy.cuh"
#include "decode_scores.cuh"
#include "decode_weights.cuh"

namespace tsr::cuda::decode {

/// The rows of a block: all of its queries' keys, and those that every row sees.
struct BlockKeys {
  int begin, end;  ///< of this split
  int common_begin, common_end;
};

template <class L>
__device__ __forceinline__ BlockKeys block_keys(const Parameters& p, const Sequence& s, const Work& w) {
  const int64_t rows = s.queries * p.a.group;
  const int64_t first = static_cast<int64_t>(w.tile) * L::kRows;
  const int64_t last = first + L::kRows < rows ? first + L::kRows : rows;
  if (first >= last) return {0, 0, 0, 0};
  const Span queries{first / p.a.group, (last - 1) / p.a.group + 1};
  const Span all = s.visibility.keys(queries), common = s.visibility.common_keys(queries);
  const int keys = static_cast<int>(all.size());
  const int tiles = (keys + L::kKeys - 1) / L::kKeys;
  const int64_t part = static_cast<int64_t>((tiles + p.splits - 1) / p.splits) * L::kKeys;
  const int64_t begin = w.split * part < keys ? w.split * part : keys;
  const int64_t end = begin + part < keys ? begin + part : keys;
  return {static_cast<int>(all.begin + begin), static_cast<int>(all.begin + end), static_cast<int>(common.begin),
          static_cast<int>(common.end)};
}

/// One tile of keys: scores, weights, accumulators.
template <class L>
__device__ __forceinline__ void attend_tile(const Parameters& p, const BlockKeys& keys, int key0, char* stage,
                                            float* scratch, const Row* rows, const Queries<L>& queries,
                                            const NibbleOffsets<L>& offsets, Running<L>& running, Accumulators<L>& out,
                                            ScaleRange<L>& range, int lane) {
  char* const values = stage + L::kSideBytes;
  Scores<L> s;
#pragma unroll
  for (int j = 0; j < L::kKeys / 16; ++j) score_keys<L>(s[j], stage + j * 16 * L::kStride, queries, offsets, lane);
  if (p.a.plain_score()) {
#pragma unroll
    for (int n = 0; n < L::kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float factor = rows[8 * n + lane % 4 * 2 + c].base2_factor;
#pragma unroll
        for (int j = 0; j < L::kKeys / 16; ++j) {
          s[j][n][c] *= factor;
          s[j][n][c + 2] *= factor;
        }
      }
    }
    if (key0 < keys.common_begin || key0 + L::kKeys > min(keys.common_end, keys.end)) {
      hide_by_structure<L>(s, rows, key0, keys.end, lane);
    }
  } else {
    apply_options<L>(s, scratch, rows, key0, keys.end, lane);
    if (p.a.mask.given() || p.a.bias.given()) clear_hidden_values<L>(s, values, lane);
  }
  follow_maximum<L>(running, out, s);
  if constexpr (is_blocked(L::kFormat)) range.include(values, out, lane);
#pragma unroll
  for (int j = 0; j < L::kKeys / 16; ++j) {
    uint32_t weights[L::kTiles][2];
    weigh<L>(running, weights, s[j]);
    add_values<L>(out, values + j * 16 * L::kStride, weights, range, lane);
  }
}

/// Adds up the warps' rows in order and writes them: out and lse if the keys aren't split, else this split's partials.
template <class L>
__device__ __forceinline__ void merge_warps(const Parameters& p, const Sequence& s, const Work& w, Accumulators<L>& out,
                                            Running<L>& running, const ScaleRange<L>& range, float* merged, int warp,
                                            int warps, int lane) {
  __shared__ float maxima[kMostWarps][L::kRows], sums[kMostWarps][L::kRows];
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
    float unit = 1;
    if constexpr (is_blocked(L::kFormat)) unit = range.power(n / L::kTilesOfHead);
    if constexpr (L::kFormat == Format::kQ4) unit *= kNibbleUnit;
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
    for (int item = threadIdx.x; item < 8 * L::kDim; item += blockDim.x) {
      const int r = item / L::kDim, dim = item % L::kDim, row = 8 * n + r;
      float maximum = TSR_NEG_INF, sum = 0, value = 0;
      for (int i = 0; i < warps; ++i) maximum = fmaxf(maximum, maxima[i][row]);
      const float base = maximum == TSR_NEG_INF ? 0.0f : maximum;
      for (int i = 0; i < warps; ++i) {
        const float weight = exp2_fast(maxima[i][row] - base);
        sum += weight * sums[i][row];
        value += weight * merged[(i * 8 + r) * kPitch + dim];
      }
      const RowId id = row_id(p.a, L::kVariant, w.tile, w.head_unit, row);
      if (p.splits == 1) {
        finish(p.a, s, w.batch, id, dim, maximum, sum, value);
      } else if (id.query < s.queries) {
        const int64_t partial = (w.unit * L::kRows + row) * p.splits + w.split;
        p.partial_out[partial * L::kDim + dim] = value;
        if (dim == 0) reinterpret_cast<float2*>(p.partial_stats)[partial] = make_float2(maximum, sum);
      }
    }
  }
}

template <class L>
__global__ void __launch_bounds__(kMostWarps * 32, 1) decode_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(16) char memory[];
  __shared__ Row rows[L::kRows];
  __shared__ float nibble_offsets[L::kFormat == Format::kQ4 ? L::kRows * L::kDim / 32 : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int ring_bytes_each = p.stages * L::kStageBytes;
  char* const ring = memory + warp * ring_bytes_each;
  const int rings = ring_bytes(L::kFormat, L::kDim, L::kVariant, warps, p.stages);
  constexpr int kScratch = scratch_bytes(L::kFormat, L::kDim, L::kVariant);
  float* const scratch = reinterpret_cast<float*>(memory + rings + warp * kScratch);
  char* const query_table = memory + rings + warps * kScratch;

  const Work w = work_of(p, blockIdx.x);
  const Sequence s = sequence_of(p.a, w.batch);
  const BlockKeys keys = block_keys<L>(p, s, w);
  const int step = warps * L::kKeys;
  const int first = keys.begin + warp * L::kKeys;
  TileCopier<L> copier(p, s, w.batch, static_cast<int64_t>(w.head_unit) * L::kHeads, keys.end, lane);

  if (p.k_width < L::kHeadBytes * L::kHeads || p.v_width < L::kHeadBytes * L::kHeads) {
    // Copies leave the padding of rows alone: once zero, always zero.
    for (int i = lane; i < ring_bytes_each / 16; i += 32) reinterpret_cast<uint4*>(ring)[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
  }
  const uint32_t ring_address = shared_address(ring);
  int next = first;  // key of the tile to be copied next
  copier.find_pages(p, next);
  for (int i = 0; i < p.stages - 1; ++i) {
    if (next < keys.end) copier.copy(p, ring_address + i * L::kStageBytes, next);
    copy_async_commit();
    next += step;
    copier.find_pages(p, next);
  }
  prepare_rows<L>(p, s, w, rows, query_table, nibble_offsets, warp, warps, lane);
  __syncthreads();

  Queries<L> queries;
  queries.load(query_table, lane);
  NibbleOffsets<L> offsets;
  offsets.load(nibble_offsets, lane);
  Running<L> running;
  Accumulators<L> out;
  ScaleRange<L> range;
#pragma unroll
  for (int head = 0; head < L::kHeads; ++head) range.set(head, 0);
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
    __syncwarp();  // all lanes' copies are there, and the stage before this one is read
    if (next < keys.end) {
      const int free = stage == 0 ? p.stages - 1 : stage - 1;
      copier.copy(p, ring_address + free * L::kStageBytes, next);
    }
    copy_async_commit();
    next += step;
    copier.find_pages(p, next);
    attend_tile<L>(p, keys, key0, ring + stage * L::kStageBytes, scratch, rows, queries, offsets, running, out, range,
                   lane);
    stage = stage + 1 == p.stages ? 0 : stage + 1;
  }
  copy_async_wait<0>();
  allow_next_kernel();
  merge_warps<L>(p, s, w, out, running, range, reinterpret_cast<float*>(memory), warp, warps, lane);
}

}  // namespace tsr::cuda::decode
