#include "merge.h"

#include <algorithm>
#include <cmath>

#include "fill.h"

namespace fuzz {

Merge::Merge(uint64_t number) : seed(number) {
  Random r(number);
  packed = r.one_in(3);
  batch = packed ? 1 : r.of<int64_t>({1, 1, 2, 3});
  rows = r.one_in(2) ? r.between(0, 9) : r.log_uniform(300);
  heads = r.between(1, 8);
  dim = draw_head_dim(r);
  const auto real = [&] { return r.of<tsr_dtype>({TSR_F32, TSR_F16, TSR_BF16}); };
  const auto shape = [&] {
    return packed ? std::vector<int64_t>{rows, heads, dim} : std::vector<int64_t>{batch, rows, heads, dim};
  };
  const auto lse_shape = [&] {
    return packed ? std::vector<int64_t>{heads, rows} : std::vector<int64_t>{batch, heads, rows};
  };
  const int64_t count = r.of<int64_t>({1, 2, 2, 3, 5, 9});
  const double spread = r.of({0.0, 1.0, 30.0, 1000.0});
  for (int64_t n = 0; n < count; n++) {
    outs.push_back(make(("outs[" + std::to_string(n) + "]").c_str(), real(), shape(), r, draw_layout(r)));
    fill(*outs.back(), r.of({Values::kNormal, Values::kLarge, Values::kSmall, Values::kExtreme}), r);
    lses.push_back(make(("lses[" + std::to_string(n) + "]").c_str(), TSR_F32, lse_shape(), r,
                        r.of({Layout::kContiguous, Layout::kGaps})));
    Tensor &part = *outs.back(), &weights = *lses.back();
    const bool empty = r.one_in(5);
    for (int64_t row = 0; row < weights.rows(); row++) {
      for (int64_t i = 0; i < rows; i++) {
        const bool none = empty || r.one_in(6);
        const auto x = static_cast<float>(none ? -INFINITY : spread * r.normal());
        std::memcpy(weights.row(row) + 4 * i, &x, 4);
        // An empty part's out is never looked at.
        if (none && !part.repeats(0) && !part.repeats(1) && (packed || !part.repeats(2)))
          poison_row(part, (row / heads * rows + i) * heads + row % heads, r);
      }
    }
  }
  out = std::make_unique<Tensor>("out", real(), shape(), draw_layout(r), true, r);
  if (!r.one_in(3))
    lse = std::make_unique<Tensor>("lse", TSR_F32, lse_shape(), r.of({Layout::kContiguous, Layout::kGaps}), true, r);
  for (Tensor* t : inputs()) t->remember();
}

std::vector<Tensor*> Merge::inputs() const {
  std::vector<Tensor*> all;
  for (const auto* list : {&outs, &lses}) {
    for (const Holder& t : *list) all.push_back(t.get());
  }
  return all;
}

std::vector<Tensor*> Merge::outputs() const {
  std::vector<Tensor*> all{out.get()};
  if (lse) all.push_back(lse.get());
  return all;
}

std::string Merge::judge() const {
  const auto width = static_cast<size_t>(dim);
  std::vector<std::vector<float>> parts, weights;
  for (const Holder& t : outs) parts.push_back(t->decoded());
  for (const Holder& t : lses) weights.push_back(t->decoded());
  const std::vector<float> got = out->decoded(), got_lse = lse ? lse->decoded() : std::vector<float>();
  const tsr_dtype type = out->dtype();
  const double largest = format_of(type).largest;
  for (int64_t i = 0; i < batch * rows * heads; i++) {
    const int64_t h = i % heads, row = i / heads % rows, b = i / heads / rows;
    const auto lse_at = static_cast<size_t>((b * heads + h) * rows + row), at = static_cast<size_t>(i) * width;
    double most = -INFINITY, least = INFINITY, sum = 0, size = 0;
    for (const auto& w : weights) {
      const auto x = static_cast<double>(w[lse_at]);
      if (x == -INFINITY) continue;
      most = std::max(most, x), least = std::min(least, x);  // fmax: an internal error of GCC 12 for Arm
    }
    std::vector<double> want(width);
    for (size_t n = 0; n < parts.size(); n++) {
      const auto x = static_cast<double>(weights[n][lse_at]);
      if (x == -INFINITY) continue;
      const double weight = std::exp(x - most);
      sum += weight;
      for (size_t d = 0; d < width; d++) {
        const auto value = static_cast<double>(parts[n][at + d]);
        want[d] += weight * value;
        size = std::max(size, std::fabs(value));
      }
    }
    // fp32 weights: their exponents are differences of fp32 numbers, those far apart weigh nothing.
    const double slack = size * (1e-6 + 0x1p-23 * (sum > 0 ? std::fmin(most - least, 100) : 0)) + 0x1p-148;
    char text[200];
    for (size_t d = 0; d < width; d++) {
      const double exact = sum > 0 ? want[d] / sum : 0, value = static_cast<double>(got[at + d]);
      const double reach = std::fabs(exact) + slack, bound = slack + half_unit(type, reach);
      if (std::fabs(value - exact) <= bound) continue;
      if (reach + bound >= largest && std::isinf(value)) continue;  // the type can't hold it
      std::snprintf(text, sizeof text, "out row %lld element %zu is %.9g, must be %.9g", static_cast<long long>(i), d,
                    value, exact);
      return text;
    }
    if (got_lse.empty()) continue;
    const double exact = sum > 0 ? most + std::log(sum) : -INFINITY, value = static_cast<double>(got_lse[lse_at]);
    if (value == exact || std::fabs(value - exact) <= 1e-5 + 1e-6 * std::fabs(exact)) continue;
    std::snprintf(text, sizeof text, "lse %zu is %.9g, must be %.9g", lse_at, value, exact);
    return text;
  }
  return "";
}

std::string Merge::text() const {
  std::string text;
  for (const auto& all : {inputs(), outputs()}) {
    for (const Tensor* t : all) text += "  " + t->text() + "\n";
  }
  return text;
}

}  // namespace fuzz
