// The warps that feed: one works out which query tiles the block does, one copies.
#pragma once

#include "launch.h"
#include "ptx.cuh"
#include "shape.cuh"

namespace tsr::cuda::sm90 {

/// A warp that works out what the block does next, a tile ahead of the copies. That takes about as long as a key tile.
template <class Shape>
struct Scheduler {
  const Attention& a;
  const Maps& maps;
  const Launch& launch;
  char* const shared;
  const Barriers bars;
  const int lane;

  __device__ __forceinline__ uint32_t fetch() const {
    if (launch.counter == nullptr) return launch.total;  // nothing is left
    uint32_t index = 0;
    wait_for_earlier_kernel();  // the one that set the counter to 0
    if (lane == 0) index = atomicAdd(launch.counter, 1u) + gridDim.x;
    return __shfl_sync(~0u, index, 0);
  }
  __device__ __forceinline__ void run() const {
    uint32_t index = blockIdx.x;
    for (uint32_t n = 0;; ++n) {
      if (n > 0) {  // no more than a tile ahead: what is taken early can't go to whoever is idle
        barrier_wait(bars.tile_taken + 8 * ((n - 1) & 1), (n - 1) >> 1 & 1);
        index = fetch();
      }
      sm80::Place place{0, 0, 0, false};
      while (index < launch.total) {
        place = sm80::place_of(a, launch.order, index, Shape::kRows);
        if (place.real) break;
        index = fetch();
      }
      if (lane == 0) {
        Tile& t = tile_ring<Shape>(shared, n);
        t.steps = 0;
        if (place.real) make_tile<Shape::kRows, Shape::kKeys>(a, place, t);
        barrier_arrive(bars.tile_full + 8 * (n & 1));
        if (Shape::kQSlots == 1 && place.real) {
#pragma unroll 1
          for (int part = 0; part < Shape::kConsumers * (Shape::kDim / 64); ++part) {
            prefetch_box(&maps.q, part % (Shape::kDim / 64) * 64,
                         t.query_row + t.first_query + part / (Shape::kDim / 64) * Shape::kWarpgroupRows, t.head,
                         a.packed_q ? 0 : t.batch);
          }
        }
      }
      __syncwarp();
      if (!place.real) return;
    }
  }
};

/// A warp that asks for everything that is copied.
template <class Shape>
struct Producer {
  const Attention& a;
  const Maps& maps;
  const Launch& launch;
  const uint32_t base;
  char* const shared;
  const Barriers bars;
  const int lane;

  /// Announces the n-th tile of this block to the consumers and asks for its Q. Its slot must be free.
  __device__ __forceinline__ void open(uint32_t n) const {
    const int slot = n % Shape::kQSlots;
    if (lane == 0) {
      const Tile& t = tile_ring<Shape>(shared, n);
      if (t.steps == 0) {
        barrier_arrive(bars.q_full + 8 * slot);
      } else {
        const int row = t.query_row + t.first_query, head = t.head, batch = a.packed_q ? 0 : t.batch;
        barrier_expect(bars.q_full + 8 * slot, Shape::kQBytes);
#pragma unroll 1
        for (int part = 0; part < Shape::kConsumers * (Shape::kDim / 64); ++part) {
          copy_box(base + Shape::kQAt + slot * Shape::kQBytes + part * 64 * 128, &maps.q, bars.q_full + 8 * slot,
                   part % (Shape::kDim / 64) * 64, row + part / (Shape::kDim / 64) * Shape::kWarpgroupRows, head,
                   batch);
        }
      }
    }
    __syncwarp();
  }

  /// Asks for a tile of keys or values, on `barrier`.
  template <int kTileDim>
  __device__ __forceinline__ void copy_tile(const Tile& t, const CUtensorMap* map, int first_key, uint32_t to,
                                            uint32_t barrier) const {
    if (lane != 0) return;
    const int head = t.kv_head;
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
    const bool dirty = t.clean_from > first_key || t.clean_to < first_key + Shape::kKeys;
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
    barrier_wait(bars.tile_full, 0);
    open(0);
    for (uint32_t n = 0;; ++n) {
      const Tile& t = tile_ring<Shape>(shared, n);
      const int steps = __shfl_sync(~0u, t.steps, 0);
      if (steps == 0) return;
      if (lane == 0) barrier_arrive(bars.tile_taken + 8 * (n & 1));
      __syncwarp();
      const int ask = steps < 2 ? steps : 2;
      for (int j = 0; j <= steps; ++j) {  // K one tile ahead of V: the order in which they are used
        if (j < steps) load_k(t, done + j, t.last_key - j * Shape::kKeys);
        if (j > 0) load_v(t, done + j - 1, t.last_key - (j - 1) * Shape::kKeys, cleaned);
        if (j == ask && Shape::kQSlots == 2) {
          barrier_wait(bars.tile_full + 8 * ((n + 1) & 1), (n + 1) >> 1 & 1);
          barrier_wait(bars.q_empty + 8 * ((n + 1) & 1), (((n + 1) >> 1) & 1) ^ 1);
          open(n + 1);
        }
      }
      done += steps;
      if (Shape::kQSlots == 1) {  // Q is read for the last time with the last key tile
        barrier_wait(bars.tile_full + 8 * ((n + 1) & 1), (n + 1) >> 1 & 1);
        barrier_wait(bars.k_empty + 8 * ((done - 1) & 1), ((done - 1) >> 1) & 1);
        open(n + 1);
      }
    }
  }
};

}  // namespace tsr::cuda::sm90
