// What a warp does with a tile of mma.sync prefill: S = Q K^T, softmax, masking, O += P V, and how rows end. Whoever walks the tiles
// brings a Shape: Element (16-bit), kDim, kValueDim, kRows query rows of the block, kBlocks 16-row blocks of a warp, kKeys keys
// that are scored at once, and kRowsAt bytes of tiles in shared memory, which O takes at the end.
#pragma once

#include "../common/output.cuh"
#include "order.cuh"
#include "tile.cuh"

namespace tsr::cuda::sm80 {

template <class Shape>
struct Walk {
  static constexpr int kBlocks = Shape::kBlocks;
  float out[kBlocks][Shape::kValueDim / 8][4];
  float score[kBlocks][Shape::kKeys / 8][4];
  float maximum[kBlocks][2];  ///< unscaled
  float sum[kBlocks][2];      ///< of this lane's keys
};

template <class Shape>
__device__ __forceinline__ void clear(float (&score)[Shape::kBlocks][Shape::kKeys / 8][4]) {
#pragma unroll
  for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) score[m][n][e] = 0;
    }
  }
}

/// S = Q K^T of one tile. The tensor cores cut sums off where a rounding would be exact on average, so that long sums of one
/// sign drift: 128 dims at most go into one, and two are added as fp32.
template <class Shape>
__device__ __forceinline__ void multiply_qk(Walk<Shape>& w, uint32_t q_tile, uint32_t k_tile) {
  using Tile = Rows<Shape::kDim>;
  constexpr int kSteps = Shape::kDim / 16, kPart = Shape::kDim > 128 ? kSteps / 2 : kSteps;
  const int thread = thread_number<Shape::kDim>();
  const LaneA lane_a(thread);
  const LaneB lane_b(thread);
  int twist_a = lane_a.chunk ^ Tile::twist(lane_a.row), twist_b = lane_b.chunk ^ Tile::twist(lane_b.row);
  compute_again(twist_a), compute_again(twist_b);
  q_tile += lane_a.row * Tile::kBytes;
  k_tile += lane_b.row * Tile::kBytes;
  const auto add = [&](auto& score, int first) {
#pragma unroll
    for (int d = first; d < first + kPart; ++d) {
      uint32_t a[Shape::kBlocks][4];
#pragma unroll
      for (int m = 0; m < Shape::kBlocks; ++m) {
        load_matrix_x4(a[m], q_tile + m * 16 * Tile::kBytes + ((2 * d ^ twist_a) << 4));
      }
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 16; ++n) {
        uint32_t b[4];
        load_matrix_x4(b, k_tile + n * 16 * Tile::kBytes + ((2 * d ^ twist_b) << 4));
#pragma unroll
        for (int m = 0; m < Shape::kBlocks; ++m) {
          mma_16816<typename Shape::Element>(score[m][2 * n], a[m], b[0], b[1]);
          mma_16816<typename Shape::Element>(score[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  };
  clear<Shape>(w.score);
  add(w.score, 0);
  if constexpr (kPart < kSteps) {
    float rest[Shape::kBlocks][Shape::kKeys / 8][4];
    clear<Shape>(rest);
    add(rest, kPart);
#pragma unroll
    for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) w.score[m][n][e] += rest[m][n][e];
      }
    }
  }
}

/// O += P V, P being what softmax left in `score`.
template <class Shape>
__device__ __forceinline__ void multiply_pv(Walk<Shape>& w, uint32_t v_tile) {
  using Tile = Rows<Shape::kValueDim>;
  using T = typename Shape::Element;
  const LaneA lane(thread_number<Shape::kDim>());
  int twist = lane.chunk ^ Tile::twist(lane.row);
  compute_again(twist);
  v_tile += lane.row * Tile::kBytes;
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 16; ++j) {
    uint32_t a[Shape::kBlocks][4];
#pragma unroll
    for (int m = 0; m < Shape::kBlocks; ++m) {
      a[m][0] = pack_pair<T>(w.score[m][2 * j][0], w.score[m][2 * j][1]);
      a[m][1] = pack_pair<T>(w.score[m][2 * j][2], w.score[m][2 * j][3]);
      a[m][2] = pack_pair<T>(w.score[m][2 * j + 1][0], w.score[m][2 * j + 1][1]);
      a[m][3] = pack_pair<T>(w.score[m][2 * j + 1][2], w.score[m][2 * j + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < Shape::kValueDim / 16; ++d) {
      uint32_t b[4];
      load_matrix_x4_transposed(b, v_tile + j * 16 * Tile::kBytes + ((2 * d ^ twist) << 4));
#pragma unroll
      for (int m = 0; m < Shape::kBlocks; ++m) {
        mma_16816<T>(w.out[m][2 * d], a[m], b[0], b[1]);
        mma_16816<T>(w.out[m][2 * d + 1], a[m], b[2], b[3]);
      }
    }
  }
}

__device__ __forceinline__ float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

/// 2^x flushes denormals, scale and maximum go in with one FMA; a row is divided by its sum once, as a multiplication.
struct FastMath {
  __device__ __forceinline__ static float exp2(float x) { return exp2_fast(x); }
  /// 2^(score factor - base)
  __device__ __forceinline__ static float weight(float score, float factor, float base) {
    return exp2_fast(__fmaf_rn(score, factor, -base));
  }
  /// One element of O, normalised.
  __device__ __forceinline__ static float normal(float x, const Ending& ending) { return x * ending.factor; }
};

/// Scores to weights 2^(factor (score - maximum)), with factor > 0; moves maximum, sum and O on.
template <class Math = FastMath, class Shape>
__device__ __forceinline__ void softmax(Walk<Shape>& w, float factor) {
  float next[Shape::kBlocks][2];
  bool moves = false;
#pragma unroll
  for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = w.score[m][0][2 * half];
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n) {
        top = fmaxf(top, fmaxf(w.score[m][n][2 * half], w.score[m][n][2 * half + 1]));
      }
      next[m][half] = fmaxf(w.maximum[m][half], max_of_quad(top));
      moves = moves || next[m][half] > w.maximum[m][half];
    }
  }
  if (__any_sync(~0u, moves)) {
#pragma unroll
    for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float base = next[m][half] == TSR_NEG_INF ? 0.0f : next[m][half];
        const float rescale = Math::exp2((w.maximum[m][half] - base) * factor);
        w.maximum[m][half] = next[m][half];
        w.sum[m][half] *= rescale;
#pragma unroll
        for (int d = 0; d < Shape::kValueDim / 8; ++d) {
          w.out[m][d][2 * half] *= rescale;
          w.out[m][d][2 * half + 1] *= rescale;
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto [by, base] = row_factor(w.maximum[m][half], factor, power_of_two_below(factor));
      float sum = 0;
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const float p = Math::weight(w.score[m][n][e], by, base);
          w.score[m][n][e] = p;
          sum += p;
        }
      }
      w.sum[m][half] += sum;
    }
  }
}

/// Row of the tile that (m, half) of this lane is.
template <class Shape>
__device__ __forceinline__ int row_of_lane(int m, int half) {
  return (static_cast<int>(threadIdx.x) / 32 * Shape::kBlocks + m) * 16 + half * 8 +
         static_cast<int>(threadIdx.x) % 32 / 4;
}

/// Hides what a row doesn't see by structure.
template <class Shape>
__device__ __forceinline__ void mask_tile(Walk<Shape>& w, const int2* row_keys, int first_key) {
  const int shift = first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int2 keys = row_keys[row_of_lane<Shape>(m, half)];
      const int begin = keys.x - shift, end = keys.y - shift;
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool visible = n * 8 + e >= begin && n * 8 + e < end;
          w.score[m][n][2 * half + e] = visible ? w.score[m][n][2 * half + e] : TSR_NEG_INF;
        }
      }
    }
  }
}

/// Normalises O and stores it. It goes through shared memory as fp32, over the tiles, which are no longer needed: a thread then
/// has eight neighbouring elements, and one short loop serves every output type. (Storing from the fragments took thousands of
/// instructions, most of the time of short sequences.)
template <class Math = FastMath, class Shape>
__device__ __forceinline__ void store_rows(Walk<Shape>& w, const Attention& a, const Sequence& s, const Place& place,
                                           float factor, char* shared, bool aligned) {
  constexpr int kChunks = Shape::kValueDim / 4;  // of 16 bytes
  static_assert(Shape::kRows * Shape::kValueDim * 4 <= Shape::kRowsAt);
  const auto chunk_at = [&](int row, int chunk) {
    return reinterpret_cast<float*>(shared + (row * kChunks + (chunk ^ (row & 7))) * 16);
  };
  const int64_t first_query = static_cast<int64_t>(place.tile) * Shape::kRows;
  const int lane = threadIdx.x % 32;
  __syncthreads();  // the tiles have been read
#pragma unroll
  for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of_lane<Shape>(m, half);
      const int64_t i = first_query + row;
      const float maximum = w.maximum[m][half] == TSR_NEG_INF ? TSR_NEG_INF : w.maximum[m][half] * factor;
      Ending ending = end_row(a, place.head, maximum, sum_of_quad(w.sum[m][half]));
      if (i >= s.queries) ending = {0.0f, TSR_NEG_INF};  // padding
      if (lane % 4 == 0 && i < (a.packed_q ? s.queries : a.query_rows)) {
        store_lse(a, place.batch, s.query_row + i, place.head, ending.lse);
      }
#pragma unroll
      for (int d = 0; d < Shape::kValueDim / 8; ++d) {
        // Chosen, not multiplied by 0: a row that has seen nothing may hold 0 x NaN of another row's V.
        float2 pair{Math::normal(w.out[m][d][2 * half], ending), Math::normal(w.out[m][d][2 * half + 1], ending)};
        if (ending.factor == 0) pair = {0.0f, 0.0f};
        *reinterpret_cast<float2*>(chunk_at(row, d * 2 + lane % 4 / 2) + lane % 2 * 2) = pair;
      }
    }
  }
  __syncwarp();  // a warp stores its own rows
  constexpr int kWarpRows = Shape::kBlocks * 16, kAcross = Shape::kValueDim / 8;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  const int64_t rows = (a.packed_q ? s.queries : a.query_rows) - first_query - first_row;
  const int count = static_cast<int>(rows < kWarpRows ? rows : kWarpRows) * kAcross;
  char* const base = a.out.at(place.batch, s.query_row + first_query + first_row, place.head);
#pragma unroll 1
  for (int index = lane; index < count; index += 32) {
    const int row = index / kAcross, d = index % kAcross;
    if (d * 8 >= a.value_dim) continue;
    const float4 low = *reinterpret_cast<const float4*>(chunk_at(first_row + row, d * 2));
    const float4 high = *reinterpret_cast<const float4*>(chunk_at(first_row + row, d * 2 + 1));
    store_8(a.out.type, base + row * a.out.row, d * 8, low, high, aligned);
  }
}

}  // namespace tsr::cuda::sm80
