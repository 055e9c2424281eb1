// What turns a score s = scale q.k into the exponent of its weight, beyond masking by structure: soft cap, bias, ALiBi,
// boolean mask (docs/semantics.md, "Score"); and how a row ends: normalise once, the sink, the natural lse.
#pragma once

#include "convert.h"

namespace tsr::hip {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kBiasLimit = 8.507059173023462e37f;  // 2^126: stays finite in base 2

/// Relative error below 4e-7: the odd series up to x^11 near 0, where 1 - 2 / (e^2x + 1) would cancel.
TSR_DEVICE float tanh_exact(float x) {
  const float size = __builtin_fabsf(x);
  if (size < 0.4f) {
    const float y = x * x;
    const float series =
        ((((-0.00886323f * y + 0.0218694885f) * y - 0.053968254f) * y + 0.133333333f) * y - 0.333333333f) * y;
    return x + x * series;
  }
  const float result = 1.0f - 2.0f / (exp2_fast(size * (2.0f * kLog2e)) + 1.0f);
  return __builtin_copysignf(result, x);
}

/// One query row's view of its options.
struct RowOptions {
  const char* bias;  ///< of key 0; NULL: none
  const char* mask;
  Type bias_type;
  float slope;
  float softcap;
  int64_t position;  ///< of the query among the keys
};

TSR_DEVICE RowOptions row_options(const Attention& a, const Sequence& s, int64_t b, int64_t i, int64_t head) {
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
TSR_DEVICE float score_base2(const RowOptions& o, float score, int64_t j) {
  if (o.softcap > 0) score = o.softcap * tanh_exact(score / o.softcap);
  if (o.bias != nullptr) {
    const float bias = load_1(o.bias_type, o.bias, j);
    // Compared, not clamped by a minimum: NaN and +inf have to show.
    if (bias == negative_infinity()) {
      score = bias;
    } else if (bias < -kBiasLimit) {
      score -= kBiasLimit;
    } else {
      score += bias > kBiasLimit && bias != -negative_infinity() ? kBiasLimit : bias;
    }
  }
  if (o.slope != 0) {
    const int64_t distance = o.position - j;
    score -= o.slope * static_cast<float>(distance < 0 ? -distance : distance);
  }
  if (o.mask != nullptr && o.mask[j] == 0) score = negative_infinity();
  return score * kLog2e;
}

struct Ending {
  float factor;  ///< of the unnormalised out
  float lse;     ///< natural
};

/// From a row's maximum (base 2) and the sum of 2^(score - maximum). A row that saw nothing: out 0, lse -inf, or its sink.
TSR_DEVICE Ending end_row(const Attention& a, int64_t head, float maximum, float sum) {
#pragma clang fp contract(off)  // a large sink less a maximum made of it is 0, not what rounding the product took
  float factor = 1;
  if (a.sinks != nullptr) {
    const float sink = a.sinks[head] * kLog2e;
    const float next = larger(maximum, sink);
    const float base = next == negative_infinity() ? 0.0f : next;
    factor = exp2_fast(maximum - base);
    sum = sum * factor + exp2_fast(sink - base);
    maximum = next;
  }
  if (sum == 0) return {0.0f, negative_infinity()};
  return {factor / sum, (maximum + log2_fast(sum)) * kLn2};
}

/// `row` counts the rows of the tensor (packed: of all sequences).
TSR_DEVICE void store_lse(const Attention& a, int64_t b, int64_t row, int64_t head, float lse) {
  if (a.lse.given()) store_u32(a.lse.at(b, row, head), bits_of<uint32_t>(lse));
}

}  // namespace tsr::hip
