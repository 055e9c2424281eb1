#include "played.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tessera/common/numeric.h"

namespace tsr::device {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

tsr_dtype dtype_of(Type type) {
  switch (type) {
    case Type::kF16:
      return TSR_F16;
    case Type::kBF16:
      return TSR_BF16;
    case Type::kF8:
      return TSR_F8_E4M3;
    case Type::kQ8:
      return TSR_Q8_0;
    case Type::kQ4:
      return TSR_Q4_0;
    default:
      return TSR_F32;
  }
}

std::vector<float> load(const View& view, int64_t b, int64_t row, int64_t head, int count) {
  std::vector<float> values(static_cast<size_t>(count));
  load_row(dtype_of(view.type), view.at(b, row, head), count, values.data());
  return values;
}
void store(const View& view, int64_t b, int64_t row, int64_t head, const std::vector<float>& values) {
  store_row(dtype_of(view.type), values.data(), static_cast<int64_t>(values.size()), view.at(b, row, head));
}
void store_one(const View& view, int64_t b, int64_t row, int64_t head, double value) {
  if (view.given()) store(view, b, row, head, {static_cast<float>(value)});
}

double score(const Attention& a, const Sequence& s, int b, int h, int64_t i, int64_t j, const std::vector<float>& q) {
  const KeyPlace place = key_place(a, s, b, j);
  const std::vector<float> k = load(a.k, place.batch, place.row, h / a.group, a.dim);
  double x = 0;
  for (size_t d = 0; d < k.size(); ++d) x += static_cast<double>(q[d]) * k[d];
  x *= a.scale * (a.k_scale ? static_cast<double>(a.k_scale[h / a.group]) : 1.0);
  if (a.softcap != 0) x = a.softcap * std::tanh(x / a.softcap);
  if (a.bias.given()) {
    float bias;
    load_row(dtype_of(a.bias.type), a.bias.at(b, i, h) + j * (a.bias.type == Type::kF32 ? 4 : 2), 1, &bias);
    if (std::isfinite(bias)) bias = std::fmin(std::fmax(bias, -TSR_BIAS_LIMIT), TSR_BIAS_LIMIT);
    x += static_cast<double>(bias);
  }
  if (a.alibi_slopes) {
    x -= static_cast<double>(a.alibi_slopes[h]) * std::fabs(static_cast<double>(i + s.visibility.offset - j));
  }
  return a.mask.given() && a.mask.at(b, i, h)[j] == 0 ? kNothing : x;
}

void attend_row(const Attention& a, const Sequence& s, int b, int h, int64_t i) {
  const std::vector<float> q = load(a.q, b, s.query_row + i, h, a.dim);
  const Span span = s.visibility.keys(i);
  std::vector<double> scores;
  double most = a.sinks ? static_cast<double>(a.sinks[h]) : kNothing;
  for (int64_t j = span.begin; j < span.end; ++j) {
    scores.push_back(score(a, s, b, h, i, j, q));
    if (scores.back() > most || std::isnan(scores.back())) most = scores.back();
  }
  std::vector<double> sums(static_cast<size_t>(a.value_dim));
  double sum = a.sinks && most != kNothing ? std::exp(static_cast<double>(a.sinks[h]) - most) : 0;
  for (int64_t j = span.begin; j < span.end && most != kNothing; ++j) {
    const double weight = std::exp(scores[static_cast<size_t>(j - span.begin)] - most);
    if (weight == 0) continue;
    sum += weight;
    const KeyPlace place = key_place(a, s, b, j);
    const std::vector<float> v = load(a.v, place.batch, place.row, h / a.group, a.value_dim);
    for (size_t d = 0; d < v.size(); ++d) sums[d] += weight * v[d];
  }
  std::vector<float> out(sums.size());
  const double scale = a.v_scale ? static_cast<double>(a.v_scale[h / a.group]) : 1.0;
  for (size_t d = 0; d < out.size(); ++d) out[d] = sum == 0 ? 0 : static_cast<float>(sums[d] / sum * scale);
  store(a.out, b, s.query_row + i, h, out);
  store_one(a.lse, b, s.query_row + i, h, sum == 0 ? kNothing : most + std::log(sum));
}

}  // namespace

void play(const Attention& a) {
  for (int b = 0; b < a.batch; ++b) {
    const Sequence s = sequence_of(a, b);
    for (int h = 0; h < a.heads; ++h) {
      for (int64_t i = 0; i < s.queries; ++i) attend_row(a, s, b, h, i);
      for (int64_t i = s.queries; i < a.query_rows && !a.packed_q; ++i) {
        store(a.out, b, i, h, std::vector<float>(static_cast<size_t>(a.value_dim)));
        store_one(a.lse, b, i, h, kNothing);
      }
    }
  }
}

namespace {

void rotate(const Append& p, double position, std::vector<float>* row) {
  const int pairs = p.rope_dims / 2;
  for (int i = 0; i < pairs; ++i) {
    const double angle = position * p.rope_scale * std::pow(p.rope_theta, -2.0 * i / p.rope_dims);
    float& first = (*row)[static_cast<size_t>(p.rope_interleaved ? 2 * i : i)];
    float& second = (*row)[static_cast<size_t>(p.rope_interleaved ? 2 * i + 1 : i + pairs)];
    const double x = first, y = second;
    first = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
    second = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
  }
}

void append_token(const Append& p, int b, int64_t row, int64_t slot) {
  const double position =
      static_cast<double>(p.positions ? p.positions[b * p.positions_stride + row] : static_cast<int32_t>(slot));
  const int64_t page = p.paged() ? p.page_table[b * p.page_table_stride + slot / p.page_size] : b;
  const int64_t place = p.paged() ? slot % p.page_size : slot;
  for (int h = 0; h < p.kv_heads; ++h) {
    std::vector<float> k = load(p.k, b, row, h, p.dim), v = load(p.v, b, row, h, p.value_dim);
    rotate(p, position, &k);
    for (float& x : k) x /= p.k_scale ? p.k_scale[h] : 1.0f;
    for (float& x : v) x /= p.v_scale ? p.v_scale[h] : 1.0f;
    store(p.cache_k, page, place, h, k);
    store(p.cache_v, page, place, h, v);
  }
  for (int h = 0; h < p.heads; ++h) {
    std::vector<float> q = load(p.q, b, row, h, p.dim);
    rotate(p, position, &q);
    store(p.q_out, b, row, h, q);
  }
}

}  // namespace

void play(const Append& p) {
  for (int b = 0; b < p.batch; ++b) {
    const int64_t first = p.packed ? p.cu_seqlens[b] : 0;
    const int64_t count = p.packed ? p.cu_seqlens[b + 1] - first : p.new_lens ? p.new_lens[b] : p.rows;
    for (int64_t i = 0; i < count && p.lengths[b] + i < p.capacity; ++i) {
      append_token(p, b, first + i, p.lengths[b] + i);
    }
    if (p.advance) p.lengths[b] += static_cast<int32_t>(count);
  }
}

namespace {

void merge_row(const Merge& m, int64_t b, int64_t row, int64_t h) {
  std::vector<double> lses, sums(static_cast<size_t>(m.value_dim));
  double most = kNothing, sum = 0;
  for (int n = 0; n < m.count; ++n) {
    lses.push_back(load(m.lses[n], b, row, h, 1)[0]);
    most = std::fmax(most, lses.back());
  }
  for (int n = 0; n < m.count && most != kNothing; ++n) {
    const double weight = std::exp(lses[static_cast<size_t>(n)] - most);
    if (weight == 0) continue;
    sum += weight;
    const std::vector<float> part = load(m.outs[n], b, row, h, m.value_dim);
    for (size_t d = 0; d < part.size(); ++d) sums[d] += weight * part[d];
  }
  std::vector<float> out(sums.size());
  for (size_t d = 0; d < out.size(); ++d) out[d] = sum == 0 ? 0 : static_cast<float>(sums[d] / sum);
  store(m.out, b, row, h, out);
  store_one(m.lse, b, row, h, sum == 0 ? kNothing : most + std::log(sum));
}

}  // namespace

void play(const Merge& m) {
  for (int64_t b = 0; b < m.batch; ++b) {
    for (int64_t row = 0; row < m.rows; ++row) {
      for (int64_t h = 0; h < m.heads; ++h) merge_row(m, b, row, h);
    }
  }
}

}  // namespace tsr::device
