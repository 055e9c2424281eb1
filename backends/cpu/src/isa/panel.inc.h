// A panel of prefill: kPanel rows across lanes, their scores, options, mask and online softmax.

/// The rows of a panel: lane r is query `query[r]` of head `head[r]`; lanes past `rows` repeat the last one's position, with
/// a query of zeros, and are never written out.
struct Panel {
  Span queries;
  int rows;
  /// Vectors that hold a row: lanes past them are left as they are.
  int vectors() const { return (rows + TSR_VL - 1) / TSR_VL; }
  int64_t query[kPanel];
  int64_t head[kPanel];
  alignas(64) int32_t position[kPanel];  ///< query + offset, for ALiBi
  alignas(64) float slope[kPanel];
};

struct PanelState {
  vf maximum[TSR_PANEL_VECTORS];
  vf sum[TSR_PANEL_VECTORS];
};

/// Soft cap, bias, ALiBi and mask on scores[key][lane] in natural units; leaves them in base 2, hidden keys at -inf.
inline void panel_options(const Problem& p, int64_t b, const Panel& panel, Span keys, float* scores) {
  const int64_t count = keys.size();
  if (p.softcap > 0) {
    const vf cap = splat(p.softcap);
    for (int64_t at = 0; at < count * kPanel; at += TSR_VL) {
      store(scores + at, cap * tanh_vector(load(scores + at) / cap));
    }
  }
  if (p.bias.given() || p.mask.given()) {
    alignas(64) float bias[kMostTileKeys];
    for (int lane = 0; lane < panel.rows; lane++) {
      const int64_t i = panel.query[lane];
      const int64_t head = panel.head[lane];
      float* column = scores + lane;
      if (p.bias.given()) {
        const View& view = p.bias;
        convert_row(view.dtype,
                    element(view, b * view.batch_stride + head * view.head_stride + i * view.row_stride + keys.begin),
                    count, 1.0f, bias);
        for (int64_t j = 0; j < count; j++) column[j * kPanel] = add_bias(column[j * kPanel], bias[j]);
      }
      if (p.mask.given()) {
        const View& view = p.mask;
        const uint8_t* visible =
            element(view, b * view.batch_stride + head * view.head_stride + i * view.row_stride + keys.begin);
        for (int64_t j = 0; j < count; j++) {
          if (visible[j] == 0) column[j * kPanel] = -kInf;
        }
      }
    }
  }
  if (p.alibi_slopes) {
    for (int64_t j = 0; j < count; j++) {
      const vi key = splat_int(static_cast<int32_t>(keys.begin + j));
      for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
        vi position;
        __builtin_memcpy(&position, panel.position + v * TSR_VL, sizeof position);
        const vi difference = position - key;
        const vi distance = (difference > 0 ? difference : -difference);
        float* at = scores + j * kPanel + v * TSR_VL;
        store(at, load(at) - load(panel.slope + v * TSR_VL) * __builtin_convertvector(distance, vf));
      }
    }
  }
  const vf log2e = splat(kLog2e);
  for (int64_t at = 0; at < count * kPanel; at += TSR_VL) store(scores + at, load(scores + at) * log2e);
}

/// -inf where a lane's query doesn't see the key by structure.
inline void panel_structure(const Visibility& visibility, const Panel& panel, Span keys, float* scores) {
  alignas(64) int32_t first[kPanel];
  alignas(64) int32_t last[kPanel];
  const int64_t count = keys.size();
  // All lanes see the keys between the latest beginning and the earliest end: mostly all but those of the diagonal.
  int64_t inner_begin = 0;
  int64_t inner_end = count;
  for (int lane = 0; lane < kPanel; lane++) {
    const Span span = visibility.keys(panel.query[lane]);
    const int64_t begin = span.begin - keys.begin;
    const int64_t end = span.end - keys.begin;
    first[lane] = static_cast<int32_t>(span.empty() ? count : begin < 0 ? 0 : begin > count ? count : begin);
    last[lane] = static_cast<int32_t>(span.empty() || end < 0 ? 0 : end > count ? count : end);
    inner_begin = first[lane] > inner_begin ? first[lane] : inner_begin;
    inner_end = last[lane] < inner_end ? last[lane] : inner_end;
  }
  if (inner_end < inner_begin) inner_end = inner_begin;
  for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
    vi lo, hi;
    __builtin_memcpy(&lo, first + v * TSR_VL, sizeof lo);
    __builtin_memcpy(&hi, last + v * TSR_VL, sizeof hi);
    const auto hide = [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; j++) {
        const vi key = splat_int(static_cast<int32_t>(j));
        float* at = scores + j * kPanel + v * TSR_VL;
        store(at, select((key >= lo) & (key < hi), load(at), splat(-kInf)));
      }
    };
    hide(0, inner_begin);
    hide(inner_end, count);
  }
}

/// Online softmax of one tile: scores become weights 2^(s - maximum), the running maximum and sum move on, and
/// `rescale` is what earlier results must be multiplied by.
inline void panel_softmax(int vectors, int64_t count, float* scores, PanelState& state, vf* rescale) {
  for (int v = 0; v < vectors; v++) {
    float* column = scores + v * TSR_VL;
    // Four chains: one would wait for itself at every step.
    vf tops[4] = {state.maximum[v], state.maximum[v], state.maximum[v], state.maximum[v]};
    int64_t key = 0;
    for (; key + 4 <= count; key += 4) {
      for (int i = 0; i < 4; i++) tops[i] = max_or_second(load(column + (key + i) * kPanel), tops[i]);
    }
    for (; key < count; key++) tops[0] = max_or_second(load(column + key * kPanel), tops[0]);
    const vf top = max_or_second(max_or_second(tops[0], tops[1]), max_or_second(tops[2], tops[3]));
    // A row that saw nothing yet has maximum -inf; subtracting 0 instead keeps -inf - (-inf) away.
    const vf base = select(top == splat(-kInf), splat(0), top);
    rescale[v] = exp2_nonpositive(state.maximum[v] - base);
    vf even = splat(0);
    vf odd = splat(0);
    int64_t j = 0;
    for (; j + 2 <= count; j += 2) {
      const vf a = exp2_nonpositive(load(column + j * kPanel) - base);
      const vf c = exp2_nonpositive(load(column + (j + 1) * kPanel) - base);
      store(column + j * kPanel, a);
      store(column + (j + 1) * kPanel, c);
      even += a;
      odd += c;
    }
    if (j < count) {
      const vf a = exp2_nonpositive(load(column + j * kPanel) - base);
      store(column + j * kPanel, a);
      even += a;
    }
    state.sum[v] = fma(state.sum[v], rescale[v], even + odd);
    state.maximum[v] = top;
  }
}

/// The value product for a tile whose V holds NaN or infinity, where 0 * NaN must not happen: hidden keys (`hidden`, by
/// key and lane) are left out one by one. From V as it is stored; rare, so plain.
[[gnu::noinline]] void panel_values_special(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span keys,
                                            const float* weights, const uint8_t* hidden, const vf* rescale, float* row,
                                            float* out) {
  float factor[kPanel];
  for (int v = 0; v < TSR_PANEL_VECTORS; v++) store(factor + v * TSR_VL, rescale[v]);
  for (int64_t at = 0; at < p.value_dim * kPanel; at++) out[at] *= factor[at % kPanel];
  for (int64_t j = 0; j < keys.size(); j++) {
    convert_row(p.v.dtype, key_row(p, p.v, s, b, kv_head, keys.begin + j), p.value_dim,
                p.v_scale ? p.v_scale[kv_head] : 1.0f, row);
    for (int64_t d = 0; d < p.value_dim; d++) {
      for (int lane = 0; lane < kPanel; lane++) {
        if (!hidden[j * kPanel + lane]) out[d * kPanel + lane] += weights[j * kPanel + lane] * row[d];
      }
    }
  }
}
