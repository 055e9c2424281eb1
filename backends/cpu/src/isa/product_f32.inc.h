// Prefill's two products in fp32 multiply-adds. K and V become compact fp32 rows, Q a transposed fp32 panel.

constexpr int kBlock = TSR_BLOCK;

/// Dimensions, or keys, that are summed in one chain: in a longer one, products of one sign (or equal ones) drift past the
/// bound of docs/semantics.md, "Numbers". A multiple of it costs one addition to memory each.
constexpr int64_t kChain = 64;

/// scores[m][row] = scale * sum over d of keys[m][d] * queries[d][row], for M keys, the first V vectors of rows and one chain
/// of dimensions; those after the first add to what the scores are. Scaled here and not in Q: products of short mantissas
/// (fp16 input) stay exact for longer.
template <int M, int V>
TSR_SIMD void score_block(const float* queries, const float* keys, int64_t stride, Span chain, float scale,
                          float* scores) {
  const vf factor = splat(scale);
  vf acc[M][V] = {};
  for (int64_t d = chain.begin; d < chain.end; d++) {
    vf q[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) q[v] = load(queries + d * kPanel + v * TSR_VL);
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
      const vf k = splat(keys[m * stride + d]);
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) acc[m][v] = fma(k, q[v], acc[m][v]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; m++) {
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      float* at = scores + m * kPanel + v * TSR_VL;
      store(at, chain.begin == 0 ? acc[m][v] * factor : fma(acc[m][v], factor, load(at)));
    }
  }
}

/// out[m][row] = out[m][row] * rescale[row] + sum over keys of values[key][m] * weights[key][row], for M dimensions and
/// V vectors of rows.
/// Each chain of keys starts from zero, so rounding grows with the chain and not with the whole sequence.
template <int M, int V>
TSR_SIMD void value_block(const float* weights, const float* values, int64_t stride, int64_t keys, const vf* rescale,
                          float* out) {
  for (int64_t begin = 0; begin < keys; begin += kChain) {
    const int64_t end = begin + kChain < keys ? begin + kChain : keys;
    vf acc[M][V] = {};
    for (int64_t j = begin; j < end; j++) {
      vf w[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) w[v] = load(weights + j * kPanel + v * TSR_VL);
#pragma GCC unroll 16
      for (int m = 0; m < M; m++) {
        const vf x = splat(values[j * stride + m]);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[m][v] = fma(x, w[v], acc[m][v]);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        float* at = out + m * kPanel + v * TSR_VL;
        store(at, begin == 0 ? fma(load(at), rescale[v], acc[m][v]) : load(at) + acc[m][v]);
      }
    }
  }
}

template <int V>
[[gnu::noinline]] void panel_scores(const float* queries, const float* keys, int64_t stride, int64_t dim, int64_t count,
                                    float scale, float* scores) {
  // Chain by chain: a panel's queries may be more than the L1 cache holds, and every block of keys walks through them.
  for (int64_t begin = 0; begin < dim; begin += kChain) {
    const Span chain{begin, begin + kChain < dim ? begin + kChain : dim};
    int64_t j = 0;
    for (; j + kBlock <= count; j += kBlock) {
      score_block<kBlock, V>(queries, keys + j * stride, stride, chain, scale, scores + j * kPanel);
    }
    // One key's sums alone wait for each other.
    for (; j + kBlock / 2 <= count; j += kBlock / 2) {
      score_block<kBlock / 2, V>(queries, keys + j * stride, stride, chain, scale, scores + j * kPanel);
    }
    for (; j < count; j++) score_block<1, V>(queries, keys + j * stride, stride, chain, scale, scores + j * kPanel);
  }
}

template <int V>
[[gnu::noinline]] void panel_values(const float* weights, const float* values, int64_t stride, int64_t keys,
                                    int64_t dim, const vf* rescale, float* out) {
  int64_t d = 0;
  for (; d + kBlock <= dim; d += kBlock) {
    value_block<kBlock, V>(weights, values + d, stride, keys, rescale, out + d * kPanel);
  }
  for (; d + kBlock / 2 <= dim; d += kBlock / 2) {
    value_block<kBlock / 2, V>(weights, values + d, stride, keys, rescale, out + d * kPanel);
  }
  for (; d < dim; d++) value_block<1, V>(weights, values + d, stride, keys, rescale, out + d * kPanel);
}

/// What a thread multiplies with a tile.
struct Operands {
  float* queries;  ///< [panels][padded(dim)][kPanel]
};

TSR_SIMD Operands carve_operands(const Problem& p, int64_t panels, int64_t, Carver& carve) {
  Operands o;
  o.queries = carve.take<float>(panels * padded(p.dim) * kPanel);
  return o;
}

/// Keys and values as the products read them.
struct PackedTile {
  float* keys;    ///< [tile keys][tile_stride(dim)]
  float* values;  ///< [tile keys][tile_stride(value_dim)]
};

TSR_SIMD PackedTile carve_tile(const Problem& p, int64_t tile_keys, Carver& carve) {
  PackedTile tile;
  tile.keys = carve.take<float>(tile_keys * tile_stride(p.dim));
  tile.values = carve.take<float>(tile_keys * tile_stride(p.value_dim));
  return tile;
}

/// TSR_VL stored rows of queries (zeros for a nullptr) become lanes from `lane` on of panel n. `rows` is scratch.
inline void put_queries(const Problem& p, const uint8_t* const* stored, int64_t n, int lane, float* rows,
                        int64_t stride, const Operands& o) {
  const void* from[TSR_VL];
  for (int i = 0; i < TSR_VL; i++) {
    from[i] = stored[i];
    if (stored[i] != nullptr && p.q.dtype == TSR_F32 && p.dim % TSR_VL == 0) continue;  // as they are
    from[i] = rows + i * stride;
    __builtin_memset(rows + i * stride, 0, static_cast<size_t>(padded(p.dim)) * sizeof(float));
    if (stored[i] != nullptr) convert_row(p.q.dtype, stored[i], p.dim, 1.0f, rows + i * stride);
  }
  for (int64_t d = 0; d < p.dim; d += TSR_VL) {
    vf x[TSR_VL];
    for (int i = 0; i < TSR_VL; i++) x[i] = load(static_cast<const uint8_t*>(from[i]) + d * 4);
    transpose(x);
    for (int i = 0; i < TSR_VL; i++) store(o.queries + (n * padded(p.dim) + d + i) * kPanel + lane, x[i]);
  }
}

inline void load_keys(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span keys, Operands&,
                      PackedTile& tile) {
  load_tile(p, p.k, s, b, kv_head, keys, p.dim, p.k_scale, tile.keys, tile_stride(p.dim));
}

/// Returns true if the product must leave hidden keys out.
inline bool load_values(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span keys, Operands&,
                        PackedTile& tile) {
  return load_tile(p, p.v, s, b, kv_head, keys, p.value_dim, p.v_scale, tile.values, tile_stride(p.value_dim));
}

/// Calls body with `vectors` as a constant.
template <int V, class F>
TSR_SIMD void with_vectors(int vectors, F&& body) {
  if constexpr (V < TSR_PANEL_VECTORS) {
    if (vectors != V) {
      with_vectors<V + 1>(vectors, body);
      return;
    }
  }
  body(Constant<V>{});
}

/// scores[key][lane] of panel n and `keys`, the first of which is key `first` of the tile, times score_factor.
inline void product_scores(const Problem& p, const Sequence&, int64_t, int64_t, const Panel& panel, int64_t n,
                           Span keys, int64_t first, const Operands& o, const PackedTile& tile, float* scores) {
  const int64_t stride = tile_stride(p.dim);
  with_vectors<1>(panel.vectors(), [&](auto vectors) {
    panel_scores<vectors>(o.queries + n * padded(p.dim) * kPanel, tile.keys + first * stride, stride, p.dim,
                          keys.size(), score_factor(p), scores);
  });
}

/// out[dim][lane] = out[dim][lane] * rescale[lane] + sum over these keys of weights[key][lane] * V[key][dim].
inline void product_values(const Problem& p, const Panel& panel, int64_t first, int64_t count, const float* weights,
                           const vf* rescale, const Operands&, const PackedTile& tile, float* out) {
  const int64_t stride = tile_stride(p.value_dim);
  with_vectors<1>(panel.vectors(), [&](auto vectors) {
    panel_values<vectors>(weights, tile.values + first * stride, stride, count, p.value_dim, rescale, out);
  });
}

/// Around all products of a work item: nothing to prepare.
struct ProductScope {};
