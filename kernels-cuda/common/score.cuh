// What turns a score s = scale q.k into the exponent of its weight, beyond masking by structure: soft cap, bias, ALiBi,
// boolean mask (docs/semantics.md, "Score"). Kernels call it for the elements of tiles of problems that have any of these.
#pragma once

#include "attention.h"
#include "convert.cuh"

namespace tsr::cuda {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kBiasLimit = 8.507059173023462e37f;  // 2^126: stays finite in base 2
#define TSR_NEG_INF __int_as_float(0xff800000)

/// One query row's view of its options.
struct RowOptions {
  const char* bias;  ///< of key 0; NULL: none
  const char* mask;
  Type bias_type;
  float slope;
  float softcap;
  int64_t position;  ///< of the query among the keys
};

__device__ __forceinline__ RowOptions row_options(const Attention& a, const Sequence& s, int64_t b, int64_t i,
                                                  int64_t head) {
  RowOptions o;
  o.bias = a.bias.given() ? a.bias.at(b, i, head) : nullptr;
  o.bias_type = a.bias.type;
  o.mask = a.mask.given() ? a.mask.at(b, i, head) : nullptr;
  o.slope = a.alibi_slopes ? a.alibi_slopes[head] : 0.0f;
  o.softcap = a.softcap;
  o.position = i + s.visibility.offset;
  return o;
}

/// Score (natural, scaled) of key j, which the row sees by structure, to base 2; -inf if its mask or bias hides it.
__device__ __forceinline__ float score_base2(const RowOptions& o, float score, int64_t j) {
  if (o.softcap > 0) score = o.softcap * tanhf(score / o.softcap);
  if (o.bias != nullptr) {
    const float bias = load_1(o.bias_type, o.bias, j);
    // Compared, not clamped by fminf: NaN and +inf have to show.
    if (bias == TSR_NEG_INF) {
      score = bias;
    } else if (bias < -kBiasLimit) {
      score -= kBiasLimit;
    } else {
      score += bias > kBiasLimit && bias != -TSR_NEG_INF ? kBiasLimit : bias;
    }
  }
  if (o.slope != 0) {
    const int64_t distance = o.position - j;
    score -= o.slope * static_cast<float>(distance < 0 ? -distance : distance);
  }
  if (o.mask != nullptr && o.mask[j] == 0) score = TSR_NEG_INF;
  return score * kLog2e;
}

}  // namespace tsr::cuda
