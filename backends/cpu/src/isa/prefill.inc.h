// Prefill: many queries. Rows (queries x query heads that share a KV head) lie across vector lanes, so that
//   S^T[key][row] = K[key][:] . Q^T[:][row]      (broadcast a K element, multiply by a vector of rows)
//   O^T[dim][row] = V^T[dim][:] . P^T[:][row]    (broadcast a V element, multiply by a vector of rows)
// need K and V just as they are stored, and the softmax runs down a column with no work across lanes.
//
// Work item: one KV head of one batch entry x a tile of queries, longest first. (Where one query's heads are more rows than an
// item should have, items share them out.) Its rows are cut into panels of kPanel lanes (panel.inc.h). For each tile of keys, K
// and V become what the products read (product_*.inc.h; sized for the L2 cache), unless an earlier item of the head has left
// them so; each panel then computes its scores (a kPanel x
// tile_k block that stays in L1), updates its running maximum and sum, and adds P.V. A panel works only on keys that it can see,
// and masks by position only where some of its rows don't see all of them.

/// A tile that a thread has packed, and what it is of. Items of a head follow each other, so the next one finds it here.
struct HeldTile {
  PackedTile packed;
  int64_t head;  ///< batch entry and KV head; -1: nothing yet
  Span keys;
  bool special;  ///< the value product must leave hidden keys out
};

/// Where a thread keeps its tiles, carved out of the caller's workspace.
struct PrefillScratch {
  Operands operands;
  HeldTile* tiles;  ///< [tiling.held]
  float* out;       ///< [panels][padded(value_dim)][kPanel]
  float* scores;    ///< [tile keys][kPanel]
  float* rows;      ///< [TSR_VL][row_stride]
  int64_t row_stride;
  uint8_t* hidden;  ///< [tile keys][kPanel]
  Panel* panels;
  PanelState* states;
};

/// Memory of a thread, at most, as far as holding on to packed tiles goes.
constexpr int64_t kThreadBytes = 15 << 18;

/// Rows of a work item are halved while there are fewer items than this, but not below kFewestRows.
constexpr int64_t kEnoughItems = 64;
constexpr int64_t kFewestRows = 96;

struct PrefillTiling {
  int64_t queries;  ///< of a work item
  int64_t members;  ///< query heads of the KV head that an item takes: all, unless one query has more rows than an item
  int64_t parts;    ///< items that make all of them
  int64_t panels;
  int64_t tiles;  ///< query tiles of the longest sequence that shapes allow
  int64_t keys;   ///< of a tile: of the L2 cache's size; fewer where there are never more
  int64_t held;   ///< packed tiles that a thread keeps
};

inline int64_t prefill_scratch(const Problem& p, const PrefillTiling& tiling, std::byte* base, PrefillScratch* scratch,
                               bool clear = false);

/// A packed tile has at most three eighths of the L2 cache, so that rows of Q, O and scores have room beside it.
inline int64_t tile_keys(const Problem& p, int64_t l2_bytes) {
  const int64_t all = padded(p.max_keys > 0 ? p.max_keys : 1);
  int64_t keys = kMostTileKeys;
  const auto bytes = [&] {
    Carver carve{nullptr};
    carve_tile(p, keys, carve);
    return carve.used;
  };
  while (keys > kFewestTileKeys && bytes() > l2_bytes / 8 * 3) keys /= 2;
  return all < keys ? all : keys;
}

inline PrefillTiling prefill_tiling(const Problem& p, int64_t max_queries, int64_t l2_bytes) {
  int64_t rows = kTargetRows;
  const auto items = [&] { return p.batch * p.kv_heads * ((max_queries * p.group + rows - 1) / rows); };
  while (rows / 2 >= kFewestRows && items() < kEnoughItems) rows /= 2;
  const int64_t members = p.group > kTargetRows ? kTargetRows : p.group > 0 ? p.group : 1;
  int64_t queries = rows / members;
  if (queries < 1) queries = 1;
  if (queries > max_queries) queries = max_queries > 0 ? max_queries : 1;
  PrefillTiling t{queries,
                  members,
                  (p.group + members - 1) / members,
                  (queries * members + kPanel - 1) / kPanel,
                  (max_queries + queries - 1) / queries,
                  tile_keys(p, l2_bytes),
                  0};
  const int64_t fixed = prefill_scratch(p, t, nullptr, nullptr);
  t.held = 1;
  const int64_t one = prefill_scratch(p, t, nullptr, nullptr) - fixed;
  const int64_t room = (kThreadBytes - fixed) / one;
  const int64_t all = (p.max_keys + t.keys - 1) / t.keys;
  if (t.parts * t.tiles > 1 && room > 1 && all > 1) t.held = room < all ? room : all;
  return t;
}

/// Lays out a thread's scratch; returns its size in bytes. With base = nullptr it only measures.
/// `clear`: its packed tiles are of nothing yet.
inline int64_t prefill_scratch(const Problem& p, const PrefillTiling& tiling, std::byte* base, PrefillScratch* scratch,
                               bool clear) {
  Carver carve{base};
  PrefillScratch s{};
  s.operands = carve_operands(p, tiling.panels, tiling.keys, carve);
  s.tiles = carve.take<HeldTile>(tiling.held);
  for (int64_t n = 0; n < tiling.held; n++) {
    const PackedTile packed = carve_tile(p, tiling.keys, carve);
    if (clear) s.tiles[n] = {packed, -1, {}, false};
  }
  s.row_stride = tile_stride(padded(p.dim > p.value_dim ? p.dim : p.value_dim));
  s.out = carve.take<float>(tiling.panels * padded(p.value_dim) * kPanel);
  s.scores = carve.take<float>(tiling.keys * kPanel);
  s.rows = carve.take<float>(TSR_VL * s.row_stride);
  s.hidden = carve.take<uint8_t>(tiling.keys * kPanel);
  s.panels = carve.take<Panel>(tiling.panels);
  s.states = carve.take<PanelState>(tiling.panels);
  if (scratch) *scratch = s;
  return carve.used;
}

/// Puts the item's queries into panels and resets the panels' state.
inline void prefill_begin(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span members, Span queries,
                          int64_t panels, PrefillScratch& scratch) {
  const int64_t group = members.size();
  const int64_t rows = queries.size() * group;
  for (int64_t n = 0; n < panels; n++) {
    Panel& panel = scratch.panels[n];
    const int64_t first = n * kPanel;
    panel.rows = static_cast<int>(rows - first < kPanel ? rows - first : kPanel);
    panel.queries = {queries.begin + first / group, queries.begin + (first + panel.rows - 1) / group + 1};
    int64_t query = panel.queries.begin;
    int64_t member = members.begin + first % group;
    for (int lane = 0; lane < kPanel; lane++) {
      panel.query[lane] = query;
      panel.head[lane] = kv_head * p.group + member;
      panel.position[lane] = static_cast<int32_t>(query + s.visibility.offset);
      panel.slope[lane] = p.alibi_slopes ? p.alibi_slopes[panel.head[lane]] : 0;
      if (lane + 1 < panel.rows && ++member == members.end) {
        member = members.begin;
        query++;
      }
    }
    const auto stored = [&](int lane) {
      return lane < panel.rows ? element(p.q, query_offset(p.q, s, b, panel.query[lane], panel.head[lane])) : nullptr;
    };
    for (int lane = 0; lane < panel.rows; lane += TSR_VL) {
      const uint8_t* rows_of_lanes[TSR_VL];
      for (int i = 0; i < TSR_VL; i++) {
        rows_of_lanes[i] = stored(lane + i);
        if (rows_of_lanes[i] != nullptr) prefetch_bytes(rows_of_lanes[i], row_bytes(p.q.dtype, p.dim));
      }
      put_queries(p, rows_of_lanes, n, lane, scratch.rows, scratch.row_stride, scratch.operands);
    }
    for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
      scratch.states[n].maximum[v] = splat(-kInf);
      scratch.states[n].sum[v] = splat(0);
    }
  }
  __builtin_memset(scratch.out, 0, static_cast<size_t>(panels * padded(p.value_dim) * kPanel) * sizeof(float));
}

inline void prefill_finish(const Problem& p, const Sequence& s, int64_t b, int64_t panels,
                           const PrefillScratch& scratch) {
  for (int64_t n = 0; n < panels; n++) {
    const Panel& panel = scratch.panels[n];
    const PanelState& state = scratch.states[n];
    for (int first = 0; first < panel.rows; first += TSR_VL) {
      for (int64_t d = 0; d < p.value_dim; d += TSR_VL) {
        vf x[TSR_VL];
        const float* from = scratch.out + (n * padded(p.value_dim) + d) * kPanel + first;
        for (int i = 0; i < TSR_VL; i++) x[i] = load(from + i * kPanel);
        transpose(x);
        for (int i = 0; i < TSR_VL; i++) store(scratch.rows + i * scratch.row_stride + d, x[i]);
      }
      for (int i = 0; i < TSR_VL && first + i < panel.rows; i++) {
        finish_row(p, s, b, panel.query[first + i], panel.head[first + i], state.maximum[first / TSR_VL][i],
                   state.sum[first / TSR_VL][i], scratch.rows + i * scratch.row_stride);
      }
    }
  }
}

/// Panel n against `keys`, which lie in the tile that begins at `tile_begin`.
inline void prefill_panel(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span keys,
                          const HeldTile& tile, int64_t n, const PrefillScratch& scratch) {
  const Panel& panel = scratch.panels[n];
  const int64_t count = keys.size();
  product_scores(p, s, b, kv_head, panel, n, keys, keys.begin - tile.keys.begin, scratch.operands, tile.packed,
                 scratch.scores);
  if (!p.plain_score()) panel_options(p, b, panel, keys, scratch.scores);
  if (s.visibility.tile(panel.queries, keys) != Tile::kFull) {
    panel_structure(s.visibility, panel, keys, scratch.scores);
  }
  if (tile.special) {
    for (int64_t at = 0; at < count * kPanel; at++) scratch.hidden[at] = scratch.scores[at] == -kInf;
  }
  vf rescale[TSR_PANEL_VECTORS] = {};
  panel_softmax(panel.vectors(), count, scratch.scores, scratch.states[n], rescale);
  float* out = scratch.out + n * padded(p.value_dim) * kPanel;
  if (tile.special) {
    panel_values_special(p, s, b, kv_head, keys, scratch.scores, scratch.hidden, rescale, scratch.rows, out);
  } else {
    product_values(p, panel, keys.begin - tile.keys.begin, count, scratch.scores, rescale, scratch.operands,
                   tile.packed, out);
  }
}

/// The packed tile of `keys`. The first tiles of a head have places of their own, as causality leaves those to most queries;
/// all others share the last.
inline const HeldTile& held_tile(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span keys,
                                 const PrefillTiling& tiling, PrefillScratch& scratch) {
  const int64_t at = keys.begin / tiling.keys;
  HeldTile& tile = scratch.tiles[at < tiling.held ? at : tiling.held - 1];
  const int64_t head = b * p.kv_heads + kv_head;
  if (tile.head != head || tile.keys.begin != keys.begin || tile.keys.end != keys.end) {
    load_keys(p, s, b, kv_head, keys, scratch.operands, tile.packed);
    tile.special = load_values(p, s, b, kv_head, keys, scratch.operands, tile.packed);
    tile.head = head;
    tile.keys = keys;
  }
  return tile;
}

inline void prefill_item(const Problem& p, int64_t b, int64_t kv_head, int64_t part, int64_t tile,
                         const PrefillTiling& tiling, PrefillScratch& scratch) {
  const Sequence s = p.sequence(b);
  const int64_t begin = tile * tiling.queries;
  const auto cut = [&](int64_t rows) { return begin + tiling.queries < rows ? begin + tiling.queries : rows; };
  const Span queries{begin, cut(s.query_count)};
  const Span padding{begin > s.query_count ? begin : s.query_count, cut(rows_to_write(p, s))};
  const int64_t first = part * tiling.members;
  const Span members{first, first + tiling.members < p.group ? first + tiling.members : p.group};
  for (int64_t g = members.begin; g < members.end && !padding.empty(); g++) {
    clear_rows(p, s, b, kv_head * p.group + g, padding);
  }
  if (queries.empty()) return;

  [[maybe_unused]] const ProductScope scope{};
  const int64_t panels = (queries.size() * members.size() + kPanel - 1) / kPanel;
  prefill_begin(p, s, b, kv_head, members, queries, panels, scratch);
  const Span visible = s.visibility.keys(queries);
  const int64_t last = s.visibility.keys(Span{0, s.query_count}).end;
  for (int64_t j = visible.begin; j < visible.end; j += tiling.keys) {
    if (cancelled(p)) return;
    // What is in a tile does not depend on the queries that come first to it: its bits don't either.
    const Span whole{j, j + tiling.keys < last ? j + tiling.keys : last};
    const HeldTile& tile = held_tile(p, s, b, kv_head, whole, tiling, scratch);
    const Span keys{j, whole.end < visible.end ? whole.end : visible.end};
    for (int64_t n = 0; n < panels; n++) {
      const Span seen = s.visibility.keys(scratch.panels[n].queries);
      const Span both{seen.begin > keys.begin ? seen.begin : keys.begin, seen.end < keys.end ? seen.end : keys.end};
      if (!both.empty()) prefill_panel(p, s, b, kv_head, both, tile, n, scratch);
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

Plan plan_prefill(const Problem& p, const Machine& machine) {
  const PrefillTiling tiling = prefill_tiling(p, p.max_queries, machine.l2_bytes);
  const int64_t items = p.batch * p.kv_heads * tiling.parts * tiling.tiles;
  Plan plan;
  plan.tile_q = static_cast<int32_t>(tiling.queries * tiling.members);
  plan.tile_k = static_cast<int32_t>(tiling.keys);
  plan.threads = threads_of(p, items, machine.threads);
  plan.l2_bytes = machine.l2_bytes;
  if (items > 0) {
    plan.workspace_bytes = static_cast<uint64_t>(prefill_scratch(p, tiling, nullptr, nullptr) * machine.threads);
  }
  return plan;
}

tsr_status prefill(const Problem& p, const Plan& plan, std::byte* workspace, ThreadPool& pool) {
  PrefillTiling tiling = prefill_tiling(p, p.max_queries, plan.l2_bytes);
  const int64_t per_thread = prefill_scratch(p, tiling, nullptr, nullptr);
  tiling.tiles = (longest_sequence(p) + tiling.queries - 1) / tiling.queries;
  for (int worker = 0; worker < pool.size(); worker++) {
    prefill_scratch(p, tiling, workspace + worker * per_thread, nullptr, true);
  }
  run_items(p, pool, p.batch * p.kv_heads * tiling.parts * tiling.tiles, [&](int64_t item, int worker) {
    if (cancelled(p)) return;
    PrefillScratch scratch;
    prefill_scratch(p, tiling, workspace + worker * per_thread, &scratch);
    // Head by head, so that its keys and values stay in the cache; last tiles first: under causality they are the longest,
    // and the shortest of the last head are done when threads run out of work.
    const int64_t tile = tiling.tiles - 1 - item % tiling.tiles;
    const int64_t part = item / tiling.tiles % tiling.parts;
    const int64_t head = item / tiling.tiles / tiling.parts;
    prefill_item(p, head / p.kv_heads, head % p.kv_heads, part, tile, tiling, scratch);
  });
  return cancelled(p) ? TSR_ABORTED : TSR_OK;
}
