// What turns a score s = scale q.k into the exponent of its weight, beyond masking by structure: soft cap, bias, ALiBi,
// boolean mask (docs/semantics.md, "Score"). Kernels call it for the elements of tiles of problems that have any of these.
#pragma once

#include "attention.h"
#include "convert.cuh"
#include "ptx.cuh"

namespace tsr::cuda {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kBiasLimit = 8.507059173023462e37f;  // 2^126: stays finite in base 2
#define TSR_NEG_INF __int_as_float(0xff800000)

/// What a row's scores are multiplied by, to base 2, and what comes off then: maximum x factor. A weight's exponent is one FMA, but base is
/// rounded: from 2^26 on by more than fp16 has exponents for. There the factor is cut to a power of two, whose products are exact: that moves
/// exponents that matter (down to -32) by 16 at most, which is what 2^-22 of such a score allows (docs/semantics.md, "Numbers").
struct RowFactor {
  float by, base;
};
TSR_HOST_DEVICE inline float power_of_two_below(float factor) {
  union {
    float value;
    uint32_t bits;
  } x{factor};
  x.bits &= 0x7f800000u;
  return x.value;
}
/// power: power_of_two_below(factor).
__device__ __forceinline__ RowFactor row_factor(float maximum, float factor, float power) {
  const float top = maximum == TSR_NEG_INF ? 0.0f : maximum;  // a row that saw nothing
  const float base = top * factor, exact = top * power;
  const bool far = fabsf(base) > 67108864.0f;
  return {far ? power : factor, far ? exact : base};
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

/// tanh(x), absolute error <= 2e-7, relative error <= 4e-7 near 0, NaN stays NaN: x + x^3 P(x^2) with a minimax fit of degree 5
/// below 0.625 (the CPU's, backends/cpu/src/isa/simd.inc.h), (1 - e) / (1 + e) with e = exp(-2|x|) above. No branch, unlike tanhf.
__device__ __forceinline__ float tanh_of(float x) {
  const float z = x * x;
  float p = 2.27564292e-3f;
  p = __fmaf_rn(p, z, -8.32931433e-3f);
  p = __fmaf_rn(p, z, 2.17646386e-2f);
  p = __fmaf_rn(p, z, -5.39587641e-2f);
  p = __fmaf_rn(p, z, 1.33333016e-1f);
  p = __fmaf_rn(p, z, -3.33333332e-1f);
  const float near = __fmaf_rn(x * z, p, x);
  const float e = exp2_fast(fabsf(x) * (-2 * kLog2e));
  return fabsf(x) < 0.625f ? near : copysignf(__fdividef(1.0f - e, 1.0f + e), x);
}

/// What scores are multiplied by before tanh. A cap that is hardly above 0 makes it infinite, and 0 times that is NaN.
__device__ __forceinline__ float cap_factor(float scale, float softcap) {
  return fmaxf(fminf(scale / softcap, 3e38f), -3e38f);
}

/// A score and its bias: finite ones are clamped, NaN and +inf show. Compared, not clamped by fminf, which would hide a NaN.
__device__ __forceinline__ float add_bias(float score, float bias) {
  if (bias == TSR_NEG_INF) return bias;
  bias = bias < -kBiasLimit ? -kBiasLimit : bias;
  return score + (bias > kBiasLimit && bias != -TSR_NEG_INF ? kBiasLimit : bias);
}

/// Score (natural, scaled) of key j, which the row sees by structure, to base 2; -inf if its mask or bias hides it.
__device__ __forceinline__ float score_base2(const RowOptions& o, float score, int64_t j) {
  if (o.softcap > 0) score = o.softcap * tanh_of(score / o.softcap);
  if (o.bias != nullptr) score = add_bias(score, load_1(o.bias_type, o.bias, j));
  if (o.slope != 0) {
    const int64_t distance = o.position - j;
    score -= o.slope * static_cast<float>(distance < 0 ? -distance : distance);
  }
  if (o.mask != nullptr && o.mask[j] == 0) score = TSR_NEG_INF;
  return score * kLog2e;
}

}  // namespace tsr::cuda
