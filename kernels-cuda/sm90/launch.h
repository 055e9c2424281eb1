// What the kernel of prefill.cuh is launched with, beside the Attention.
#pragma once

#include <cuda.h>

#include "../sm80/order.cuh"

namespace tsr::cuda::sm90 {

/// Tensor maps: (columns, rows, heads, batch or page) in boxes of 64 columns.
struct Maps {
  CUtensorMap q, k, v, out;
};

struct Launch {
  sm80::Order order;
  uint32_t total = 0;           ///< query tiles
  int32_t box_rows = 0;         ///< keys that one copy brings: a key tile, or a page if that is less
  uint32_t* counter = nullptr;  ///< 0 at the start; NULL: there is a block for each tile
  float factor = 0;             ///< of what softmax gets, to base 2; above 0
  float power = 0;              ///< power_of_two_below(factor)
};

}  // namespace tsr::cuda::sm90
