// The tiles that an instantiation of prefill.cuh works on, and its shared memory.
#pragma once

#include "schedule.cuh"

namespace tsr::cuda::sm90 {

template <class T, int kDim_, int kValueDim_, int kKeys_, int kConsumers_ = 2, bool kScored_ = false>
struct Shape {
  using Element = T;
  static constexpr bool kScored = kScored_;  ///< with a soft cap or ALiBi
  static constexpr int kDim = kDim_, kValueDim = kValueDim_, kKeys = kKeys_, kConsumers = kConsumers_;
  static constexpr int kWarpgroupRows = 64, kRows = kConsumers * kWarpgroupRows, kWarps = kConsumers * 4;
  static constexpr int kThreads = (kConsumers + 1) * 128, kStages = 2;
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 232;
  static constexpr int kQBytes = kRows * kDim * 2, kKBytes = kKeys * kDim * 2, kVBytes = kKeys * kValueDim * 2;
  static constexpr int kCopiesBytes = kStages * (kKBytes + kVBytes), kMost = 232448 - 1024;
  /// O leaves in parts of so many columns: fewer where shared memory is short.
  static constexpr int kOutColumns = kValueDim % 128 == 0 && kCopiesBytes + kQBytes + kWarps * 4096 <= kMost ? 128 : 64;
  static constexpr int kOutWarpBytes = 16 * kOutColumns * 2;
  static constexpr int kQSlots = kCopiesBytes + 2 * kQBytes + kWarps * kOutWarpBytes <= kMost ? 2 : 1;
  static constexpr int kQAt = 0, kKAt = kQAt + kQSlots * kQBytes, kVAt = kKAt + kStages * kKBytes;
  static constexpr int kOutAt = kVAt + kStages * kVBytes;
  static constexpr int kBarriersAt = kOutAt + kWarps * kOutWarpBytes;
  static constexpr int kTilesAt = kBarriersAt + 192;
  static constexpr int kTileRing =
      8;  ///< the scheduler is up to three tiles ahead of a consumer, which looks back at one
  static constexpr int kTileBytes = (sizeof(Tile) + 15) / 16 * 16;
  static constexpr int kSharedBytes = kTilesAt + kTileRing * kTileBytes;
  static constexpr int kScratchAt = kBarriersAt + 144;
};

/// Addresses of the barriers. All but v_raw are pairs: stage, slot or tile 0 and 1.
struct Barriers {
  uint32_t q_full, q_empty, k_full, k_empty, v_full, v_empty, v_raw, tile_full, tile_taken;
  __device__ __forceinline__ explicit Barriers(uint32_t at)
      : q_full(at),
        q_empty(at + 16),
        k_full(at + 32),
        k_empty(at + 48),
        v_full(at + 64),
        v_empty(at + 80),
        v_raw(at + 96),
        tile_full(at + 112),
        tile_taken(at + 128) {}
};

template <class Shape>
__device__ __forceinline__ Tile& tile_ring(char* shared, uint32_t n) {
  return reinterpret_cast<Tile*>(shared + Shape::kTilesAt + n % Shape::kTileRing * Shape::kTileBytes)[0];
}

}  // namespace tsr::cuda::sm90
