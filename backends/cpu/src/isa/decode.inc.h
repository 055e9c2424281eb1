// Decode: few queries against many keys. The key range is cut into splits, each split of each KV head is a work item, and
// partial results are merged by LSE afterwards. Vector lanes run along the head dimension:
//   s[row][key] = Q[row][:] . K[key][:]
//   O[row][:]  += p[row][key] * V[key][:]     (decode_tile.inc.h)
// Rows are the query heads of the group x the queries of the item. Splits depend on shapes alone.

constexpr int64_t kSplitKeys = 1024;
constexpr int64_t kMaxSplits = 64;
constexpr int64_t kDecodeRows = 16;

struct DecodeTiling {
  int64_t queries;  ///< of a work item
  int64_t rows;     ///< queries * group
  int64_t tiles;    ///< query tiles
  int64_t splits;
  int64_t split_keys;  ///< keys of a split
};

TSR_SIMD DecodeTiling decode_tiling(const Problem& p) {
  DecodeTiling t;
  t.queries = kDecodeRows / (p.group > 0 ? p.group : 1);
  if (t.queries < 1) t.queries = 1;
  if (t.queries > p.max_queries) t.queries = p.max_queries > 0 ? p.max_queries : 1;
  t.rows = t.queries * p.group;
  t.tiles = (p.max_queries + t.queries - 1) / t.queries;
  t.splits = p.num_splits;
  if (t.splits <= 0) {
    t.splits = (p.max_keys + kSplitKeys - 1) / kSplitKeys;
    if (t.splits > kMaxSplits) t.splits = kMaxSplits;
  }
  // A split has at least one tile of keys: more of them than tiles would be empty, and cost memory.
  const int64_t key_tiles = (p.max_keys + kDecodeTile - 1) / kDecodeTile;
  if (t.splits > key_tiles) t.splits = key_tiles;
  if (t.splits < 1) t.splits = 1;
  const int64_t even = (p.max_keys + t.splits - 1) / t.splits;
  t.split_keys = (even + kDecodeTile - 1) / kDecodeTile * kDecodeTile;
  return t;
}

struct DecodeScratch {
  float* queries;   ///< [rows][tile_stride(dim)]
  float* out;       ///< [rows][tile_stride(value_dim)], without v_scale
  float* scores;    ///< [rows][kDecodeTile]
  int32_t* hidden;  ///< [rows][kDecodeTile], -1 where a key is hidden
  float* maximum;   ///< [rows]
  float* sum;       ///< [rows]
  float* rescale;   ///< [rows]
};

TSR_SIMD int64_t decode_scratch(const Problem& p, const DecodeTiling& t, std::byte* base, DecodeScratch* scratch) {
  Carver carve{base};
  DecodeScratch s{};
  s.queries = carve.take<float>(t.rows * tile_stride(p.dim));
  s.out = carve.take<float>(t.rows * tile_stride(p.value_dim));
  s.scores = carve.take<float>(t.rows * kDecodeTile);
  s.hidden = carve.take<int32_t>(t.rows * kDecodeTile);
  s.maximum = carve.take<float>(t.rows);
  s.sum = carve.take<float>(t.rows);
  s.rescale = carve.take<float>(t.rows);
  if (scratch) *scratch = s;
  return carve.used;
}

/// A split's partial result: per row the maximum, the sum, and value_dim unnormalised outputs.
TSR_SIMD int64_t partial_stride(const Problem& p) { return tile_stride(p.value_dim) + 16; }

/// Scores of one row in natural units to base 2, with every option; hidden keys become -inf.
inline void row_options(const Problem& p, const Sequence& s, int64_t b, int64_t i, int64_t head, Span keys,
                        float* scores) {
  const int64_t count = keys.size();
  if (!p.plain_score()) {
    if (p.softcap > 0) {
      // The row holds kDecodeTile scores, a whole number of vectors.
      for (int64_t j = 0; j < count; j += TSR_VL) {
        store(scores + j, splat(p.softcap) * tanh_vector(load(scores + j) / splat(p.softcap)));
      }
    }
    if (p.bias.given()) {
      const View& view = p.bias;
      alignas(64) float bias[kDecodeTile];
      convert_row(view.dtype,
                  element(view, b * view.batch_stride + head * view.head_stride + i * view.row_stride + keys.begin),
                  count, 1.0f, bias);
      for (int64_t j = 0; j < count; j++) scores[j] = add_bias(scores[j], bias[j]);
    }
    if (p.alibi_slopes) {
      const int64_t position = i + s.visibility.offset;
      for (int64_t j = 0; j < count; j++) {
        const int64_t difference = position - (keys.begin + j);
        scores[j] -= p.alibi_slopes[head] * static_cast<float>(difference < 0 ? -difference : difference);
      }
    }
    if (p.mask.given()) {
      const View& view = p.mask;
      const uint8_t* visible =
          element(view, b * view.batch_stride + head * view.head_stride + i * view.row_stride + keys.begin);
      for (int64_t j = 0; j < count; j++) {
        if (visible[j] == 0) scores[j] = -kInf;
      }
    }
    for (int64_t j = 0; j < count; j++) scores[j] *= kLog2e;
  }
  const Span seen = s.visibility.keys(i);
  if (seen.begin > keys.begin || seen.end < keys.end) {
    for (int64_t j = 0; j < count; j++) {
      if (!seen.contains(keys.begin + j)) scores[j] = -kInf;
    }
  }
  for (int64_t j = count; j < kDecodeTile; j++) scores[j] = -kInf;  // the rest of the tile: weight 0, and never read
}

/// Scores to weights; moves maximum and sum on; returns what earlier results are multiplied by.
TSR_SIMD float row_softmax(float* scores, float& maximum, float& sum) {
  vf top = splat(maximum);
  for (int64_t j = 0; j < kDecodeTile; j += TSR_VL) top = max_or_second(load(scores + j), top);
  float next = maximum;
  for (int lane = 0; lane < TSR_VL; lane++) next = top[lane] > next ? top[lane] : next;
  const float base = next == -kInf ? 0 : next;
  vf total = splat(0);
  for (int64_t j = 0; j < kDecodeTile; j += TSR_VL) {
    const vf weight = exp2_nonpositive(load(scores + j) - splat(base));
    store(scores + j, weight);
    total += weight;
  }
  const float rescale = exp2_nonpositive(splat(maximum - base))[0];
  sum = sum * rescale + sum_lanes(total);
  maximum = next;
  return rescale;
}

/// What a work item needs of every tile.
struct DecodeWalk {
  ScoreTile score;
  ValueTile value;
  float factor;  ///< of q.k: scale, k_scale and the step to base 2
};

inline void decode_tile(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span queries, Span keys,
                        const DecodeWalk& walk, const RowPointers (&k)[2], const RowPointers (&v)[2],
                        const DecodeScratch& scratch) {
  const int64_t rows = queries.size() * p.group;
  walk.score(scratch.queries, tile_stride(p.dim), k[0], k[1], p.dim, rows, walk.factor, scratch.scores);
  for (int64_t row = 0; row < rows; row++) {
    float* scores = scratch.scores + row * kDecodeTile;
    row_options(p, s, b, queries.begin + row / p.group, kv_head * p.group + row % p.group, keys, scores);
    for (int64_t j = 0; j < kDecodeTile; j += TSR_VL) {
      const vi none = load(scores + j) == splat(-kInf);
      __builtin_memcpy(scratch.hidden + row * kDecodeTile + j, &none, sizeof none);
    }
    scratch.rescale[row] = row_softmax(scores, scratch.maximum[row], scratch.sum[row]);
  }
  walk.value(scratch.scores, scratch.hidden, v[0], v[1], p.value_dim, rows, scratch.rescale, tile_stride(p.value_dim),
             scratch.out);
}

struct DecodeItem {
  int64_t b, kv_head, tile, split;
};

/// One split of one query tile. With several splits the result goes to `partials`, else straight to the outputs.
inline void decode_item(const Problem& p, const DecodeItem& item, const DecodeTiling& t, const DecodeScratch& scratch,
                        float* partials) {
  const int64_t b = item.b;
  const Sequence s = p.sequence(b);
  const int64_t begin = item.tile * t.queries;
  const auto cut = [&](int64_t rows) { return begin + t.queries < rows ? begin + t.queries : rows; };
  const Span queries{begin, cut(s.query_count)};
  const Span padding{begin > s.query_count ? begin : s.query_count, cut(rows_to_write(p, s))};
  for (int64_t g = 0; item.split == 0 && g < p.group && !padding.empty(); g++) {
    clear_rows(p, s, b, item.kv_head * p.group + g, padding);
  }
  if (queries.empty()) return;

  const int64_t rows = queries.size() * p.group;
  const int64_t value_stride = tile_stride(p.value_dim);
  for (int64_t row = 0; row < rows; row++) {
    float* q = scratch.queries + row * tile_stride(p.dim);
    convert_row(
        p.q.dtype,
        element(p.q, query_offset(p.q, s, b, queries.begin + row / p.group, item.kv_head * p.group + row % p.group)),
        p.dim, 1.0f, q);
    scratch.maximum[row] = -kInf;
    scratch.sum[row] = 0;
    for (int64_t d = 0; d < p.value_dim; d++) scratch.out[row * value_stride + d] = 0;
  }

  const Span visible = s.visibility.keys(queries);
  const Span part{item.split * t.split_keys, (item.split + 1) * t.split_keys};
  const int64_t first = visible.begin > part.begin ? visible.begin : part.begin;
  const int64_t last = visible.end < part.end ? visible.end : part.end;
  const float k_scale = p.k_scale ? p.k_scale[item.kv_head] : 1.0f;
  const DecodeWalk walk{score_tile_for(p.k.dtype), value_tile_for(p.v.dtype), score_factor(p) * k_scale};
  // This tile and the next.
  RowPointers k[2];
  RowPointers v[2];
  const auto look_at = [&](int which, int64_t j) {
    const int64_t end = j + kDecodeTile < last ? j + kDecodeTile : last;
    const Span keys{j, j < end ? end : j};
    point_at(p, p.k, s, b, item.kv_head, keys, k[which]);
    point_at(p, p.v, s, b, item.kv_head, keys, v[which]);
    return keys;
  };
  Span keys = look_at(0, first);
  while (!keys.empty()) {
    if (cancelled(p)) return;
    const Span next = look_at(1, keys.end);
    decode_tile(p, s, b, item.kv_head, queries, keys, walk, k, v, scratch);
    k[0] = k[1];
    v[0] = v[1];
    keys = next;
  }

  const float v_scale = p.v_scale ? p.v_scale[item.kv_head] : 1.0f;
  for (int64_t row = 0; row < rows; row++) {
    float* out = scratch.out + row * value_stride;
    for (int64_t d = 0; p.v_scale && d < p.value_dim; d++) out[d] *= v_scale;
    if (t.splits > 1) {
      float* partial = partials + row * partial_stride(p);
      partial[0] = scratch.maximum[row];
      partial[1] = scratch.sum[row];
      __builtin_memcpy(partial + 16, out, static_cast<size_t>(p.value_dim) * sizeof(float));
    } else {
      finish_row(p, s, b, queries.begin + row / p.group, item.kv_head * p.group + row % p.group, scratch.maximum[row],
                 scratch.sum[row], out);
    }
  }
}

/// Merges a row's splits in order: maximum m = max m_s, sum = sum of 2^(m_s - m) sum_s, out likewise.
inline void merge_splits(const Problem& p, const DecodeItem& item, const DecodeTiling& t, const float* partials,
                         int64_t split_stride, float* out) {
  const Sequence s = p.sequence(item.b);
  const int64_t begin = item.tile * t.queries;
  const Span queries{begin, begin + t.queries < s.query_count ? begin + t.queries : s.query_count};
  for (int64_t row = 0; row < queries.size() * p.group; row++) {
    const float* first = partials + row * partial_stride(p);
    float maximum = -kInf;
    for (int64_t split = 0; split < t.splits; split++) {
      const float top = first[split * split_stride];
      maximum = top > maximum ? top : maximum;
    }
    const float base = maximum == -kInf ? 0 : maximum;
    float sum = 0;
    for (int64_t d = 0; d < p.value_dim; d++) out[d] = 0;
    for (int64_t split = 0; split < t.splits; split++) {
      const float* partial = first + split * split_stride;
      if (partial[1] == 0) continue;  // saw nothing
      const float weight = exp2_nonpositive(splat(partial[0] - base))[0];
      sum += weight * partial[1];
      for (int64_t d = 0; d < p.value_dim; d++) out[d] += weight * partial[16 + d];
    }
    finish_row(p, s, item.b, queries.begin + row / p.group, item.kv_head * p.group + row % p.group, maximum, sum, out);
  }
}

Plan plan_decode(const Problem& p, int threads) {
  const DecodeTiling t = decode_tiling(p);
  const int64_t tiles = p.batch * p.kv_heads * t.tiles;
  const int64_t items = tiles * t.splits;
  Plan plan;
  plan.tile_q = static_cast<int32_t>(t.rows);
  plan.tile_k = static_cast<int32_t>(kDecodeTile);
  plan.splits = static_cast<int32_t>(t.splits);
  plan.threads = static_cast<int32_t>(items < threads ? (items > 0 ? items : 1) : threads);
  if (items > 0) {
    const int64_t partials =
        t.splits > 1 ? items * t.rows * partial_stride(p) * static_cast<int64_t>(sizeof(float)) : 0;
    plan.workspace_bytes = static_cast<uint64_t>(decode_scratch(p, t, nullptr, nullptr) * threads + partials);
  }
  return plan;
}

tsr_status decode(const Problem& p, const Plan&, std::byte* workspace, ThreadPool& pool) {
  const DecodeTiling t = decode_tiling(p);
  const int64_t per_thread = decode_scratch(p, t, nullptr, nullptr);
  auto* partials = reinterpret_cast<float*>(workspace + per_thread * pool.size());
  const int64_t split_stride = t.rows * partial_stride(p);
  const auto item_of = [&](int64_t tile, int64_t split) {
    const int64_t head = tile / t.tiles;
    return DecodeItem{head / p.kv_heads, head % p.kv_heads, tile % t.tiles, split};
  };
  const int64_t tiles = p.batch * p.kv_heads * t.tiles;
  pool.run(tiles * t.splits, [&](int64_t item, int worker) {
    if (cancelled(p)) return;
    DecodeScratch scratch;
    decode_scratch(p, t, workspace + worker * per_thread, &scratch);
    // Heads of one key range follow each other: their rows share pages of memory.
    const int64_t tile = item % tiles;
    const int64_t split = item / tiles;
    decode_item(p, item_of(tile, split), t, scratch, partials + (tile * t.splits + split) * split_stride);
  });
  if (t.splits > 1 && !cancelled(p)) {
    pool.run(tiles, [&](int64_t tile, int worker) {
      DecodeScratch scratch;
      decode_scratch(p, t, workspace + worker * per_thread, &scratch);
      merge_splits(p, item_of(tile, 0), t, partials + tile * t.splits * split_stride, split_stride, scratch.out);
    });
  }
  return cancelled(p) ? TSR_ABORTED : TSR_OK;
}
