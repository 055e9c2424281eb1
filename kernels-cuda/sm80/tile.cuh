// Tiles of 16-bit rows in shared memory: where each 16-byte chunk lies, how tiles are filled, and how a warp reads the
// operands of mma out of them.
//
// A row of kDim elements is kDim / 8 chunks of 16 bytes. ldmatrix reads the same chunk of 8 neighbouring rows at once, so
// chunks are XORed with the row: the 8 of them fall on different banks.
#pragma once

#include "../common/attention.h"
#include "../common/convert.cuh"
#include "../common/ptx.cuh"

namespace tsr::cuda::sm80 {

template <int kDim>
struct Rows {
  static_assert(kDim % 32 == 0);
  static constexpr int kChunks = kDim / 8;
  static constexpr int kBytes = kDim * 2;
  /// What chunks of a row are XORed with. Rows of an odd multiple of 64 bytes start in turn at two places of a bank line.
  __device__ __forceinline__ static int twist(int row) { return kChunks % 8 == 0 ? row & 7 : row >> 1 & 3; }
  /// Byte offset of a chunk in the tile.
  __device__ __forceinline__ static int offset(int row, int chunk) {
    return row * kBytes + ((chunk ^ twist(row)) << 4);
  }
};

/// What depends on `x` is computed where it's used, not once before the loop. From sm_100 on registers would spill otherwise; on
/// sm_90, where they don't, it costs 2 to 8 % at S 2,048 and 4,096.
__device__ __forceinline__ void compute_again([[maybe_unused]] int& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  asm volatile("" : "+r"(x));
#endif
}

/// The thread's number, from which fragments' addresses are worked out; again at each use where that is what keeps registers from
/// spilling: wide heads from sm_100 on, 128 dims on sm_120 (on sm_100 those would spill with it).
template <int kDim>
__device__ __forceinline__ int thread_number() {
  int thread = static_cast<int>(threadIdx.x);
#if defined(__CUDA_ARCH__)
  if constexpr (kDim > 128 || (kDim == 128 && __CUDA_ARCH__ >= 1200)) compute_again(thread);
#endif
  return thread;
}

/// One 16-byte chunk of a tile, from `from` or zeros. Aligned copies are asynchronous (commit and wait are the caller's);
/// without kAligned elements are loaded one by one.
template <bool kAligned>
__device__ __forceinline__ void fill_chunk(char* to, const char* from, bool there) {
  if constexpr (kAligned) {
    copy_async_16(shared_address(to), from, there);
  } else {
    uint32_t words[4] = {};
    if (there) {
      for (int w = 0; w < 4; ++w) {
        words[w] = load_u16(from + w * 4) | static_cast<uint32_t>(load_u16(from + w * 4 + 2)) << 16;
      }
    }
    *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
  }
}

/// Fills a tile of kRows rows: row r from base + r * stride if begin <= r < end, else zeros; zeros past `dim` elements.
template <int kDim, int kRows, int kThreads, bool kAligned>
__device__ __forceinline__ void fill_tile(char* tile, const char* base, int64_t stride, int begin, int end, int dim) {
  using Tile = Rows<kDim>;
  // As many neighbouring threads along a row as divide it evenly; a thread keeps to its columns.
  constexpr int kAcross = Tile::kChunks % 32 == 0 ? 32 : Tile::kChunks % 16 == 0 ? 16 : Tile::kChunks % 8 == 0 ? 8 : 4;
  constexpr int kStep = kThreads / kAcross;
  static_assert(kRows % kStep == 0);
  int row = threadIdx.x / kAcross, column = threadIdx.x % kAcross;
  compute_again(row), compute_again(column);
  const char* from = base + row * stride + column * 16;
#pragma unroll
  for (int step = 0; step < kRows / kStep; ++step) {
    const int r = row + step * kStep;
    const bool there = r >= begin && r < end;
#pragma unroll
    for (int group = 0; group < Tile::kChunks / kAcross; ++group) {
      const int chunk = column + group * kAcross;
      fill_chunk<kAligned>(tile + Tile::offset(r, chunk), from + group * kAcross * 16, there && chunk * 8 < dim);
    }
    from += kStep * stride;
  }
}

/// The same for rows that are anywhere: row_of(r) gives the address of row r.
template <int kDim, int kRows, int kThreads, bool kAligned, class RowOf>
__device__ __forceinline__ void gather_tile(char* tile, RowOf row_of, int begin, int end, int dim) {
  using Tile = Rows<kDim>;
#pragma unroll 1
  for (int index = threadIdx.x; index < kRows * Tile::kChunks; index += kThreads) {
    const int r = index / Tile::kChunks, chunk = index % Tile::kChunks;
    const bool there = chunk * 8 < dim && r >= begin && r < end;
    fill_chunk<kAligned>(tile + Tile::offset(r, chunk), there ? row_of(r) + chunk * 16 : nullptr, there);
  }
}

/// Lane's part of the address of a 16 x 16 operand block whose first row is a multiple of 16: A of Q K^T, and V (transposed).
struct LaneA {
  int row, chunk;
  __device__ __forceinline__ explicit LaneA(int thread) : row(thread & 15), chunk(thread >> 4 & 1) {}
};
/// The same for B of Q K^T: 16 keys x 16 dims, fragments of keys 0..7 first.
struct LaneB {
  int row, chunk;
  __device__ __forceinline__ explicit LaneB(int thread)
      : row((thread & 7) + (thread >> 1 & 8)), chunk(thread >> 3 & 1) {}
};

}  // namespace tsr::cuda::sm80
