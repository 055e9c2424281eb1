// Fused attention on mma.sync m16n8k16, for sm_80 and everything after it: q, k, v of one 16-bit type T, fp32 sums.
//
// A block has kRows query rows of one head, kRows / kWarps (16 or 32) a warp, and walks the key tiles that they see from the
// last to the first: with causality the partial tiles come first.
//   S = Q K^T     A: Q by ldmatrix, B: K by ldmatrix; each K fragment serves all 16-row blocks of the warp
//   softmax       in registers, base 2, scale folded into one FMA; a row's elements are in the 4 lanes of a quad. O is
//                 rescaled only in steps in which a maximum of the warp grew
//   O += P V      A: P straight from the registers of S, rounded to T; B: V by ldmatrix.trans
// Shared memory: Q [kRows][kDim], then kStages x (K [kKeys][kDim], V [kKeys][kValueDim]), swizzled as in tile.cuh; then
// the range of keys that each row and each warp sees and the addresses of keys and values, which registers needn't keep.
//   kStages 2: both tiles of the next step are copied during this step; one barrier a step.
//   kStages 1: V's copy runs under Q K^T, the next K's under softmax and P V; two barriers a step, half the memory.
// Registers of a thread, for 32 rows a warp: O kValueDim, S kKeys, two rows' state each.
// kOptions: soft cap, bias, ALiBi, mask, and views whose rows can't be copied 16 bytes at a time.
#pragma once

#include <type_traits>

#include "score_tile.cuh"
#include "walk.cuh"

namespace tsr::cuda::sm80 {

template <class T, int kDim_, int kValueDim_, int kRows_, int kKeys_, int kWarps_, int kStages_, bool kOptions_>
struct Shape {
  using Element = T;
  static constexpr int kDim = kDim_, kValueDim = kValueDim_, kRows = kRows_, kKeys = kKeys_, kWarps = kWarps_,
                       kStages = kStages_;
  static constexpr bool kOptions = kOptions_;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocks = kRows / kWarps / 16;  ///< 16-row blocks of a warp
  static constexpr int kQBytes = kRows * kDim * 2, kKBytes = kKeys * kDim * 2, kVBytes = kKeys * kValueDim * 2;
  static constexpr int kStageBytes = kKBytes + kVBytes;
  static constexpr int kRowsAt = kQBytes + kStages * kStageBytes;  ///< of the rows' key ranges
  static constexpr int kWarpsAt = kRowsAt + kRows * 8;             ///< of the warps' key ranges
  static constexpr int kBasesAt = kWarpsAt + kWarps * 16;          ///< of the addresses of keys and values
  static constexpr int kSharedBytes = kBasesAt + 16;
  /// Blocks of a multiprocessor that registers are kept few for: options wait for memory and special functions, which other warps fill.
  static constexpr int kResident = kOptions && kDim <= 128 ? 3 : 1;
};

/// Where a block's keys or values are: the address of key 0 of its KV head; paged: of page 0.
__device__ __forceinline__ const char* key_base(const Attention& a, const View& view, const Sequence& s,
                                                const Place& place) {
  const int head = place.head / a.group;
  return a.paged() ? view.at(0, 0, head) : view.at(place.batch, s.key_row, head);
}

/// Fills a tile of keys or values; zeros outside [begin, end).
template <class Shape, int kTileDim, bool kAligned>
__device__ __forceinline__ void fill_keys(const Attention& a, const View& view, const char* base, int batch,
                                          int first_key, int begin, int end, int dim, char* tile) {
  if (!a.paged()) {
    fill_tile<kTileDim, Shape::kKeys, Shape::kThreads, kAligned>(tile, base + first_key * view.row, view.row,
                                                                 begin - first_key, end - first_key, dim);
    return;
  }
  const int32_t* const pages = a.page_table + batch * a.page_table_stride;
  const auto page_size = static_cast<unsigned>(a.page_size);
  const auto row_of = [&](int row) {
    const auto j = static_cast<unsigned>(first_key + row);
    const int64_t page = clamped(pages[j / page_size], 0, a.page_count - 1);
    return base + page * view.batch + j % page_size * view.row;
  };
  gather_tile<kTileDim, Shape::kKeys, Shape::kThreads, kAligned>(tile, row_of, begin - first_key, end - first_key, dim);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    prefill(const __grid_constant__ Attention a, const __grid_constant__ Order order, const bool aligned_view) {
  constexpr int kRows = Shape::kRows, kKeys = Shape::kKeys, kThreads = Shape::kThreads;
  extern __shared__ uint4 shared[];
  char* const q_tile = reinterpret_cast<char*>(shared);
  char* const kv_tiles = q_tile + Shape::kQBytes;
  int2* const row_keys = reinterpret_cast<int2*>(q_tile + Shape::kRowsAt);
  int4* const warp_keys = reinterpret_cast<int4*>(q_tile + Shape::kWarpsAt);
  const char** const bases = reinterpret_cast<const char**>(q_tile + Shape::kBasesAt);
  const bool aligned = Shape::kOptions ? aligned_view : true;

  const Place place = place_of(a, order, blockIdx.x, kRows);
  if (!place.real) return;
  const Sequence s = sequence_of(a, place.batch);
  const int64_t first_query = static_cast<int64_t>(place.tile) * kRows;
  // Key positions fit 32 bits: the back end takes no longer sequences. Of the block: the keys that any row sees. Of a warp:
  // those that any of its rows sees, and those that all of them see.
  const auto keys_of = [&](int64_t first, int64_t rows) {
    return s.visibility.keys(Span{first, first + rows < s.queries ? first + rows : s.queries});
  };
  const Span block_keys = keys_of(first_query, kRows);
  const int begin = static_cast<int>(block_keys.begin), end = static_cast<int>(block_keys.end);
  for (int row = threadIdx.x; row < kRows; row += kThreads) {
    const Span keys = keys_of(first_query + row, 1);
    row_keys[row] = {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
  }
  if (threadIdx.x < Shape::kWarps) {
    constexpr int kWarpRows = Shape::kBlocks * 16;
    const int64_t first = first_query + threadIdx.x * kWarpRows;
    const Span any = keys_of(first, kWarpRows);
    Span all = s.visibility.common_keys(Span{first, first + kWarpRows});
    if (Shape::kOptions && first + kWarpRows > s.queries)
      all = {0, 0};  // behind the last query there is no bias or mask
    warp_keys[threadIdx.x] = {static_cast<int>(any.begin), static_cast<int>(any.end), static_cast<int>(all.begin),
                              static_cast<int>(all.end)};
  }
  if (threadIdx.x == 0) {
    bases[0] = key_base(a, a.k, s, place);
    bases[1] = key_base(a, a.v, s, place);
  }
  __syncthreads();
  const auto fill = [&](auto dim_constant, const View& view, const char* base, int first_key, int dim, char* tile) {
    constexpr int kTileDim = decltype(dim_constant)::value;
    if (aligned) {
      fill_keys<Shape, kTileDim, true>(a, view, base, place.batch, first_key, begin, end, dim, tile);
    } else {
      fill_keys<Shape, kTileDim, false>(a, view, base, place.batch, first_key, begin, end, dim, tile);
    }
  };
  const auto fill_k = [&](int first_key, int stage) {
    fill(std::integral_constant<int, Shape::kDim>{}, a.k, bases[0], first_key, a.dim,
         kv_tiles + stage * Shape::kStageBytes);
  };
  const auto fill_v = [&](int first_key, int stage) {
    fill(std::integral_constant<int, Shape::kValueDim>{}, a.v, bases[1], first_key, a.value_dim,
         kv_tiles + stage * Shape::kStageBytes + Shape::kKBytes);
  };

  // A negative scale becomes a positive one by negating Q, exactly: softmax's maximum needs a positive factor. A scale of 0
  // becomes one that no score notices: 0 times the -inf of a hidden key would be NaN.
  const bool negate = !Shape::kOptions && a.scale < 0;
  const float factor = Shape::kOptions ? 1.0f : fmaxf(fabsf(a.scale) * kLog2e, 1e-37f);
  Walk<Shape> w;
#pragma unroll
  for (int m = 0; m < Shape::kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      w.maximum[m][half] = TSR_NEG_INF;
      w.sum[m][half] = 0;
    }
#pragma unroll
    for (int d = 0; d < Shape::kValueDim / 8; ++d) {
#pragma unroll
      for (int e = 0; e < 4; ++e) w.out[m][d][e] = 0;
    }
  }

  if (begin < end) {
    const char* const q_base = a.q.at(place.batch, s.query_row + first_query, place.head);
    const auto q_end = static_cast<int>(s.queries - first_query < kRows ? s.queries - first_query : kRows);
    if (aligned) {
      fill_tile<Shape::kDim, kRows, kThreads, true>(q_tile, q_base, a.q.row, 0, q_end, a.dim);
    } else {
      fill_tile<Shape::kDim, kRows, kThreads, false>(q_tile, q_base, a.q.row, 0, q_end, a.dim);
    }
    int key = (end - 1) / kKeys * kKeys;
    fill_k(key, 0);
    if constexpr (Shape::kStages == 2) fill_v(key, 0);
    copy_async_commit();
    if (negate) {
      copy_async_wait<0>();
      __syncthreads();
      for (int index = threadIdx.x; index < Shape::kQBytes / 4; index += kThreads) {
        reinterpret_cast<uint32_t*>(q_tile)[index] ^= 0x80008000u;
      }
    }
    const uint32_t q_rows = shared_address(q_tile) + threadIdx.x / 32 * Shape::kBlocks * 16 * Shape::kDim * 2;
    int stage = 0;
    while (true) {
      copy_async_wait<0>();
      __syncthreads();  // this step's tiles are there, and what the copies below overwrite has been read
      const bool more = key > begin;
      const uint32_t k_tile = shared_address(kv_tiles) + stage * Shape::kStageBytes;
      if constexpr (Shape::kStages == 2) {
        if (more) {
          fill_k(key - kKeys, stage ^ 1);
          fill_v(key - kKeys, stage ^ 1);
        }
      } else {
        fill_v(key, 0);
      }
      copy_async_commit();
      if constexpr (Shape::kOptions) {
        if (more) prefetch_scores<Shape>(a, s, place, row_keys, key - kKeys);
      }
      const int4 mine = warp_keys[threadIdx.x / 32];
      const bool sees = key < mine.y && key + kKeys > mine.x;
      if (sees) multiply_qk(w, q_rows, k_tile);
      if constexpr (Shape::kStages == 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (more) fill_k(key - kKeys, 0);
        copy_async_commit();
      }
      if (sees) {
        const bool edge = key < mine.z || key + kKeys > mine.w;
        if constexpr (Shape::kOptions) {
          edge ? score_tile<true>(w, a, s, place, row_keys, key) : score_tile<false>(w, a, s, place, row_keys, key);
        } else if (edge) {
          mask_tile(w, row_keys, key);
        }
        softmax(w, factor);
        multiply_pv(w, k_tile + Shape::kKBytes);
      }
      if (!more) break;
      key -= kKeys;
      if constexpr (Shape::kStages == 2) stage ^= 1;
    }
  }
  store_rows(w, a, sequence_of(a, place.batch), place, factor, q_tile, aligned);
}

}  // namespace tsr::cuda::sm80
