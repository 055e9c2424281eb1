#include "problem.h"

#include <algorithm>
#include <numeric>

#include "fill.h"

namespace fuzz {

Problem::Problem(uint64_t number, const Limits& limits) : seed(number) {
  Random r(number);
  aim = r.of({Aim::kAnything, Aim::kAnything, Aim::kTensorCores, r.one_in(2) ? Aim::kTensorCores : Aim::kLadder});
  draw_shape(r, limits);
  draw_sequences(r);
  draw_options(r);
  make_tensors(r);
  make_overlays(r);
  poison(r, limits.exact_poison);
  for (Tensor* t : inputs()) t->remember();
}

void Problem::draw_shape(Random& r, const Limits& limits) {
  // Most problems are small, so that there can be many; one in ten that are aimed has tiles in a row on both sides.
  const bool tiles = aim != Aim::kAnything && r.one_in(10);
  const int64_t work = tiles || r.one_in(200) ? limits.work : r.one_in(40) ? limits.work / 8 : limits.work / 128;
  batch = r.of<int64_t>({1, 1, 2, 3, 4});
  kv_heads = r.of<int64_t>({1, 1, 2, 3, 4});
  int64_t ratio = r.of<int64_t>({1, 1, 2, 3, 4, 5, 7, 8, 12});
  dim = aim == Aim::kAnything      ? draw_head_dim(r)
        : aim == Aim::kTensorCores ? r.of<int64_t>({64, 64, 64, 128, 128, 128, 96, 192, 256, 8 * r.between(1, 32)})
                                   : 128;
  value_dim = aim == Aim::kAnything && r.one_in(3)      ? draw_head_dim(r)
              : aim == Aim::kTensorCores && r.one_in(8) ? 8 * r.between(1, dim / 8)
                                                        : dim;
  queries = r.one_in(3) ? r.between(0, 16) : r.log_uniform(4096);
  keys = r.log_uniform(4096);
  if (tiles) {
    batch = kv_heads = 1;
    ratio = r.of<int64_t>({1, 1, 2, 4});
    queries = r.between(129, 600);
    keys = r.between(129, 1500);
  }
  for (;;) {
    const int64_t needed =
        batch * kv_heads * ratio * std::max<int64_t>(1, queries) * std::max<int64_t>(1, keys) * (dim + value_dim);
    if (needed <= work) break;
    int64_t* const sizes[] = {&batch, &kv_heads, &ratio, &queries, &keys, queries > keys ? &queries : &keys};
    int64_t* const cut = sizes[r.between(0, 5)];
    if (*cut > 1)
      *cut = (*cut + 1) / 2;
    else if (batch * kv_heads * ratio == 1 && queries <= 1 && keys <= 1 && aim != Aim::kAnything)
      break;
    else if (batch * kv_heads * ratio == 1 && queries <= 1 && keys <= 1)
      dim = value_dim = (dim + 1) / 2;
  }
  heads = kv_heads * ratio;
}

void Problem::draw_sequences(Random& r) {
  enum Form {
    kFull,
    kPadded,
    kPacked,
    kPackedQueries,
    kPaged,
    kPackedPaged
  };
  const auto form = aim == Aim::kLadder
                        ? r.of({kFull, kPadded})
                        : r.of({kFull, kPadded, kPadded, kPacked, kPackedQueries, kPaged, kPaged, kPackedPaged});
  packed_q = form == kPacked || form == kPackedQueries || form == kPackedPaged;
  packed_k = form == kPacked;
  paged = form == kPaged || form == kPackedPaged;
  const auto lengths = [&](int64_t most) {
    std::vector<int32_t> all(static_cast<size_t>(batch));
    for (auto& n : all) n = static_cast<int32_t>(r.one_in(8) ? 0 : r.one_in(3) ? most : r.between(0, most));
    return all;
  };
  const auto given = [&](bool given, int64_t most) {
    return given ? lengths(most) : std::vector<int32_t>(static_cast<size_t>(batch), static_cast<int32_t>(most));
  };
  const bool some_q = packed_q || (form != kFull && !r.one_in(3)),
             some_k = form != kFull && (form != kPadded || !r.one_in(4));
  query_counts = given(some_q, queries);
  key_counts = given(some_k, keys);
  if (packed_q)
    start_q = starts_of(query_counts), queries = *std::max_element(query_counts.begin(), query_counts.end());
  if (packed_k) start_k = starts_of(key_counts), keys = *std::max_element(key_counts.begin(), key_counts.end());
  if (packed_q) cu_q = list("cu_seqlens_q", start_q, r);
  if (packed_k) cu_k = list("cu_seqlens_k", start_k, r);
  if (!packed_q && some_q) lens_q = list("seq_lens_q", query_counts, r);
  if (!packed_k && some_k) lens_k = list("seq_lens_k", key_counts, r);
  tell_most = !r.one_in(3);
  if (!paged) return;
  page_size = aim == Aim::kAnything ? r.of<int64_t>({1, 3, 16, 16, 64, 128}) : int64_t{8} << r.between(0, 5);
  pages_per_entry = (keys + page_size - 1) / page_size + r.between(0, 1);
  keys = pages_per_entry * page_size;
  std::vector<int32_t> used;
  for (int32_t n : key_counts) used.push_back(static_cast<int32_t>((n + page_size - 1) / page_size));
  page_count = std::accumulate(used.begin(), used.end(), int64_t{0}) + 2;
  std::vector<int32_t> free = shuffled(page_count, r);
  const bool share = r.one_in(4);  // a common beginning
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t p = 0; p < pages_per_entry; p++) {
      if (p >= used[static_cast<size_t>(b)])
        pages.push_back(r.of({-1, 0x7fffffff, 1 << 20}));  // never read
      else if (share && b > 0 && p == 0 && used[0] > 0)
        pages.push_back(pages[0]);
      else
        pages.push_back(free.back()), free.pop_back();
    }
  }
  table = make("page_table", TSR_I32, {batch, pages_per_entry}, r, r.of({Layout::kContiguous, Layout::kGaps}));
  for (int64_t b = 0; pages_per_entry > 0 && b < batch; b++)
    std::memcpy(table->row(b), pages.data() + b * pages_per_entry, static_cast<size_t>(pages_per_entry) * 4);
}

void Problem::draw_options(Random& r) {
  has_scale = r.one_in(3);
  if (has_scale)
    scale = aim == Aim::kLadder ? r.of({0.25f, 1.f, 1e-3f}) : r.of({0.f, 0.25f, -0.5f, 1.f, 1e-3f, -0.07f});
  if (aim != Aim::kLadder && r.one_in(aim == Aim::kTensorCores ? 3 : 5)) softcap = r.of({0.5f, 4.f, 30.f, 50.f});
  causal = r.one_in(2);
  has_window = aim != Aim::kLadder && r.one_in(4);
  const auto bound = [&] { return r.one_in(4) ? -1 : r.log_uniform(std::max<int64_t>(1, keys)); };
  if (has_window) window_left = bound(), window_right = bound();
  offsets.resize(static_cast<size_t>(batch));
  const bool explicit_offset = r.one_in(5);
  if (!explicit_offset) align = r.of<tsr_align>({TSR_ALIGN_DEFAULT, TSR_ALIGN_BOTTOM_RIGHT, TSR_ALIGN_TOP_LEFT});
  for (size_t b = 0; b < offsets.size(); b++) {
    offsets[b] = explicit_offset               ? static_cast<int32_t>(r.between(-20, keys + 20))
                 : align == TSR_ALIGN_TOP_LEFT ? 0
                                               : key_counts[b] - query_counts[b];
  }
  if (explicit_offset) query_offset = list("query_offset", offsets, r);
  if (r.one_in(4)) splits = static_cast<int32_t>(r.between(1, 9));
}

void Problem::make_tensors(Random& r) {
  const auto real = [&] { return r.of<tsr_dtype>({TSR_F32, TSR_F16, TSR_F16, TSR_BF16}); };
  const auto stored = [&](tsr_dtype q_type) {
    if (r.one_in(2)) return q_type;
    return r.of<tsr_dtype>({TSR_F32, TSR_F16, TSR_BF16, TSR_F8_E4M3, TSR_Q8_0, TSR_Q4_0});
  };
  const auto half = [&] { return aim == Aim::kLadder ? TSR_F16 : r.of<tsr_dtype>({TSR_F16, TSR_BF16}); };
  tsr_dtype qt = real(), kt = stored(qt), vt = r.one_in(2) ? kt : stored(qt), ot = r.one_in(3) ? real() : qt;
  if (aim != Aim::kAnything) qt = kt = vt = half(), ot = r.one_in(4) ? half() : qt;
  dim = fitting(kt, dim);
  value_dim = fitting(vt, value_dim);
  const auto with = [](std::vector<int64_t> lead, int64_t h, int64_t d) {
    lead.push_back(h), lead.push_back(d);
    return lead;
  };
  const std::vector<int64_t> lead_q =
      packed_q ? std::vector<int64_t>{start_q.back()} : std::vector<int64_t>{batch, queries};
  const std::vector<int64_t> lead_k = paged      ? std::vector<int64_t>{page_count, page_size}
                                      : packed_k ? std::vector<int64_t>{start_k.back()}
                                                 : std::vector<int64_t>{batch, keys};
  const auto layout = [&] { return aim == Aim::kAnything ? draw_layout(r) : draw_aligned_layout(r); };
  q = make("q", qt, with(lead_q, heads, dim), r, layout());
  k = make("k", kt, with(lead_k, kv_heads, dim), r, layout());
  v = make("v", vt, with(lead_k, kv_heads, value_dim), r, layout());
  const Fill fills = draw_fill(r);
  fill(*q, fills.q, r);
  fill(*k, fills.k, r);
  fill(*v, fills.v, r);
  out = std::make_unique<Tensor>("out", ot, with(lead_q, heads, value_dim), layout(), true, r);
  if (!r.one_in(4)) {
    const auto shape =
        packed_q ? std::vector<int64_t>{heads, start_q.back()} : std::vector<int64_t>{batch, heads, queries};
    lse = std::make_unique<Tensor>("lse", TSR_F32, shape, r.of({Layout::kContiguous, Layout::kGaps}), true, r);
  }
  if (kt == TSR_F8_E4M3 && r.one_in(2)) k_scale = floats("k_scale", kv_heads, r, [&] { return 0.1 + 2 * r.uniform(); });
  if (vt == TSR_F8_E4M3 && r.one_in(2)) v_scale = floats("v_scale", kv_heads, r, [&] { return 0.1 + 2 * r.uniform(); });
}

void Problem::make_overlays(Random& r) {
  if (aim == Aim::kLadder) return;
  // Where the longest sequence says how large they are, they may be larger.
  const auto beyond = [&](bool may) { return may && r.one_in(2) ? r.between(1, 9) : 0; };
  const auto shape = [&] {
    return std::vector<int64_t>{r.one_in(2) ? batch : 1, r.one_in(2) ? heads : 1, queries + beyond(packed_q),
                                keys + beyond(packed_k || paged)};
  };
  const int seldom = aim == Aim::kTensorCores ? 12 : 5;
  if (r.one_in(seldom)) {
    bias = make("bias", r.of<tsr_dtype>({TSR_F32, TSR_F16, TSR_BF16}), shape(), r, draw_layout(r));
    fill_bias(*bias, r);
  }
  if (r.one_in(seldom)) {
    mask = make("mask", TSR_BOOL, shape(), r, draw_layout(r));
    fill_mask(*mask, r);
  }
  if (bias || mask) tell_most = true;  // they are as large as the longest sequence
  if (r.one_in(seldom))
    alibi = floats("alibi_slopes", heads, r, [&] { return r.of({0.5, 0.25, 0.0625, -0.125, 0.0}); });
  if (r.one_in(5)) sinks = floats("sinks", heads, r, [&] { return r.of({0.0, 3 * r.normal(), 30.0, -100.0}); });
}

bool Problem::sees(int64_t b, int64_t i, int64_t j) const {
  const int64_t at = i + offsets[static_cast<size_t>(b)];
  if (j >= key_counts[static_cast<size_t>(b)] || (causal && j > at)) return false;
  return (window_left < 0 || j >= at - window_left) && (window_right < 0 || j <= at + window_right);
}

void Problem::poison(Random& r, bool exact) {
  // Rows that repeat along a batch or position dimension are seen by someone.
  const auto apart = [](const Tensor& t) {
    for (size_t d = 0; d + 2 < t.shape().size(); d++) {
      if (t.repeats(d)) return false;
    }
    return true;
  };
  const auto spoil = [&](Tensor& t, const std::vector<char>& live) {
    const int64_t per = t.shape()[t.shape().size() - 2];
    for (size_t row = 0; apart(t) && row < live.size(); row++) {
      for (int64_t h = 0; !live[row] && h < per; h++) poison_row(t, static_cast<int64_t>(row) * per + h, r);
    }
  };
  std::vector<char> live_q(static_cast<size_t>(q->rows() / std::max<int64_t>(1, heads)));
  std::vector<char> live_k(static_cast<size_t>(k->rows() / kv_heads));
  for (int64_t b = 0; b < batch; b++) {
    const int64_t queries_here = query_counts[static_cast<size_t>(b)];
    for (int64_t i = 0; i < queries_here; i++) live_q[static_cast<size_t>(query_row(b, i))] = 1;
    for (int64_t j = 0; j < key_counts[static_cast<size_t>(b)]; j++) {
      char& live = live_k[static_cast<size_t>(key_row(b, j))];
      for (int64_t i = 0; !live && i < queries_here; i++) live = sees(b, i, j);
    }
  }
  spoil(*q, live_q);
  spoil(*k, live_k);
  spoil(*v, live_k);
  if (bias) poison_bias(r);
  if (!exact || !r.one_in(8) || v->rows() == 0 || !apart(*v)) return;
  for (int n = 0; n < 3; n++) poison_row(*v, r.between(0, v->rows() - 1), r);  // some queries may see these
}

// Whatever the structure hides: tails behind the lengths, and what causality and window hide before them.
void Problem::poison_bias(Random& r) {
  for (size_t d = 0; d < 3; d++) {
    if (bias->repeats(d)) return;
  }
  const auto& s = bias->shape();
  for (int64_t row = 0; row < bias->rows(); row++) {
    const int64_t i = row % s[2], b = row / s[2] / s[1];
    const int64_t first = s[0] == 1 ? 0 : b, last = s[0] == 1 ? batch - 1 : b;
    const auto seen = [&](int64_t j) {
      for (int64_t entry = first; entry <= last; entry++) {
        if (i < query_counts[static_cast<size_t>(entry)] && sees(entry, i, j)) return true;
      }
      return false;
    };
    for (int64_t j = 0, begin; j < s[3]; j++) {
      for (begin = j; j < s[3] && !seen(j);) j++;
      if (j > begin) poison_elements(*bias, row, begin, j, r);
    }
  }
}

std::vector<Tensor*> Problem::inputs() const {
  std::vector<Tensor*> all;
  for (const Holder* t : {&q, &k, &v, &bias, &mask, &alibi, &sinks, &query_offset, &lens_q, &lens_k, &cu_q, &cu_k,
                          &table, &k_scale, &v_scale}) {
    if (*t) all.push_back(t->get());
  }
  return all;
}

std::vector<Tensor*> Problem::outputs() const {
  std::vector<Tensor*> all{out.get()};
  if (lse) all.push_back(lse.get());
  return all;
}

std::string Problem::text() const {
  std::string text;
  for (const Tensor* t : inputs()) text += "  " + t->text() + "\n";
  for (const Tensor* t : outputs()) text += "  " + t->text() + "\n";
  text += "  queries of each entry";
  for (int32_t n : query_counts) text += " " + std::to_string(n);
  text += ", keys";
  for (int32_t n : key_counts) text += " " + std::to_string(n);
  text += ", offsets";
  for (int32_t n : offsets) text += " " + std::to_string(n);
  text += "\n  causal " + std::to_string(causal) + ", align " + std::to_string(align);
  if (has_scale) text += ", scale " + std::to_string(scale);
  if (softcap > 0) text += ", softcap " + std::to_string(softcap);
  if (has_window) text += ", window " + std::to_string(window_left) + " " + std::to_string(window_right);
  if (splits) text += ", splits " + std::to_string(splits);
  return text + "\n";
}

}  // namespace fuzz
