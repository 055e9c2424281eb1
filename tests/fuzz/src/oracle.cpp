#include "oracle.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>

namespace fuzz {
namespace {

std::vector<float> decoded(const Holder& t) { return t ? t->decoded() : std::vector<float>(); }

bool any_f32(const Problem& p) { return p.q->dtype() == TSR_F32 || p.k->dtype() == TSR_F32 || p.v->dtype() == TSR_F32; }

constexpr double kLeastNormal = 0x1p-126;

double scale_of(const Problem& p) {
  return p.has_scale ? static_cast<double>(p.scale) : 1 / std::sqrt(static_cast<double>(p.dim));
}

/// What storage forces P into before it meets V.
tsr_dtype type_of_p(const Problem& p) {
  if (any_f32(p)) return TSR_F32;
  const tsr_dtype v = p.v->dtype();
  return v == TSR_F16 || v == TSR_BF16 ? v : p.q->dtype();
}

}  // namespace

Oracle::Oracle(const Problem& problem, int64_t work, Random random, bool flushes)
    : p_(problem),
      q_(decoded(problem.q)),
      k_(decoded(problem.k)),
      v_(decoded(problem.v)),
      bias_(decoded(problem.bias)),
      mask_(decoded(problem.mask)),
      alibi_(decoded(problem.alibi)),
      sinks_(decoded(problem.sinks)),
      k_scale_(decoded(problem.k_scale)),
      v_scale_(decoded(problem.v_scale)),
      p_type_(type_of_p(problem)),
      flushes_(flushes) {
  if (flushes) {
    for (std::vector<float>* elements : {&q_, &k_, &v_}) {
      for (float& x : *elements) x = std::fabs(static_cast<double>(x)) < kLeastNormal ? 0 : x;
    }
    score_underflow_ = std::fabs(scale_of(problem)) * static_cast<double>(problem.dim) * kLeastNormal;
  }
  const int64_t all = p_.batch * p_.heads * p_.queries;
  const int64_t each = std::max<int64_t>(1, p_.keys) * (p_.dim + p_.value_dim);
  const int64_t count = std::min(all, std::max<int64_t>(6, work / each));
  for (int64_t n = 0; n < count; n++) {
    // The first, the last, and some between.
    const int64_t index = count == all ? n : n == 0 ? 0 : n == 1 ? all - 1 : random.between(0, all - 1);
    const int64_t i = index % p_.queries, h = index / p_.queries % p_.heads, b = index / p_.queries / p_.heads;
    if (p_.packed_q && i >= p_.query_counts[static_cast<size_t>(b)]) continue;  // no such row
    rows_.push_back(solve(b, h, i));
  }
}

Row Oracle::solve(int64_t b, int64_t h, int64_t i) {
  const auto entry = static_cast<size_t>(b);
  Row row;
  row.out_row = p_.query_row(b, i) * p_.heads + h;
  row.lse_at = p_.packed_q ? h * p_.start_q.back() + p_.start_q[entry] + i : (b * p_.heads + h) * p_.queries + i;
  row.out.assign(static_cast<size_t>(p_.value_dim), 0.0);
  row.lse = -INFINITY;
  if (i >= p_.query_counts[entry]) return row;

  const int64_t kv = h / (p_.heads / p_.kv_heads), at = i + p_.offsets[entry];
  const double scale = scale_of(p_);
  const double k_scale = k_scale_.empty() ? 1 : static_cast<double>(k_scale_[static_cast<size_t>(kv)]);
  const double v_scale = v_scale_.empty() ? 1 : static_cast<double>(v_scale_[static_cast<size_t>(kv)]);
  const float* const q = q_.data() + row.out_row * p_.dim;
  const auto overlaid = [&](const Tensor& t, int64_t j) {
    const auto& s = t.shape();
    return static_cast<size_t>((((s[0] == 1 ? 0 : b) * s[1] + (s[1] == 1 ? 0 : h)) * s[2] + i) * s[3] + j);
  };

  struct Seen {
    int64_t key_row;
    double score, shift;
  };
  std::vector<Seen> seen;
  for (int64_t j = 0; j < p_.key_counts[entry]; j++) {
    if (!p_.sees(b, i, j)) continue;
    if (p_.mask && mask_[overlaid(*p_.mask, j)] == 0) continue;
    const double bias = p_.bias ? static_cast<double>(bias_[overlaid(*p_.bias, j)]) : 0;
    if (bias == -INFINITY) continue;
    const int64_t key = p_.key_row(b, j);
    const float* const k = k_.data() + (key * p_.kv_heads + kv) * p_.dim;
    double dot = 0, sizes = 0;
    for (int64_t d = 0; d < p_.dim; d++) {
      const double product = static_cast<double>(q[d]) * static_cast<double>(k[d]);
      dot += product;
      sizes += std::fabs(product);
    }
    dot *= k_scale, sizes *= std::fabs(k_scale);
    if (std::isfinite(sizes)) products_ = std::fmax(products_, std::fabs(scale) * sizes);
    double s = scale * dot;
    if (p_.softcap > 0) s = p_.softcap * std::tanh(s / p_.softcap);
    const double limit = static_cast<double>(TSR_BIAS_LIMIT);
    const double slope = alibi_.empty() ? 0 : static_cast<double>(alibi_[static_cast<size_t>(h)]);
    const double shift = std::fmin(std::fmax(bias, -limit), limit) - slope * static_cast<double>(std::llabs(at - j));
    if (!std::isfinite(s)) row.checked = false;
    seen.push_back({key, s + shift, std::fabs(shift)});
  }
  const bool has_sink = !sinks_.empty();
  const double sink = has_sink ? static_cast<double>(sinks_[static_cast<size_t>(h)]) : -INFINITY;
  if (seen.empty()) {
    row.lse = sink;
    return row;
  }
  double most = sink, shift = 0;
  for (const Seen& s : seen) {
    if (s.score > most) most = s.score, shift = s.shift;
  }
  if (shift < 0x1p20) shift_ = std::fmax(shift_, shift);

  double total = has_sink ? std::exp(sink - most) : 0, sum_of_sizes = 0;
  std::vector<double> forced(row.out.size()), column(row.out.size());
  for (const Seen& s : seen) {
    const double weight = std::exp(s.score - most), p = rounded(p_type_, weight);
    total += weight;
    const float* const v = v_.data() + (s.key_row * p_.kv_heads + kv) * p_.value_dim;
    double largest = 0;
    for (size_t d = 0; d < row.out.size(); d++) {
      const double value = static_cast<double>(v[d]) * v_scale;
      row.out[d] += weight * value;
      forced[d] += (p_type_ == TSR_F32 ? weight : p) * value;
      if (std::isfinite(value)) largest = std::fmax(largest, std::fabs(value));
      column[d] = std::fmax(column[d], static_cast<double>(std::fabs(v[d])) * std::fmax(1, std::fabs(v_scale)));
    }
    largest_v_ = std::fmax(largest_v_, largest);
    sum_of_sizes += weight * largest;
  }
  const tsr_dtype out_type = p_.out->dtype();
  double largest_out = 0;
  for (size_t d = 0; d < row.out.size(); d++) {
    row.out[d] /= total;
    const double error = std::fabs(rounded(out_type, forced[d] / total) - row.out[d]);
    if (std::isfinite(error) && !(p_type_ == TSR_F32 && out_type == TSR_F32))
      forced_error_ = std::fmax(forced_error_, error);
    if (std::isfinite(row.out[d])) largest_out = std::fmax(largest_out, std::fabs(row.out[d]));
  }
  const auto half_unit = [](tsr_dtype t) { return t == TSR_F32 ? 0 : std::ldexp(1, -format_of(t).fraction - 1); };
  const auto least = [](tsr_dtype t) {
    return t == TSR_F32 ? 0 : std::ldexp(1, format_of(t).least_exponent - format_of(t).fraction);
  };
  row.rounding = half_unit(p_type_) * sum_of_sizes / total +
                 least(p_type_) * static_cast<double>(seen.size()) * largest_v_ / total +
                 half_unit(out_type) * largest_out + least(out_type);
  const double seen_keys = static_cast<double>(seen.size());
  for (const double x : column) row.may_overflow.push_back(x * seen_keys >= static_cast<double>(FLT_MAX));
  row.underflow = flushes_ ? kLeastNormal * seen_keys : 0x1p-149 * (1 + seen_keys / 2);
  row.lse = most + std::log(total);
  return row;
}

std::string Oracle::judge(double* deviation) const {
  const bool f32 = p_type_ == TSR_F32, exact = f32 && p_.out->dtype() == TSR_F32;
  const double a = std::fmax(products_, shift_);
  const double base = largest_v_ * ((f32 ? 2e-6 * std::fmax(1, a / 8) : 1e-6 + 0x1p-22 * a) + score_underflow_);
  std::vector<float> got(static_cast<size_t>(p_.value_dim));
  std::vector<float> lse = p_.lse ? p_.lse->decoded() : std::vector<float>();
  char text[256];
  for (const Row& row : rows_) {
    if (!row.checked) continue;
    decode_row(p_.out->dtype(), p_.out->row(row.out_row), p_.value_dim, got.data());
    // A sample, or a tiny output, can be lucky in the reference's own rounding: then what rounding may cost at most counts.
    const double bound = base + row.underflow + (exact ? 0 : std::fmax(2 * forced_error_, row.rounding));
    for (size_t d = 0; d < row.out.size(); d++) {
      const double want = row.out[d], value = static_cast<double>(got[d]), error = std::fabs(value - want);
      const double largest = format_of(p_.out->dtype()).largest;
      const bool beyond = std::isfinite(want) && std::fabs(want) + bound >= largest;  // the type can't hold it
      if (!row.may_overflow.empty() && row.may_overflow[d] && !std::isfinite(value)) continue;
      if (std::isfinite(want) ? error <= bound || beyond : !std::isfinite(value)) {
        if (std::isfinite(want) && bound > 0 && !beyond) *deviation = std::fmax(*deviation, error / bound);
        continue;
      }
      std::snprintf(text, sizeof text, "out row %lld element %zu is %.9g, must be %.9g: error %.3g, bound %.3g",
                    static_cast<long long>(row.out_row), d, value, want, error, bound);
      return text;
    }
    if (lse.empty()) continue;
    const double want = row.lse, value = static_cast<double>(lse[static_cast<size_t>(row.lse_at)]);
    const double lse_bound = 1e-5 + 1e-6 * std::fabs(want) + 0x1p-22 * a + score_underflow_;
    if (value == want || std::fabs(value - want) <= lse_bound) continue;
    std::snprintf(text, sizeof text, "lse %lld is %.9g, must be %.9g: bound %.3g", static_cast<long long>(row.lse_at),
                  value, want, lse_bound);
    return text;
  }
  return "";
}

}  // namespace fuzz
