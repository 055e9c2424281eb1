// Decode: few queries against many keys. The key range is cut into splits, a split of some KV heads is a work item, and
// partial results are merged by LSE afterwards. Vector lanes run along the head dimension:
//   s[row][key] = Q[row][:] . K[key][:]       (decode_scores.inc.h, or in bytes: decode_scores_bytes.inc.h)
//   O[row][:]  += p[row][key] * V[key][:]     (decode_tile.inc.h)
// Rows are the query heads of the group x the queries of the item. Splits depend on shapes alone. How many heads an item
// has also depends on the thread count, but no sum crosses heads, so no result does.

constexpr int64_t kSplitKeys = 1024;
constexpr int64_t kMaxSplits = 64;
constexpr int64_t kDecodeRows = 16;
/// Memory for partial results, at most, unless a number of splits is asked for.
constexpr int64_t kPartialBytes = 3 << 20;
/// Rows of all KV heads of an item: their queries and outputs should stay in the L2 cache beside a tile.
constexpr int64_t kItemRows = 64;
/// Items that a thread should find, so that none waits long for the last.
constexpr int64_t kItemsPerThread = 4;

/// A split's partial result: per row the maximum, the sum, and value_dim unnormalised outputs.
TSR_SIMD int64_t partial_stride(const Problem& p) { return tile_stride(p.value_dim) + 16; }

struct DecodeTiling {
  int64_t queries;  ///< of a work item
  int64_t rows;     ///< queries * group
  int64_t tiles;    ///< query tiles
  int64_t splits;
  int64_t split_keys;                                            ///< keys of a split
  int64_t heads;                                                 ///< KV heads of a work item
  int64_t head_items;                                            ///< so many make all KV heads
  int64_t items() const { return tiles * head_items * splits; }  ///< of a batch entry
};

TSR_SIMD DecodeTiling decode_tiling(const Problem& p, int threads) {
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
    // Many sequences need no splits to keep threads busy, and would need much memory for their parts.
    const int64_t part = p.batch * p.kv_heads * t.tiles * t.rows * partial_stride(p) * 4;
    if (part > 0 && t.splits > kPartialBytes / part) t.splits = kPartialBytes / part;
  }
  // A split has at least one tile of keys: more of them than tiles would be empty, and cost memory.
  const int64_t key_tiles = (p.max_keys + kDecodeTile - 1) / kDecodeTile;
  if (t.splits > key_tiles) t.splits = key_tiles;
  if (t.splits < 1) t.splits = 1;
  const int64_t even = (p.max_keys + t.splits - 1) / t.splits;
  t.split_keys = (even + kDecodeTile - 1) / kDecodeTile * kDecodeTile;
  // Where a token's heads lie side by side, an item that takes them together reads memory straight on.
  t.heads = p.k.head_stride < p.k.row_stride && p.v.head_stride < p.v.row_stride ? p.kv_heads : 1;
  if (t.heads < 1) t.heads = 1;
  const auto too_many = [&] {
    const int64_t items = p.batch * t.tiles * t.splits * ((p.kv_heads + t.heads - 1) / t.heads);
    return t.heads * t.rows > kItemRows || (threads > 1 && items < kItemsPerThread * threads);
  };
  while (t.heads > 1 && too_many()) t.heads = (t.heads + 1) / 2;
  t.head_items = (p.kv_heads + t.heads - 1) / t.heads;
  return t;
}

struct DecodeScratch {
  float* queries;   ///< [heads * rows][query_stride]
  float* query;     ///< [tile_stride(dim)]
  float* out;       ///< [heads * rows][tile_stride(value_dim)], without v_scale
  float* maximum;   ///< [heads * rows]
  float* sum;       ///< [heads * rows]
  float* scores;    ///< [rows][kDecodeTile]
  int32_t* hidden;  ///< [rows][kDecodeTile], -1 where a key is hidden
  float* rescale;   ///< [rows]
};

TSR_SIMD int64_t decode_scratch(const Problem& p, const DecodeTiling& t, std::byte* base, DecodeScratch* scratch) {
  Carver carve{base};
  DecodeScratch s{};
  s.queries = carve.take<float>(t.heads * t.rows * query_stride(p));
  s.query = carve.take<float>(tile_stride(p.dim));
  s.out = carve.take<float>(t.heads * t.rows * tile_stride(p.value_dim));
  s.maximum = carve.take<float>(t.heads * t.rows);
  s.sum = carve.take<float>(t.heads * t.rows);
  s.scores = carve.take<float>(t.rows * kDecodeTile);
  s.hidden = carve.take<int32_t>(t.rows * kDecodeTile);
  s.rescale = carve.take<float>(t.rows);
  if (scratch) *scratch = s;
  return carve.used;
}

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
  const float next = max_lanes(top);
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

struct DecodeItem {
  int64_t b, tile, split;
  Span heads;  ///< KV heads
};

/// What a work item needs of every tile.
struct DecodeWalk {
  ScoreTile score;
  ValueTile value;
  float factor;  ///< of q.k: scale and the step to base 2, without k_scale
};

/// One KV head against a tile of keys. `row` is its first row in the scratch.
inline void decode_tile(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span queries, Span keys,
                        const DecodeWalk& walk, const HeadRows& k, const HeadRows& v, const DecodeScratch& scratch,
                        int64_t first) {
  const int64_t rows = queries.size() * p.group;
  const float k_scale = p.k_scale ? p.k_scale[kv_head] : 1.0f;
  walk.score(scratch.queries + first * query_stride(p), query_stride(p), k, p.dim, rows, walk.factor * k_scale,
             scratch.scores);
  for (int64_t row = 0; row < rows; row++) {
    float* scores = scratch.scores + row * kDecodeTile;
    row_options(p, s, b, queries.begin + row / p.group, kv_head * p.group + row % p.group, keys, scores);
    for (int64_t j = 0; j < kDecodeTile; j += TSR_VL) {
      const vi none = load(scores + j) == splat(-kInf);
      __builtin_memcpy(scratch.hidden + row * kDecodeTile + j, &none, sizeof none);
    }
    scratch.rescale[row] = row_softmax(scores, scratch.maximum[first + row], scratch.sum[first + row]);
  }
  walk.value(scratch.scores, scratch.hidden, v, p.value_dim, rows, scratch.rescale, tile_stride(p.value_dim),
             scratch.out + first * tile_stride(p.value_dim));
}

/// Q as the score product reads it, and nothing seen yet.
inline void decode_begin(const Problem& p, const Sequence& s, const DecodeItem& item, Span queries,
                         const DecodeScratch& scratch) {
  const int64_t rows = queries.size() * p.group;
  for (int64_t n = 0; n < item.heads.size() * rows; n++) {
    const int64_t head = (item.heads.begin + n / rows) * p.group + n % rows % p.group;
    put_query(p, element(p.q, query_offset(p.q, s, item.b, queries.begin + n % rows / p.group, head)), scratch.query,
              scratch.queries + n * query_stride(p));
    scratch.maximum[n] = -kInf;
    scratch.sum[n] = 0;
  }
  __builtin_memset(scratch.out, 0,
                   static_cast<size_t>(item.heads.size() * rows * tile_stride(p.value_dim)) * sizeof(float));
}

/// One split of one query tile for some KV heads. With several splits the result goes to `partials` (of the first of
/// these heads; the others' are `head_stride` floats apart), else straight to the outputs.
inline void decode_item(const Problem& p, const DecodeItem& item, const DecodeTiling& t, const DecodeScratch& scratch,
                        float* partials, int64_t head_stride) {
  const int64_t b = item.b;
  const Sequence s = p.sequence(b);
  const int64_t begin = item.tile * t.queries;
  const auto cut = [&](int64_t rows) { return begin + t.queries < rows ? begin + t.queries : rows; };
  const Span queries{begin, cut(s.query_count)};
  const Span padding{begin > s.query_count ? begin : s.query_count, cut(rows_to_write(p, s))};
  if (item.split == 0 && !padding.empty()) {
    for (int64_t h = item.heads.begin * p.group; h < item.heads.end * p.group; h++) clear_rows(p, s, b, h, padding);
  }
  if (queries.empty()) return;
  decode_begin(p, s, item, queries, scratch);

  const int64_t rows = queries.size() * p.group;
  const Span visible = s.visibility.keys(queries);
  const Span part{item.split * t.split_keys, (item.split + 1) * t.split_keys};
  const int64_t first = visible.begin > part.begin ? visible.begin : part.begin;
  const int64_t last = visible.end < part.end ? visible.end : part.end;
  const DecodeWalk walk{score_tile_for(p.k.dtype), value_tile_for(p.v.dtype), score_factor(p)};
  // This tile and the next.
  RowPointers k[2];
  RowPointers v[2];
  const auto look_at = [&](int which, int64_t j) {
    const int64_t end = j + kDecodeTile < last ? j + kDecodeTile : last;
    const Span keys{j, j < end ? end : j};
    point_at(p, p.k, s, b, keys, k[which]);
    point_at(p, p.v, s, b, keys, v[which]);
    return keys;
  };
  Span keys = look_at(0, first);
  for (int now = 0; !keys.empty(); now = 1 - now) {
    if (cancelled(p)) return;
    const Span next = look_at(1 - now, keys.end);
    for (int64_t h = item.heads.begin; h < item.heads.end; h++) {
      const HeadRows head_k{&k[now], &k[1 - now], row_bytes(p.k.dtype, h * p.k.head_stride)};
      const HeadRows head_v{&v[now], &v[1 - now], row_bytes(p.v.dtype, h * p.v.head_stride)};
      decode_tile(p, s, b, h, queries, keys, walk, head_k, head_v, scratch, (h - item.heads.begin) * rows);
    }
    keys = next;
  }

  for (int64_t n = 0; n < item.heads.size() * rows; n++) {
    const int64_t h = item.heads.begin + n / rows;
    const int64_t row = n % rows;
    float* out = scratch.out + n * tile_stride(p.value_dim);
    for (int64_t d = 0; p.v_scale && d < p.value_dim; d++) out[d] *= p.v_scale[h];
    if (t.splits > 1) {
      float* partial = partials + n / rows * head_stride + row * partial_stride(p);
      partial[0] = scratch.maximum[n];
      partial[1] = scratch.sum[n];
      __builtin_memcpy(partial + 16, out, static_cast<size_t>(p.value_dim) * sizeof(float));
    } else {
      finish_row(p, s, b, queries.begin + row / p.group, h * p.group + row % p.group, scratch.maximum[n],
                 scratch.sum[n], out);
    }
  }
}

/// Merges a row's splits in order: maximum m = max m_s, sum = sum of 2^(m_s - m) sum_s, out likewise.
inline void merge_splits(const Problem& p, int64_t b, int64_t kv_head, int64_t tile, const DecodeTiling& t,
                         const float* partials, int64_t split_stride, float* out) {
  const Sequence s = p.sequence(b);
  const int64_t begin = tile * t.queries;
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
    finish_row(p, s, b, queries.begin + row / p.group, kv_head * p.group + row % p.group, maximum, sum, out);
  }
}

Plan plan_decode(const Problem& p, const Machine& machine) {
  const int threads = machine.threads;
  const DecodeTiling t = decode_tiling(p, threads);
  const int64_t items = p.batch * t.items();
  Plan plan;
  plan.tile_q = static_cast<int32_t>(t.rows);
  plan.tile_k = static_cast<int32_t>(kDecodeTile);
  plan.splits = static_cast<int32_t>(t.splits);
  plan.threads = threads_of(p, items, threads);
  if (items > 0) {
    const int64_t parts = t.splits > 1 ? p.batch * p.kv_heads * t.tiles * t.splits * t.rows : 0;
    plan.workspace_bytes = static_cast<uint64_t>(decode_scratch(p, t, nullptr, nullptr) * threads +
                                                 parts * partial_stride(p) * static_cast<int64_t>(sizeof(float)));
  }
  return plan;
}

tsr_status decode(const Problem& p, const Plan&, std::byte* workspace, ThreadPool& pool) {
  const DecodeTiling t = decode_tiling(p, pool.size());
  const int64_t per_thread = decode_scratch(p, t, nullptr, nullptr);
  const auto scratch_of = [&](int worker) {
    DecodeScratch scratch;
    decode_scratch(p, t, workspace + worker * per_thread, &scratch);
    return scratch;
  };
  // Partial results: [batch][tile][kv_head][split][row].
  auto* partials = reinterpret_cast<float*>(workspace + per_thread * pool.size());
  const int64_t split_stride = t.rows * partial_stride(p);
  const int64_t head_stride = t.splits * split_stride;
  const int64_t lists = p.batch * t.tiles * t.head_items;  // of splits
  run_items(p, pool, lists * t.splits, [&](int64_t item, int worker) {
    if (cancelled(p)) return;
    // Items of one key range follow each other: their rows share pages of memory.
    const int64_t split = item / lists;
    const int64_t tile = item % lists / t.head_items;  // of all batch entries
    const int64_t first = item % t.head_items * t.heads;
    const Span heads{first, first + t.heads < p.kv_heads ? first + t.heads : p.kv_heads};
    decode_item(p, {tile / t.tiles, tile % t.tiles, split, heads}, t, scratch_of(worker),
                partials + (tile * p.kv_heads + first) * head_stride + split * split_stride, head_stride);
  });
  if (t.splits == 1 || cancelled(p)) return cancelled(p) ? TSR_ABORTED : TSR_OK;
  run_items(p, pool, p.batch * t.tiles * p.kv_heads, [&](int64_t part, int worker) {
    const int64_t tile = part / p.kv_heads;
    merge_splits(p, tile / t.tiles, part % p.kv_heads, tile % t.tiles, t, partials + part * head_stride, split_stride,
                 scratch_of(worker).out);
  });
  return cancelled(p) ? TSR_ABORTED : TSR_OK;
}
