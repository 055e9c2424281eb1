// The optimisation ladder: one mma.sync prefill kernel, each step of which switches one thing on. It exists to be measured
// (`tessera bench --suite ladder`) and runs only where it is asked for by name; prefill-mma is what the steps lead to.
//
// fp16, head dim 128, keys and values of padded batches, masked by causality and lengths alone. A block has kRows query rows of one head and walks the key tiles
// that any of them sees from the first to the last. Products, masking and the end are prefill-mma's (sm80/walk.cuh). The steps:
//   kRows x kTileKeys  the tile. A warp holds the scores of kKeys = 64 keys, as many as registers take beside O: a tile of 128
//                      keys is scored in two parts
//   kFastMath          exp2 that flushes denormals, scale and maximum in one FMA, a row's reciprocal; without: exp2f, a
//                      multiplication and a subtraction, a division for each element of O
//   kSplit             keys that all rows of the block see aren't masked; without: every tile is
//   kReversed          tiles with the most keys start first; without: they start last
// Shared memory: Q [kRows][128], K and V [kTileKeys][128], the keys that each row sees. V is copied under Q K^T, the next K
// under the last softmax and P V.
#pragma once

#include <type_traits>

#include "../sm80/walk.cuh"

namespace tsr::cuda::ladder {

using sm80::Place;
using sm80::Walk;

template <int kRows_, int kTileKeys_, int kWarps_, bool kFastMath_, bool kSplit_, bool kReversed_>
struct Step {
  using Element = __half;
  static constexpr int kDim = 128, kValueDim = 128, kRows = kRows_, kTileKeys = kTileKeys_, kWarps = kWarps_;
  static constexpr bool kFastMath = kFastMath_, kSplit = kSplit_, kReversed = kReversed_;
  static constexpr int kKeys = 64, kParts = kTileKeys / kKeys;
  static constexpr int kThreads = kWarps * 32, kBlocks = kRows / kWarps / 16;
  static constexpr int kQBytes = kRows * kDim * 2, kKBytes = kTileKeys * kDim * 2;
  static constexpr int kRowsAt = kQBytes + 2 * kKBytes;  ///< of the rows' key ranges
  static constexpr int kBlockAt = kRowsAt + kRows * 8;   ///< of what the whole block needs to know
  static constexpr int kSharedBytes = kBlockAt + 32;
};

/// What registers needn't keep.
struct Block {
  const char* k;  ///< of key 0 of the block's KV head
  const char* v;
  int end;         ///< of the keys that any row sees; without a window the first is key 0
  int common_end;  ///< of the keys that all rows see
};

/// Each operation rounded as IEEE has it, or by CUDA's math library.
struct ExactMath {
  __device__ __forceinline__ static float exp2(float x) { return exp2f(x); }
  __device__ __forceinline__ static float weight(float score, float factor, float base) {
    return exp2f(__fsub_rn(__fmul_rn(score, factor), base));
  }
  __device__ __forceinline__ static float normal(float x, const Ending& ending) { return __fdiv_rn(x, ending.divisor); }
};

/// Blocks start in the order of their index: a head's tiles follow each other.
template <class Step>
__device__ __forceinline__ Place place_of(const Attention& a, uint32_t tiles) {
  const uint32_t lane = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const auto heads = static_cast<uint32_t>(a.heads);
  return {static_cast<int32_t>(lane / heads), static_cast<int32_t>(lane % heads),
          static_cast<int32_t>(Step::kReversed ? tiles - 1 - tile : tile), true};
}

template <class Step>
__device__ __forceinline__ void clear(Walk<Step>& w) {
#pragma unroll
  for (int m = 0; m < Step::kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      w.maximum[m][half] = TSR_NEG_INF;
      w.sum[m][half] = 0;
    }
#pragma unroll
    for (int d = 0; d < Step::kValueDim / 8; ++d) {
#pragma unroll
      for (int e = 0; e < 4; ++e) w.out[m][d][e] = 0;
    }
  }
}

/// `tiles` of queries for each head; the grid has batch x heads times as many blocks. a.scale > 0.
template <class Step>
__global__ void __launch_bounds__(Step::kThreads, 1)
    prefill(const __grid_constant__ Attention a, const uint32_t tiles) {
  using Math = std::conditional_t<Step::kFastMath, sm80::FastMath, ExactMath>;
  constexpr int kRows = Step::kRows, kKeys = Step::kKeys, kThreads = Step::kThreads, kRowBytes = Step::kDim * 2;
  extern __shared__ uint4 shared[];
  char* const q_tile = reinterpret_cast<char*>(shared);
  char* const k_tile = q_tile + Step::kQBytes;
  char* const v_tile = k_tile + Step::kKBytes;
  int2* const row_keys = reinterpret_cast<int2*>(q_tile + Step::kRowsAt);
  Block& block = *reinterpret_cast<Block*>(q_tile + Step::kBlockAt);

  const Place place = place_of<Step>(a, tiles);
  const Sequence s = sequence_of(a, place.batch);
  const int64_t first_query = static_cast<int64_t>(place.tile) * kRows;
  const auto keys_of = [&](int64_t first, int64_t rows) {
    return s.visibility.keys(Span{first, first + rows < s.queries ? first + rows : s.queries});
  };
  if (threadIdx.x == 0) {
    // Key positions fit 32 bits: the back end takes no longer sequences.
    const Span common = s.visibility.common_keys(Span{first_query, first_query + kRows});
    block = {a.k.at(place.batch, s.key_row, place.head / a.group), a.v.at(place.batch, s.key_row, place.head / a.group),
             static_cast<int>(keys_of(first_query, kRows).end), static_cast<int>(common.end)};
  }
  for (int row = threadIdx.x; row < kRows; row += kThreads) {
    const Span keys = keys_of(first_query + row, 1);
    row_keys[row] = {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
  }
  __syncthreads();
  const auto fill = [&](char* tile, const View& view, const char* base, int key) {
    sm80::fill_tile<Step::kDim, Step::kTileKeys, kThreads, true>(tile, base + key * view.row, view.row, 0,
                                                                 block.end - key, Step::kDim);
  };

  const float factor = a.scale * kLog2e;
  Walk<Step> w;
  clear(w);
  if (block.end > 0) {
    const auto q_end = static_cast<int>(s.queries - first_query < kRows ? s.queries - first_query : kRows);
    sm80::fill_tile<Step::kDim, kRows, kThreads, true>(
        q_tile, a.q.at(place.batch, s.query_row + first_query, place.head), a.q.row, 0, q_end, Step::kDim);
    const uint32_t q_rows = shared_address(q_tile) + threadIdx.x / 32 * Step::kBlocks * 16 * kRowBytes;
    fill(k_tile, a.k, block.k, 0);
    copy_async_commit();
    for (int key = 0; key < block.end; key += Step::kTileKeys) {
      copy_async_wait<0>();
      __syncthreads();  // K is there, and V of the step before has been read
      fill(v_tile, a.v, block.v, key);
      copy_async_commit();
#pragma unroll 1
      for (int part = 0; part < Step::kParts; ++part) {
        const int first_key = key + part * kKeys;
        const uint32_t at = part * kKeys * kRowBytes;
        sm80::multiply_qk(w, q_rows, shared_address(k_tile) + at);
        if (part == 0) copy_async_wait<0>();
        if (part == 0 || part == Step::kParts - 1) __syncthreads();  // V is there; K has been read
        if (part == Step::kParts - 1 && key + Step::kTileKeys < block.end) {
          fill(k_tile, a.k, block.k, key + Step::kTileKeys);
          copy_async_commit();
        }
        if (!Step::kSplit || first_key + kKeys > block.common_end) {
          sm80::mask_tile(w, row_keys, first_key);
        }
        sm80::softmax<Math>(w, factor);
        sm80::multiply_pv(w, shared_address(v_tile) + at);
      }
    }
  }
  sm80::store_rows<Math>(w, a, sequence_of(a, place.batch), place, factor, q_tile, true);
}

}  // namespace tsr::cuda::ladder
