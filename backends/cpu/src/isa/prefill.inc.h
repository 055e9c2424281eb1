// Prefill: many queries. Rows (queries x query heads that share a KV head) lie across vector lanes, so that
//   S^T[key][row] = K[key][:] . Q^T[:][row]      (broadcast a K element, multiply by a vector of rows)
//   O^T[dim][row] = V^T[dim][:] . P^T[:][row]    (broadcast a V element, multiply by a vector of rows)
// need K and V just as they are stored, and the softmax runs down a column with no work across lanes.
//
// Work item: one KV head of one batch entry x a tile of queries, longest first. Its rows are cut into panels of kPanel
// lanes. For each tile of keys, K and V become compact fp32 rows (tile.inc.h; sized for the L2 cache); each panel then
// computes its scores (a kPanel x tile_k block that stays in L1), updates its running maximum and sum, and adds P.V.
// A panel works only on keys that it can see, and masks by position only where some of its rows don't see all of them.
// Micro-kernels keep kBlock x kPanel accumulators in registers.

constexpr int kPanel = TSR_PANEL_VECTORS * TSR_VL;
constexpr int kBlock = TSR_BLOCK;
constexpr int kTargetRows = TSR_TARGET_ROWS;
constexpr int64_t kTileKeys = 128;

/// Dimensions, or keys, that are summed in one chain: in a longer one, products of one sign (or equal ones) drift past the
/// bound of docs/semantics.md, "Numbers". A multiple of it costs one addition to memory each.
constexpr int64_t kChain = 64;

/// scores[m][row] = scale * sum over d of keys[m][d] * queries[d][row], for M keys. Scaled here and not in Q: products of
/// short mantissas (fp16 input) stay exact for longer.
template <int M>
TSR_SIMD void score_block(const float* queries, const float* keys, int64_t stride, int64_t dim, float scale,
                          float* scores) {
  const vf factor = splat(scale);
  for (int64_t begin = 0; begin < dim; begin += kChain) {
    const int64_t end = begin + kChain < dim ? begin + kChain : dim;
    vf acc[M][TSR_PANEL_VECTORS] = {};
    for (int64_t d = begin; d < end; d++) {
      vf q[TSR_PANEL_VECTORS];
#pragma GCC unroll 8
      for (int v = 0; v < TSR_PANEL_VECTORS; v++) q[v] = load(queries + d * kPanel + v * TSR_VL);
#pragma GCC unroll 16
      for (int m = 0; m < M; m++) {
        const vf k = splat(keys[m * stride + d]);
#pragma GCC unroll 8
        for (int v = 0; v < TSR_PANEL_VECTORS; v++) acc[m][v] = fma(k, q[v], acc[m][v]);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 8
      for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
        float* at = scores + m * kPanel + v * TSR_VL;
        store(at, begin == 0 ? acc[m][v] * factor : fma(acc[m][v], factor, load(at)));
      }
    }
  }
}

/// out[m][row] = out[m][row] * rescale[row] + sum over keys of values[key][m] * weights[key][row], for M dimensions.
/// Each chain of keys starts from zero, so rounding grows with the chain and not with the whole sequence.
template <int M>
TSR_SIMD void value_block(const float* weights, const float* values, int64_t stride, int64_t keys, const vf* rescale,
                          float* out) {
  for (int64_t begin = 0; begin < keys; begin += kChain) {
    const int64_t end = begin + kChain < keys ? begin + kChain : keys;
    vf acc[M][TSR_PANEL_VECTORS] = {};
    for (int64_t j = begin; j < end; j++) {
      vf w[TSR_PANEL_VECTORS];
#pragma GCC unroll 8
      for (int v = 0; v < TSR_PANEL_VECTORS; v++) w[v] = load(weights + j * kPanel + v * TSR_VL);
#pragma GCC unroll 16
      for (int m = 0; m < M; m++) {
        const vf x = splat(values[j * stride + m]);
#pragma GCC unroll 8
        for (int v = 0; v < TSR_PANEL_VECTORS; v++) acc[m][v] = fma(x, w[v], acc[m][v]);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 8
      for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
        float* at = out + m * kPanel + v * TSR_VL;
        store(at, begin == 0 ? fma(load(at), rescale[v], acc[m][v]) : load(at) + acc[m][v]);
      }
    }
  }
}

[[gnu::noinline]] void panel_scores(const float* queries, const float* keys, int64_t stride, int64_t dim, int64_t count,
                                    float scale, float* scores) {
  int64_t j = 0;
  for (; j + kBlock <= count; j += kBlock) {
    score_block<kBlock>(queries, keys + j * stride, stride, dim, scale, scores + j * kPanel);
  }
  for (; j < count; j++) score_block<1>(queries, keys + j * stride, stride, dim, scale, scores + j * kPanel);
}

[[gnu::noinline]] void panel_values(const float* weights, const float* values, int64_t stride, int64_t keys,
                                    int64_t dim, const vf* rescale, float* out) {
  int64_t d = 0;
  for (; d + kBlock <= dim; d += kBlock) {
    value_block<kBlock>(weights, values + d, stride, keys, rescale, out + d * kPanel);
  }
  for (; d < dim; d++) value_block<1>(weights, values + d, stride, keys, rescale, out + d * kPanel);
}

/// The rows of a panel: lane r is query `query[r]` of head `head[r]`; lanes past `rows` repeat the last one and are
/// never written out.
struct Panel {
  Span queries;
  int rows;
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
    alignas(64) float bias[kTileKeys];
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
  for (int lane = 0; lane < kPanel; lane++) {
    const Span span = visibility.keys(panel.query[lane]);
    const int64_t begin = span.begin - keys.begin;
    const int64_t end = span.end - keys.begin;
    first[lane] = static_cast<int32_t>(span.empty() ? count : begin < 0 ? 0 : begin > count ? count : begin);
    last[lane] = static_cast<int32_t>(span.empty() || end < 0 ? 0 : end > count ? count : end);
  }
  for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
    vi lo, hi;
    __builtin_memcpy(&lo, first + v * TSR_VL, sizeof lo);
    __builtin_memcpy(&hi, last + v * TSR_VL, sizeof hi);
    for (int64_t j = 0; j < count; j++) {
      const vi key = splat_int(static_cast<int32_t>(j));
      float* at = scores + j * kPanel + v * TSR_VL;
      store(at, select((key >= lo) & (key < hi), load(at), splat(-kInf)));
    }
  }
}

/// Online softmax of one tile: scores become weights 2^(s - maximum), the running maximum and sum move on, and
/// `rescale` is what earlier results must be multiplied by.
inline void panel_softmax(int64_t count, float* scores, PanelState& state, vf* rescale) {
  for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
    float* column = scores + v * TSR_VL;
    vf top = state.maximum[v];
    for (int64_t j = 0; j < count; j++) top = max_or_second(load(column + j * kPanel), top);
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
/// key and lane) are left out one by one. Rare, so plain.
[[gnu::noinline]] void panel_values_special(const float* weights, const uint8_t* hidden, const float* values,
                                            int64_t stride, int64_t keys, int64_t dim, const vf* rescale, float* out) {
  float factor[kPanel];
  for (int v = 0; v < TSR_PANEL_VECTORS; v++) store(factor + v * TSR_VL, rescale[v]);
  for (int64_t d = 0; d < dim; d++) {
    for (int lane = 0; lane < kPanel; lane++) {
      float sum = 0;
      for (int64_t j = 0; j < keys; j++) {
        if (!hidden[j * kPanel + lane]) sum += weights[j * kPanel + lane] * values[j * stride + d];
      }
      float& at = out[d * kPanel + lane];
      at = at * factor[lane] + sum;
    }
  }
}

/// Where a thread keeps its tiles, carved out of the caller's workspace.
struct PrefillScratch {
  float* queries;   ///< [panels][dim][kPanel]
  float* out;       ///< [panels][value_dim][kPanel]
  float* keys;      ///< [kTileKeys][tile_stride(dim)]
  float* values;    ///< [kTileKeys][tile_stride(value_dim)]
  float* scores;    ///< [kTileKeys][kPanel]
  float* row;       ///< [max(dim, value_dim)]
  uint8_t* hidden;  ///< [kTileKeys][kPanel]
  Panel* panels;
  PanelState* states;
};

struct PrefillTiling {
  int64_t queries;  ///< of a work item
  int64_t panels;
  int64_t tiles;  ///< query tiles of the longest sequence that shapes allow
};

TSR_SIMD PrefillTiling prefill_tiling(const Problem& p, int64_t max_queries) {
  int64_t queries = kTargetRows / (p.group > 0 ? p.group : 1);
  if (queries < 1) queries = 1;
  if (queries > max_queries) queries = max_queries > 0 ? max_queries : 1;
  return {queries, (queries * p.group + kPanel - 1) / kPanel, (max_queries + queries - 1) / queries};
}

/// Lays out a thread's scratch; returns its size in bytes. With base = nullptr it only measures.
inline int64_t prefill_scratch(const Problem& p, const PrefillTiling& tiling, std::byte* base,
                               PrefillScratch* scratch) {
  Carver carve{base};
  PrefillScratch s{};
  s.queries = carve.take<float>(tiling.panels * p.dim * kPanel);
  s.out = carve.take<float>(tiling.panels * p.value_dim * kPanel);
  s.keys = carve.take<float>(kTileKeys * tile_stride(p.dim));
  s.values = carve.take<float>(kTileKeys * tile_stride(p.value_dim));
  s.scores = carve.take<float>(kTileKeys * kPanel);
  s.row = carve.take<float>(p.dim > p.value_dim ? p.dim : p.value_dim);
  s.hidden = carve.take<uint8_t>(kTileKeys * kPanel);
  s.panels = carve.take<Panel>(tiling.panels);
  s.states = carve.take<PanelState>(tiling.panels);
  if (scratch) *scratch = s;
  return carve.used;
}

/// Transposes the item's queries into panels and resets the panels' state.
inline void prefill_begin(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span queries, int64_t panels,
                          const PrefillScratch& scratch) {
  const int64_t rows = queries.size() * p.group;
  for (int64_t n = 0; n < panels; n++) {
    Panel& panel = scratch.panels[n];
    const int64_t first = n * kPanel;
    panel.rows = static_cast<int>(rows - first < kPanel ? rows - first : kPanel);
    panel.queries = {queries.begin + first / p.group, queries.begin + (first + panel.rows - 1) / p.group + 1};
    for (int lane = 0; lane < kPanel; lane++) {
      const int64_t row = first + (lane < panel.rows ? lane : panel.rows - 1);
      panel.query[lane] = queries.begin + row / p.group;
      panel.head[lane] = kv_head * p.group + row % p.group;
      panel.position[lane] = static_cast<int32_t>(panel.query[lane] + s.visibility.offset);
      panel.slope[lane] = p.alibi_slopes ? p.alibi_slopes[panel.head[lane]] : 0;
      float* column = scratch.queries + n * p.dim * kPanel + lane;
      if (lane < panel.rows) {
        convert_row(p.q.dtype, element(p.q, query_offset(p.q, s, b, panel.query[lane], panel.head[lane])), p.dim, 1.0f,
                    scratch.row);
        for (int64_t d = 0; d < p.dim; d++) column[d * kPanel] = scratch.row[d];
      } else {
        for (int64_t d = 0; d < p.dim; d++) column[d * kPanel] = 0;
      }
    }
    for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
      scratch.states[n].maximum[v] = splat(-kInf);
      scratch.states[n].sum[v] = splat(0);
    }
  }
  __builtin_memset(scratch.out, 0, static_cast<size_t>(panels * p.value_dim * kPanel) * sizeof(float));
}

inline void prefill_finish(const Problem& p, const Sequence& s, int64_t b, int64_t panels,
                           const PrefillScratch& scratch) {
  for (int64_t n = 0; n < panels; n++) {
    const Panel& panel = scratch.panels[n];
    const PanelState& state = scratch.states[n];
    for (int lane = 0; lane < panel.rows; lane++) {
      const float* column = scratch.out + n * p.value_dim * kPanel + lane;
      for (int64_t d = 0; d < p.value_dim; d++) scratch.row[d] = column[d * kPanel];
      finish_row(p, s, b, panel.query[lane], panel.head[lane], state.maximum[lane / TSR_VL][lane % TSR_VL],
                 state.sum[lane / TSR_VL][lane % TSR_VL], scratch.row);
    }
  }
}

inline void prefill_panel(const Problem& p, const Sequence& s, int64_t b, Span keys, int64_t tile_begin, bool special,
                          int64_t n, const PrefillScratch& scratch) {
  const Panel& panel = scratch.panels[n];
  const int64_t key_stride = tile_stride(p.dim);
  const int64_t value_stride = tile_stride(p.value_dim);
  const int64_t count = keys.size();
  panel_scores(scratch.queries + n * p.dim * kPanel, scratch.keys + (keys.begin - tile_begin) * key_stride, key_stride,
               p.dim, count, score_factor(p), scratch.scores);
  if (!p.plain_score()) panel_options(p, b, panel, keys, scratch.scores);
  if (s.visibility.tile(panel.queries, keys) != Tile::kFull) {
    panel_structure(s.visibility, panel, keys, scratch.scores);
  }
  if (special) {
    for (int64_t at = 0; at < count * kPanel; at++) scratch.hidden[at] = scratch.scores[at] == -kInf;
  }
  vf rescale[TSR_PANEL_VECTORS];
  panel_softmax(count, scratch.scores, scratch.states[n], rescale);
  const float* values = scratch.values + (keys.begin - tile_begin) * value_stride;
  float* out = scratch.out + n * p.value_dim * kPanel;
  if (special) {
    panel_values_special(scratch.scores, scratch.hidden, values, value_stride, count, p.value_dim, rescale, out);
  } else {
    panel_values(scratch.scores, values, value_stride, count, p.value_dim, rescale, out);
  }
}

inline void prefill_item(const Problem& p, int64_t b, int64_t kv_head, int64_t tile, const PrefillTiling& tiling,
                         const PrefillScratch& scratch) {
  const Sequence s = p.sequence(b);
  const int64_t begin = tile * tiling.queries;
  const auto cut = [&](int64_t rows) { return begin + tiling.queries < rows ? begin + tiling.queries : rows; };
  const Span queries{begin, cut(s.query_count)};
  const Span padding{begin > s.query_count ? begin : s.query_count, cut(rows_to_write(p, s))};
  for (int64_t g = 0; g < p.group && !padding.empty(); g++) clear_rows(p, s, b, kv_head * p.group + g, padding);
  if (queries.empty()) return;

  const int64_t panels = (queries.size() * p.group + kPanel - 1) / kPanel;
  prefill_begin(p, s, b, kv_head, queries, panels, scratch);
  const Span visible = s.visibility.keys(queries);
  for (int64_t j = visible.begin; j < visible.end; j += kTileKeys) {
    if (cancelled(p)) return;
    const Span keys{j, j + kTileKeys < visible.end ? j + kTileKeys : visible.end};
    load_tile(p, p.k, s, b, kv_head, keys, p.dim, p.k_scale, scratch.keys, tile_stride(p.dim));
    const bool special =
        load_tile(p, p.v, s, b, kv_head, keys, p.value_dim, p.v_scale, scratch.values, tile_stride(p.value_dim));
    for (int64_t n = 0; n < panels; n++) {
      const Span seen = s.visibility.keys(scratch.panels[n].queries);
      const Span both{seen.begin > keys.begin ? seen.begin : keys.begin, seen.end < keys.end ? seen.end : keys.end};
      if (!both.empty()) prefill_panel(p, s, b, both, keys.begin, special, n, scratch);
    }
  }
  prefill_finish(p, s, b, panels, scratch);
}

/// Rows to compute or clear, at most, in any sequence: from contents, which the CPU can read. It bounds how many tiles
/// are visited, and never what a tile is: one entry's result must not depend on another's length.
inline int64_t longest_sequence(const Problem& p) {
  if (!p.packed_q) return p.query_rows;
  int64_t longest = 0;
  for (int64_t b = 0; b < p.batch; b++) {
    const int64_t count = p.cu_seqlens_q[b + 1] - p.cu_seqlens_q[b];
    if (count > longest) longest = count;
  }
  return longest;
}

Plan plan_prefill(const Problem& p, int threads) {
  const PrefillTiling tiling = prefill_tiling(p, p.max_queries);
  const int64_t items = p.batch * p.kv_heads * tiling.tiles;
  Plan plan;
  plan.tile_q = static_cast<int32_t>(tiling.queries * p.group);
  plan.tile_k = static_cast<int32_t>(kTileKeys);
  plan.threads = static_cast<int32_t>(items < threads ? (items > 0 ? items : 1) : threads);
  plan.workspace_bytes =
      items > 0 ? static_cast<uint64_t>(prefill_scratch(p, tiling, nullptr, nullptr)) * static_cast<uint64_t>(threads)
                : 0;
  return plan;
}

tsr_status prefill(const Problem& p, const Plan&, std::byte* workspace, ThreadPool& pool) {
  PrefillTiling tiling = prefill_tiling(p, p.max_queries);
  const int64_t per_thread = prefill_scratch(p, tiling, nullptr, nullptr);
  tiling.tiles = (longest_sequence(p) + tiling.queries - 1) / tiling.queries;
  const int64_t heads = p.batch * p.kv_heads;
  pool.run(heads * tiling.tiles, [&](int64_t item, int worker) {
    if (cancelled(p)) return;
    PrefillScratch scratch;
    prefill_scratch(p, tiling, workspace + worker * per_thread, &scratch);
    // Last tiles first: under causality they are the longest.
    const int64_t tile = tiling.tiles - 1 - item / heads;
    const int64_t head = item % heads;
    prefill_item(p, head / p.kv_heads, head % p.kv_heads, tile, tiling, scratch);
  });
  return cancelled(p) ? TSR_ABORTED : TSR_OK;
}
