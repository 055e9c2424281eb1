// How a row ends: normalise once, the sink, the natural lse, and rows that have no query.
#pragma once

#include "convert.cuh"
#include "ptx.cuh"
#include "score.cuh"

namespace tsr::cuda {

struct Ending {
  float factor;       ///< of the unnormalised out
  float lse;          ///< natural
  float divisor = 1;  ///< 1 / factor, where it isn't 0
};

/// From a row's maximum (base 2) and the sum of 2^(score - maximum). A row that saw nothing: out 0, lse -inf, or its sink.
__device__ __forceinline__ Ending end_row(const Attention& a, int64_t head, float maximum, float sum) {
  float factor = 1;
  if (a.sinks != nullptr) {
    const float sink =
        __fmul_rn(a.sinks[head], kLog2e);  // never fused with what follows: base is this product, rounded
    const float next = fmaxf(maximum, sink);
    const float base = next == TSR_NEG_INF ? 0.0f : next;
    factor = exp2_fast(maximum - base);
    sum = sum * factor + exp2_fast(sink - base);
    maximum = next;
  }
  if (sum == 0) return {0.0f, TSR_NEG_INF};
  return {factor / sum, maximum * kLn2 + logf(sum), sum / factor};
}

/// `row` counts the rows of the tensor (packed: of all sequences).
__device__ __forceinline__ void store_lse(const Attention& a, int64_t b, int64_t row, int64_t head, float lse) {
  if (a.lse.given()) store_u32(a.lse.at(b, row, head), __float_as_uint(lse));
}

}  // namespace tsr::cuda
