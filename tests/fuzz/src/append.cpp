#include "append.h"

#include <algorithm>
#include <cmath>

#include "fill.h"

namespace fuzz {
namespace {

float number_at(const Tensor& t, int64_t i) {
  float x;
  std::memcpy(&x, t.row(0) + 4 * i, 4);
  return x;
}

/// Whether `got` may stand for x, of which fp32 knows it up to `slack`.
bool near(tsr_dtype t, double got, double x, double slack) {
  const double largest = format_of(t).largest;
  if (t == TSR_F8_E4M3) x = std::fmin(std::fmax(x, -largest), largest);  // it saturates
  const double size = std::fabs(x) + slack, bound = slack + half_unit(t, size);
  if (std::fabs(got - x) <= bound) return true;
  return t != TSR_F8_E4M3 && size + bound >= largest && std::isinf(got) && std::signbit(got) == std::signbit(x);
}

/// One block: how far a value may be from what it stands for; infinite where its scale fits into no f16.
double block_bound(tsr_dtype t, const double* x, const double* slack) {
  double largest = 0, most_slack = 0;
  for (int i = 0; i < 32; i++)
    largest = std::fmax(largest, std::fabs(x[i])), most_slack = std::fmax(most_slack, slack[i]);
  const double steps = t == TSR_Q8_0 ? 127 : 8, d = (largest + most_slack) / steps;
  if (d >= 65504) return INFINITY;
  // q4_0 has -8 to 7: the largest number of the other sign is a whole step off.
  return (t == TSR_Q8_0 ? 0.5 : 1) * d * 1.001 + steps * half_unit(TSR_F16, d) + 2 * most_slack;
}

}  // namespace

Append::Append(uint64_t number) : seed(number) {
  Random r(number);
  batch = r.of<int64_t>({1, 1, 2, 3, 4});
  kv_heads = r.of<int64_t>({1, 1, 2, 3, 4});
  tokens = r.one_in(2) ? r.between(0, 8) : r.log_uniform(300);
  capacity = tokens + r.log_uniform(300);
  packed = r.one_in(3);
  const auto real = [&] { return r.of<tsr_dtype>({TSR_F32, TSR_F16, TSR_BF16}); };
  const auto stored = [&] { return r.of<tsr_dtype>({TSR_F32, TSR_F16, TSR_BF16, TSR_F8_E4M3, TSR_Q8_0, TSR_Q4_0}); };
  const tsr_dtype kt = stored(), vt = r.one_in(2) ? kt : stored();
  dim = fitting(kt, draw_head_dim(r));
  value_dim = fitting(vt, r.one_in(3) ? draw_head_dim(r) : dim);

  if (r.one_in(2)) {
    page_size = r.of<int64_t>({1, 3, 16, 16, 64});
    pages_per_entry = (capacity + page_size - 1) / page_size;
    capacity = pages_per_entry * page_size;
  }
  const bool some = packed || r.one_in(3);
  for (int64_t b = 0; b < batch; b++) {
    counts.push_back(static_cast<int32_t>(some ? r.between(0, tokens) : tokens));
    held.push_back(static_cast<int32_t>(r.one_in(4) ? 0 : r.between(0, capacity - counts.back())));
  }
  if (packed) start = starts_of(counts), tokens = start.back();
  lengths = list("lengths", held, r);
  if (packed) cu = list("cu_seqlens", start, r);
  if (!packed && some) new_lens = list("new_lens", counts, r);
  if (page_size > 0) {
    const std::vector<int32_t> order = shuffled(batch * pages_per_entry + 1, r);
    for (int64_t b = 0; b < batch; b++) {
      const auto at = static_cast<size_t>(b);
      const int64_t first = held[at] / page_size, end = (held[at] + counts[at] + page_size - 1) / page_size;
      for (int64_t p = 0; p < pages_per_entry; p++) {
        const int32_t page = order[static_cast<size_t>(b * pages_per_entry + p)];
        pages.push_back(p >= first && p < end ? page : r.of({page, -1, 0x7fffffff}));  // else never looked at
      }
    }
    table = make("page_table", TSR_I32, {batch, pages_per_entry}, r, r.of({Layout::kContiguous, Layout::kGaps}));
    for (int64_t b = 0; pages_per_entry > 0 && b < batch; b++)
      std::memcpy(table->row(b), pages.data() + b * pages_per_entry, static_cast<size_t>(pages_per_entry) * 4);
  }

  const auto shape = [&](int64_t h, int64_t d) {
    return packed ? std::vector<int64_t>{tokens, h, d} : std::vector<int64_t>{batch, tokens, h, d};
  };
  const auto written = [&] { return r.of({Layout::kContiguous, Layout::kTransposed, Layout::kGaps}); };
  const Fill fills = draw_fill(r);
  k = make("k", real(), shape(kv_heads, dim), r, draw_layout(r));
  v = make("v", real(), shape(kv_heads, value_dim), r, draw_layout(r));
  fill(*k, fills.k, r);
  fill(*v, fills.v, r);
  const std::vector<int64_t> lead = page_size > 0 ? std::vector<int64_t>{batch * pages_per_entry + 1, page_size}
                                                  : std::vector<int64_t>{batch, capacity};
  cache_k = make("cache_k", kt, {lead[0], lead[1], kv_heads, dim}, r, written());
  cache_v = make("cache_v", vt, {lead[0], lead[1], kv_heads, value_dim}, r, written());
  fill(*cache_k, Values::kNormal, r);
  fill(*cache_v, Values::kNormal, r);
  heads = r.one_in(2) ? kv_heads * r.of<int64_t>({1, 2, 3, 7}) : 0;
  if (heads > 0) {
    in_place = r.one_in(3);
    q = make("q", real(), shape(heads, dim), r, in_place ? written() : draw_layout(r));
    fill(*q, fills.q, r);
    if (!in_place) q_out = make("q_out", real(), shape(heads, dim), r, written());
  }
  for (const Tensor* t : {k.get(), v.get(), q.get()}) {  // padding goes nowhere
    for (int64_t b = 0; t && !packed && b < batch; b++) {
      for (int64_t i = counts[static_cast<size_t>(b)]; i < tokens; i++) {
        if (t->repeats(0) || t->repeats(1)) continue;  // another token's too
        const int64_t per = t->shape()[2];
        for (int64_t h = 0; h < per; h++) poison_row(const_cast<Tensor&>(*t), (b * tokens + i) * per + h, r);
      }
    }
  }
  if (kt == TSR_F8_E4M3 && r.one_in(2)) k_scale = floats("k_scale", kv_heads, r, [&] { return 0.1 + 2 * r.uniform(); });
  if (vt == TSR_F8_E4M3 && r.one_in(2)) v_scale = floats("v_scale", kv_heads, r, [&] { return 0.1 + 2 * r.uniform(); });

  advance = r.one_in(2);
  rope = r.one_in(2) && dim > 1;
  if (rope) {
    rope_dims = static_cast<int32_t>(dim % 2 != 0 || r.one_in(3) ? 2 * r.between(1, dim / 2) : 0);
    interleaved = r.one_in(2);
    theta = r.of({10000.f, 500000.f, 100.f});
    rope_scale = r.of({0.f, 0.f, 0.25f, 2.f});
    if (r.one_in(3)) {
      std::vector<int64_t> lead_of = packed ? std::vector<int64_t>{tokens} : std::vector<int64_t>{batch, tokens};
      positions = make("positions", TSR_I32, lead_of, r);
      for (int64_t i = 0; i < batch * tokens && (!packed || i < tokens); i++) {
        const auto at = static_cast<int32_t>(r.between(0, 5000));
        std::memcpy(positions->row(0) + 4 * i, &at, 4);
      }
    }
  }
  for (const auto& all : {inputs(), outputs()}) {
    for (Tensor* t : all) t->remember();
  }
}

std::vector<Tensor*> Append::outputs() const {
  std::vector<Tensor*> all{cache_k.get(), cache_v.get()};
  if (heads > 0) all.push_back(written_q());
  if (advance) all.push_back(lengths.get());
  return all;
}

std::vector<Tensor*> Append::inputs() const {
  std::vector<Tensor*> all;
  for (const Holder* t : {&k, &v, &table, &new_lens, &cu, &k_scale, &v_scale, &positions}) {
    if (*t) all.push_back(t->get());
  }
  if (q && !in_place) all.push_back(q.get());
  if (!advance) all.push_back(lengths.get());
  return all;
}

void Append::turned(const Tensor& from, int64_t b, int64_t t, int64_t h, int64_t all_heads, bool turn, double scale,
                    std::vector<double>* values, std::vector<double>* slack) const {
  std::vector<float> row(static_cast<size_t>(from.width()));
  const int64_t source = source_row(b, t);
  decode_row(from.dtype(), from.row_before(source * all_heads + h), from.width(), row.data());
  values->assign(row.begin(), row.end());
  slack->assign(row.size(), 0);
  int32_t position = held[static_cast<size_t>(b)] + static_cast<int32_t>(t);
  if (positions) std::memcpy(&position, positions->row(0) + 4 * source, 4);
  const int dims = rope_dims > 0 ? rope_dims : static_cast<int>(dim);
  for (int i = 0; turn && i < dims / 2; i++) {
    const auto first = static_cast<size_t>(interleaved ? 2 * i : i),
               second = interleaved ? first + 1 : first + dims / 2;
    const double factor = rope_scale != 0 ? static_cast<double>(rope_scale) : 1;
    const double angle = position * factor * std::pow(static_cast<double>(theta), -2.0 * i / dims);
    const double x = (*values)[first], y = (*values)[second];
    (*values)[first] = x * std::cos(angle) - y * std::sin(angle);
    (*values)[second] = x * std::sin(angle) + y * std::cos(angle);
    (*slack)[first] = (*slack)[second] = std::hypot(x, y) * 1e-6 + 0x1p-148;
  }
  for (size_t i = 0; i < values->size() && scale != 1; i++) {
    (*values)[i] /= scale;
    (*slack)[i] = (*slack)[i] / scale + std::fabs((*values)[i]) * 0x1p-23 + 0x1p-149;
  }
}

std::string Append::judge_tensor(const Tensor& from, const Tensor& to, const Tensor* scales, int64_t all_heads,
                                 bool turn, bool cache, bool padding) const {
  std::vector<uint8_t> rest = to.before();  // and where a row was to be written, what is there now
  const auto taken = [&](int64_t row) {
    std::memcpy(rest.data() + to.place(row), to.row(row), static_cast<size_t>(to.row_bytes()));
  };
  std::vector<double> values, slack;
  std::vector<float> got(static_cast<size_t>(to.width()));
  for (int64_t b = 0; b < batch; b++) {
    const auto entry = static_cast<size_t>(b);
    for (int64_t t = 0; t < (cache || packed ? counts[entry] : tokens); t++) {
      for (int64_t h = 0; h < all_heads; h++) {
        const int64_t row = (cache ? slot_row(b, held[entry] + t) : source_row(b, t)) * all_heads + h;
        const bool real = t < counts[entry];
        if (real || !padding) taken(row);
        if (!real) continue;
        turned(from, b, t, h, all_heads, turn, scales ? static_cast<double>(number_at(*scales, h)) : 1, &values,
               &slack);
        decode_row(to.dtype(), to.row(row), to.width(), got.data());
        for (size_t i = 0; i < got.size(); i++) {
          const auto value = static_cast<double>(got[i]);
          const bool block = is_block(to.dtype());
          const double bound = block ? block_bound(to.dtype(), &values[i / 32 * 32], &slack[i / 32 * 32]) : 0;
          if (block ? std::isinf(bound) || std::fabs(value - values[i]) <= bound
                    : near(to.dtype(), value, values[i], slack[i]))
            continue;
          char text[200];
          std::snprintf(text, sizeof text,
                        "token %lld of entry %lld, head %lld, element %zu of %s is %.9g, must be %.9g",
                        static_cast<long long>(t), static_cast<long long>(b), static_cast<long long>(h), i,
                        to.name().c_str(), value, values[i]);
          return text;
        }
      }
    }
  }
  if (std::memcmp(rest.data(), to.memory(), rest.size()) != 0)
    return to.name() + ": bytes that belong to no new token were written";
  return "";
}

std::string Append::judge(bool padding) const {
  std::string wrong = judge_tensor(*k, *cache_k, k_scale.get(), kv_heads, rope, true, true);
  if (wrong.empty()) wrong = judge_tensor(*v, *cache_v, v_scale.get(), kv_heads, false, true, true);
  if (wrong.empty() && heads > 0) wrong = judge_tensor(*q, *written_q(), nullptr, heads, rope, false, padding);
  for (int64_t b = 0; wrong.empty() && advance && b < batch; b++) {
    const auto entry = static_cast<size_t>(b);
    int32_t now;
    std::memcpy(&now, lengths->row(0) + 4 * b, 4);
    if (now != held[entry] + counts[entry])
      wrong = "length " + std::to_string(b) + " is " + std::to_string(now) + ", must be " +
              std::to_string(held[entry] + counts[entry]);
  }
  return wrong;
}

std::string Append::text() const {
  std::string text;
  for (const auto& all : {inputs(), outputs()}) {
    for (const Tensor* t : all) text += "  " + t->text() + "\n";
  }
  text += "  new tokens of each entry";
  for (int32_t n : counts) text += " " + std::to_string(n);
  text += ", held";
  for (int32_t n : held) text += " " + std::to_string(n);
  text += std::string("\n  ") + (advance ? "advances" : "leaves") + " lengths" + (in_place ? ", q in place" : "");
  if (rope)
    text += std::string(", rope ") + (interleaved ? "interleaved" : "half") + ", dims " + std::to_string(rope_dims) +
            ", theta " + std::to_string(theta) + ", scale " + std::to_string(rope_scale);
  return text + "\n";
}

}  // namespace fuzz
