// Attention in fp32 on the ordinary cores: any types, any alignment, all options. The variant that is always there.
//
// A block of 256 threads, 16 x 16 as (ty, tx), has a tile of kRows query rows of one KV head: row r is query r / group of
// query head r % group, so that the heads of a group share every key that is read. It walks the tiles of kKeys keys that any
// of its rows sees, over one split of the key range.
//   S = Q K^T   thread: rows ty * R .. + R, keys tx and tx + 16
//   softmax     a row's keys are in the 16 lanes of one tx range: half-warp shuffles
//   O += P V    thread: the same rows, columns tx * 4 + 64 c; each tile's sum apart, so that chains stay short
// Shared memory, fp32: Q [kRows][kDim + 4], K or V [kKeys][kDim + 4] (one after the other), P [kRows][kKeys + 4].
// Registers: O and the tile's sum, R * kDim / 16 each.
// Results: out and lse, or with several splits an unnormalised partial (common/split.cuh).
#pragma once

#include "../common/convert.cuh"
#include "../common/output.cuh"
#include "../common/score.cuh"
#include "../common/split.cuh"

namespace tsr::cuda::simt {

constexpr int kThreads = 256;
constexpr int kKeys = 32;

template <int kDim, int kRows>
constexpr int shared_bytes() {
  return ((kRows + kKeys) * (kDim + 4) + kRows * (kKeys + 4)) * 4;
}

/// Largest of 16 lanes, and their sum.
__device__ __forceinline__ float max_16(float x) {
  for (int step = 8; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}
__device__ __forceinline__ float sum_16(float x) {
  for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/// Rows [0, kKeys) of k or v for the keys from `first` on, as fp32; zeros for keys outside `seen` and dims past `dim`.
template <int kDim>
__device__ __forceinline__ void load_keys(const Attention& a, const Sequence& s, const View& view, int dim, int64_t b,
                                          int kv_head, int64_t first, Span seen, float* tile) {
  constexpr int kChunks = kDim / 8;
  for (int chunk = threadIdx.x; chunk < kKeys * kChunks; chunk += kThreads) {
    const int row = chunk / kChunks, d = chunk % kChunks * 8;
    alignas(16) float values[8] = {};
    if (d < dim && seen.contains(first + row)) {
      const KeyPlace place = key_place(a, s, b, first + row);
      load_8(view.type, view.at(place.batch, place.row, kv_head), d, values);
    }
    float* to = tile + row * (kDim + 4) + d;
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<float4*>(values);
    *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<float4*>(values + 4);
  }
}

template <int kDim, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ Attention a, const __grid_constant__ Tiling t, float* partials) {
  constexpr int R = kRows / 16;
  constexpr int C = kDim / 64;
  extern __shared__ float4 shared[];
  float* const q_tile = reinterpret_cast<float*>(shared);
  float* const kv_tile = q_tile + kRows * (kDim + 4);
  float* const p_tile = kv_tile + kKeys * (kDim + 4);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;

  const Work work = work_of(a, t, blockIdx.x);
  const Sequence s = sequence_of(a, work.batch);
  const int64_t rows = s.queries * a.group;
  const int64_t first_row = work.tile * kRows;
  const int64_t last_row = first_row + kRows < rows ? first_row + kRows : rows;
  if (first_row >= last_row) {
    if (t.splits == 1) clear_rows(a, s, work, first_row, kRows, kThreads);
    return;
  }
  if (t.splits == 1 && last_row - first_row < kRows) clear_rows(a, s, work, first_row, kRows, kThreads);

  for (int chunk = threadIdx.x; chunk < kRows * kDim / 8; chunk += kThreads) {
    const int row = chunk / (kDim / 8), d = chunk % (kDim / 8) * 8;
    alignas(16) float values[8] = {};
    const int64_t r = first_row + row;
    if (d < a.dim && r < last_row) {
      load_8(a.q.type, a.q.at(work.batch, s.query_row + r / a.group, work.kv_head * a.group + r % a.group), d, values);
    }
    float* to = q_tile + row * (kDim + 4) + d;
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<float4*>(values);
    *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<float4*>(values + 4);
  }

  const bool plain = a.plain_score();
  const float scale = a.scale * (a.k_scale ? a.k_scale[work.kv_head] : 1.0f);
  const float factor = plain ? scale * kLog2e : scale;
  float maximum[R], sum[R], out[R][C][4] = {};
  Span row_keys[R];
  RowOptions options[R];
  for (int r = 0; r < R; ++r) {
    maximum[r] = TSR_NEG_INF;
    sum[r] = 0;
    const int64_t row = first_row + ty * R + r;
    const bool real = row < last_row;
    const int64_t i = real ? row / a.group : 0;
    row_keys[r] = real ? s.visibility.keys(i) : Span{0, 0};
    options[r] = row_options(a, s, work.batch, i, work.kv_head * a.group + (real ? row % a.group : 0));
  }

  const Span queries{first_row / a.group, (last_row - 1) / a.group + 1};
  const Span seen = intersect(s.visibility.keys(queries), split_span(t, work.split));
  for (int64_t first = seen.begin / kKeys * kKeys; first < seen.end; first += kKeys) {
    __syncthreads();
    load_keys<kDim>(a, s, a.k, a.dim, work.batch, work.kv_head, first, seen, kv_tile);
    __syncthreads();
    float score[R][2] = {};
    const float* const q_rows = q_tile + ty * R * (kDim + 4);
    for (int d = 0; d < kDim; d += 4) {
      const float4 k0 = *reinterpret_cast<const float4*>(kv_tile + tx * (kDim + 4) + d);
      const float4 k1 = *reinterpret_cast<const float4*>(kv_tile + (tx + 16) * (kDim + 4) + d);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float4 q = *reinterpret_cast<const float4*>(q_rows + r * (kDim + 4) + d);
        score[r][0] += q.x * k0.x + q.y * k0.y + q.z * k0.z + q.w * k0.w;
        score[r][1] += q.x * k1.x + q.y * k1.y + q.z * k1.z + q.w * k1.w;
      }
    }
    float rescale[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      for (int e = 0; e < 2; ++e) {
        const int64_t j = first + tx + 16 * e;
        const float x = score[r][e] * factor;
        // Keys of other splits are hidden too: row_keys knows nothing of splits.
        score[r][e] = !(row_keys[r].contains(j) && seen.contains(j)) ? TSR_NEG_INF
                      : plain                                        ? x
                                                                     : score_base2(options[r], x, j);
      }
      const float next = fmaxf(maximum[r], max_16(fmaxf(score[r][0], score[r][1])));
      const float base = next == TSR_NEG_INF ? 0.0f : next;
      rescale[r] = exp2_fast(maximum[r] - base);
      const float p0 = exp2_fast(score[r][0] - base), p1 = exp2_fast(score[r][1] - base);
      sum[r] = sum[r] * rescale[r] + sum_16(p0 + p1);
      maximum[r] = next;
      p_tile[(ty * R + r) * (kKeys + 4) + tx] = p0;
      p_tile[(ty * R + r) * (kKeys + 4) + tx + 16] = p1;
    }
    __syncthreads();  // K has been read by all, and P is whole
    load_keys<kDim>(a, s, a.v, a.value_dim, work.batch, work.kv_head, first, seen, kv_tile);
    __syncthreads();
    float part[R][C][4] = {};
    for (int j = 0; j < kKeys; j += 4) {
      alignas(16) float p[R][4];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        *reinterpret_cast<float4*>(p[r]) = *reinterpret_cast<const float4*>(p_tile + (ty * R + r) * (kKeys + 4) + j);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          const float4 v = *reinterpret_cast<const float4*>(kv_tile + (j + e) * (kDim + 4) + c * 64 + tx * 4);
#pragma unroll
          for (int r = 0; r < R; ++r) {
            part[r][c][0] += p[r][e] * v.x;
            part[r][c][1] += p[r][e] * v.y;
            part[r][c][2] += p[r][e] * v.z;
            part[r][c][3] += p[r][e] * v.w;
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        for (int e = 0; e < 4; ++e) out[r][c][e] = out[r][c][e] * rescale[r] + part[r][c][e];
      }
    }
  }

  const float v_scale = a.v_scale ? a.v_scale[work.kv_head] : 1.0f;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int64_t row = first_row + ty * R + r;
    if (row >= last_row) continue;
    const int head = work.kv_head * a.group + static_cast<int>(row % a.group);
    if (t.splits > 1) {
      const Partial partial = partial_of(t, partials, blockIdx.x, ty * R + r);
      if (tx == 0) {
        partial.head[0] = maximum[r];
        partial.head[1] = sum[r];
      }
      for (int c = 0; c < C; ++c) {
        for (int e = 0; e < 4; ++e) {
          const int d = c * 64 + tx * 4 + e;
          if (d < a.value_dim) partial.out[d] = out[r][c][e] * v_scale;
        }
      }
      continue;
    }
    const Ending ending = end_row(a, head, maximum[r], sum[r]);
    char* const to = a.out.at(work.batch, s.query_row + row / a.group, head);
    for (int c = 0; c < C; ++c) {
      for (int e = 0; e < 4; ++e) {
        const int d = c * 64 + tx * 4 + e;
        if (d < a.value_dim) store_1(a.out.type, to, d, out[r][c][e] * (ending.factor * v_scale));
      }
    }
    if (tx == 0) store_lse(a, work.batch, s.query_row + row / a.group, head, ending.lse);
  }
}

}  // namespace tsr::cuda::simt
