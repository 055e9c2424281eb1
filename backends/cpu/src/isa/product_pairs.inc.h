// Prefill's two products in dot products of bf16 pairs (pairs.inc.h).
//
//   S^T[key][row] = K[key][pair of dims] . Q^T[pair of dims][row]      K as it is stored
//   O^T[dim][row] = V^T[dim][pair of keys] . P^T[pair of keys][row]    V transposed

using vi16 = int16_t __attribute__((vector_size(TSR_VL * 4)));

/// P is as exact as what it meets: 16 bits wide if all three inputs are at most that.
TSR_SIMD int pieces_of_weights(const Problem& p) {
  if (p.q.dtype == TSR_F32 || p.k.dtype == TSR_F32 || p.v.dtype == TSR_F32) return 3;
  return p.v.dtype == TSR_BF16 ? 1 : 2;
}

/// What a thread multiplies. Hardware takes subnormal operands for 0, and pieces of very small or very large numbers are no
/// exact sum: such numbers are not plain, and are multiplied in fp32.
struct Operands {
  uint32_t* queries;  ///< [panels][pieces][padded(dim) / 2][kPanel]
  uint32_t* weights;  ///< [pieces][tile keys / 2][kPanel]
  float* sums;        ///< [kPad][kPanel]
  uint16_t* rows;     ///< [pieces][2 * TSR_VL][padded(value_dim)]
  float* wide;        ///< [padded(dim or value_dim)]
  uint8_t* plain;     ///< [panels]: 1 where the panel's queries are numbers that pieces hold
  int64_t tile_keys;
};

/// Keys and values as the products read them.
struct PackedTile {
  uint16_t* keys;    ///< [pieces][padded(tile keys) + kPad][left_stride(dim)]
  uint16_t* values;  ///< [pieces][padded(value_dim)][left_stride(tile keys)]
  bool plain_keys;   ///< they are numbers that pieces hold
};

/// Elements between rows of a left factor: an odd number of cache lines.
TSR_SIMD int64_t left_stride(int64_t count) { return ((padded(count) / 32) | 1) * 32; }

TSR_SIMD int64_t key_piece(const Problem& p, int64_t tile_keys) { return (tile_keys + kPad) * left_stride(p.dim); }
TSR_SIMD int64_t value_piece(const Problem& p, int64_t tile_keys) {
  return padded(p.value_dim) * left_stride(tile_keys);
}
TSR_SIMD int64_t query_piece(const Problem& p) { return padded(p.dim) / 2 * kPanel; }

TSR_SIMD Operands carve_operands(const Problem& p, int64_t panels, int64_t tile_keys, Carver& carve) {
  Operands o;
  const int64_t widest = padded(p.dim > p.value_dim ? p.dim : p.value_dim);
  o.queries = carve.take<uint32_t>(panels * pieces_of(p.q.dtype) * query_piece(p));
  o.weights = carve.take<uint32_t>(pieces_of_weights(p) * tile_keys / 2 * kPanel);
  o.sums = carve.take<float>(kPad * kPanel);
  o.rows = carve.take<uint16_t>(kMostPieces * 2 * TSR_VL * widest);
  o.wide = carve.take<float>(widest);
  o.plain = carve.take<uint8_t>(panels);
  o.tile_keys = tile_keys;
  return o;
}

TSR_SIMD PackedTile carve_tile(const Problem& p, int64_t tile_keys, Carver& carve) {
  PackedTile tile;
  tile.keys = carve.take<uint16_t>(pieces_of(p.k.dtype) * key_piece(p, tile_keys));
  tile.values = carve.take<uint16_t>(pieces_of(p.v.dtype) * value_piece(p, tile_keys));
  tile.plain_keys = true;
  return tile;
}

/// Numbers that pieces hold and whose products with a number of the size of 1 keep their last bit: zero, or at least
/// `lowest` and less than `highest` (as bits of fp32 without the sign). -1 in lanes of others.
TSR_SIMD vi outside(vf x, int32_t lowest, int32_t highest) {
  const vi magnitude = bits(x) & splat_int(INT32_MAX);
  return ((magnitude > 0) & (magnitude < lowest)) | (magnitude >= highest);
}

constexpr int32_t exponent_bits(int exponent) { return (exponent + 127) << 23; }

/// Which numbers of Q or K are plain. bf16 is taken as it is, NaN too; only a subnormal isn't.
TSR_SIMD int32_t lowest_factor(int pieces) { return exponent_bits(pieces == 1 ? -126 : -100); }
TSR_SIMD int32_t highest_factor(int pieces) { return pieces == 1 ? INT32_MAX : exponent_bits(127); }
/// And of V: finite, and not so small that its product with a small weight is lost beside a value as small.
constexpr int32_t kLowestValue = exponent_bits(-64);
TSR_SIMD int32_t highest_value(int pieces) { return exponent_bits(pieces == 1 ? 128 : 127); }

/// Cuts `count` (a multiple of TSR_VL) fp32 numbers into pieces; says whether all are plain.
TSR_SIMD bool cut(const float* from, int64_t count, int pieces, int32_t lowest, int32_t highest, uint16_t* to,
                  int64_t piece_stride) {
  vi bad = vi{};
  for (int64_t i = 0; i < count; i += TSR_VL) {
    vf x = load(from + i);
    bad |= outside(x, lowest, highest);
    for (int piece = 0; piece < pieces; piece++) {
      const vf nearest = nearest_bf16(x);
      narrow(to + piece * piece_stride + i, (bits(nearest) >> 16) & splat_int(0xffff));
      x -= nearest;
    }
  }
  return !any(bad);
}

/// A stored row as pieces, zero from `dim` to padded(dim).
inline bool cut_row(const View& view, const uint8_t* row, int64_t dim, float scale, int32_t lowest, int32_t highest,
                    const Operands& o, uint16_t* to, int64_t piece_stride) {
  if (view.dtype == TSR_BF16) {
    __builtin_memcpy(to, row, static_cast<size_t>(dim) * 2);
    __builtin_memset(to + dim, 0, static_cast<size_t>(padded(dim) - dim) * 2);
    const auto low = static_cast<int16_t>(lowest >> 16);
    const auto high = static_cast<int16_t>(highest >> 16);
    vi16 bad = vi16{};
    for (int64_t i = 0; i < padded(dim); i += 2 * TSR_VL) {
      vi16 x;
      __builtin_memcpy(&x, to + i, sizeof x);
      x &= INT16_MAX;
      bad |= ((x > 0) & (x < low)) | (x >= high);
    }
    return !any((vi)bad);
  }
  convert_row(view.dtype, row, dim, scale, o.wide);
  __builtin_memset(o.wide + dim, 0, static_cast<size_t>(padded(dim) - dim) * sizeof(float));
  return cut(o.wide, padded(dim), pieces_of(view.dtype), lowest, highest, to, piece_stride);
}

/// TSR_VL stored rows of queries (zeros for a nullptr) become lanes from `lane` on of panel n.
inline void put_queries(const Problem& p, const uint8_t* const* stored, int64_t n, int lane, float*, int64_t,
                        Operands& o) {
  const int pieces = pieces_of(p.q.dtype);
  const int64_t dim = padded(p.dim);
  bool plain = lane == 0 || o.plain[n] != 0;
  for (int i = 0; i < TSR_VL; i++) {
    if (stored[i] != nullptr) {
      plain &= cut_row(p.q, stored[i], p.dim, 1.0f, lowest_factor(pieces), highest_factor(pieces), o, o.rows + i * dim,
                       TSR_VL * dim);
      continue;
    }
    for (int piece = 0; piece < pieces; piece++) {
      __builtin_memset(o.rows + (piece * TSR_VL + i) * dim, 0, static_cast<size_t>(dim) * 2);
    }
  }
  o.plain[n] = plain ? 1 : 0;
  for (int piece = 0; piece < pieces; piece++) {
    uint32_t* to = o.queries + (n * pieces + piece) * query_piece(p) + lane;
    for (int64_t pair = 0; pair < dim / 2; pair += TSR_VL) {
      vf x[TSR_VL];
      for (int i = 0; i < TSR_VL; i++) x[i] = load_bits(o.rows + (piece * TSR_VL + i) * dim + 2 * pair);
      transpose(x);
      for (int i = 0; i < TSR_VL; i++) store_bits(to + (pair + i) * kPanel, x[i]);
    }
  }
}

inline void load_keys(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span keys, Operands& o,
                      PackedTile& tile) {
  const int pieces = pieces_of(p.k.dtype);
  const float scale = p.k_scale ? p.k_scale[kv_head] : 1.0f;
  tile.plain_keys = true;
  for (int64_t j = 0; j < keys.size(); j++) {
    prefetch_key_row(p, p.k, s, b, kv_head, keys.begin + j + kRowsAhead, keys.end, p.dim);
    tile.plain_keys &=
        cut_row(p.k, key_row(p, p.k, s, b, kv_head, keys.begin + j), p.dim, scale, lowest_factor(pieces),
                highest_factor(pieces), o, tile.keys + j * left_stride(p.dim), key_piece(p, o.tile_keys));
  }
}

/// V transposed; returns true if the product must leave hidden keys out, or can't be made of pieces.
inline bool load_values(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head, Span keys, Operands& o,
                        PackedTile& tile) {
  const int pieces = pieces_of(p.v.dtype);
  const float scale = p.v_scale ? p.v_scale[kv_head] : 1.0f;
  const int64_t dim = padded(p.value_dim);
  const int64_t stride = left_stride(o.tile_keys);
  bool plain = true;
  constexpr int64_t kRows = 2 * TSR_VL;
  for (int64_t j = 0; j < padded(keys.size()); j += kRows) {
    for (int64_t i = 0; i < kRows; i++) {
      if (j + i < keys.size()) {
        prefetch_key_row(p, p.v, s, b, kv_head, keys.begin + j + i + kRowsAhead, keys.end, p.value_dim);
        plain &= cut_row(p.v, key_row(p, p.v, s, b, kv_head, keys.begin + j + i), p.value_dim, scale, kLowestValue,
                         highest_value(pieces), o, o.rows + i * dim, kRows * dim);
      } else {
        for (int piece = 0; piece < pieces; piece++) {
          __builtin_memset(o.rows + (piece * kRows + i) * dim, 0, static_cast<size_t>(dim) * 2);
        }
      }
    }
    for (int piece = 0; piece < pieces; piece++) {
      const uint16_t* from = o.rows + piece * kRows * dim;
      uint16_t* to = tile.values + piece * value_piece(p, o.tile_keys) + j;
      for (int64_t d = 0; d < dim; d += TSR_VL) {
        vf x[TSR_VL];
        for (int i = 0; i < TSR_VL; i++) {
          x[i] = from_bits(widen(from + 2 * i * dim + d) | (widen(from + (2 * i + 1) * dim + d) << 16));
        }
        transpose(x);
        for (int i = 0; i < TSR_VL; i++) store_bits(to + (d + i) * stride, x[i]);
      }
    }
  }
  return !plain;
}

/// Scores where an operand isn't plain, in fp32 from what is stored. Rare, so plain.
[[gnu::noinline]] void scores_special(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head,
                                      const Panel& panel, Span keys, const Operands& o, float* scores) {
  const float factor = score_factor(p);
  alignas(64) float query[512];
  for (int lane = 0; lane < kPanel; lane++) {
    convert_row(p.q.dtype, element(p.q, query_offset(p.q, s, b, panel.query[lane], panel.head[lane])), p.dim, 1.0f,
                query);
    for (int64_t j = 0; j < keys.size(); j++) {
      convert_row(p.k.dtype, key_row(p, p.k, s, b, kv_head, keys.begin + j), p.dim,
                  p.k_scale ? p.k_scale[kv_head] : 1.0f, o.wide);
      float sum = 0;
      for (int64_t d = 0; d < p.dim; d++) sum += query[d] * o.wide[d];
      scores[j * kPanel + lane] = sum * factor;
    }
  }
}

/// scores[key][lane] of panel n and `keys`, the first of which is key `first` of the tile, times score_factor.
[[gnu::noinline]] void product_scores(const Problem& p, const Sequence& s, int64_t b, int64_t kv_head,
                                      const Panel& panel, int64_t n, Span keys, int64_t first, const Operands& o,
                                      const PackedTile& tile, float* scores) {
  if (!tile.plain_keys || !o.plain[n]) {
    scores_special(p, s, b, kv_head, panel, keys, o, scores);
    return;
  }
  const int q_pieces = pieces_of(p.q.dtype);
  const Factors f{tile.keys + first * left_stride(p.dim),
                  left_stride(p.dim),
                  key_piece(p, o.tile_keys),
                  pieces_of(p.k.dtype),
                  o.queries + n * q_pieces * query_piece(p),
                  query_piece(p),
                  q_pieces};
  const vf factor = splat(score_factor(p));
  for (int64_t j = 0; j < keys.size(); j += kPad) {
    multiply_block(f, j, padded(p.dim) / 2, o.sums);
    const int64_t rows = keys.size() - j < kPad ? keys.size() - j : kPad;
    for (int64_t at = 0; at < rows * kPanel; at += TSR_VL) {
      store(scores + j * kPanel + at, load(o.sums + at) * factor);
    }
  }
}

/// P as pieces of pairs, for keys [begin, end) of the tile; those outside [first, first + count) weigh nothing.
TSR_SIMD void put_weights(const float* weights, int64_t first, int64_t count, int64_t begin, int64_t end, int pieces,
                          int64_t piece_stride, uint32_t* to) {
  const auto of = [&](int64_t j, int v) {
    return j < first || j >= first + count ? splat(0) : load(weights + (j - first) * kPanel + v * TSR_VL);
  };
  for (int64_t j = begin; j < end; j += 2) {
    for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
      vf low = of(j, v);
      vf high = of(j + 1, v);
      for (int piece = 0; piece < pieces; piece++) {
        const vi pairs = to_pairs(low, high);
        store_bits(to + piece * piece_stride + j / 2 * kPanel + v * TSR_VL, from_bits(pairs));
        low -= low_of(pairs);
        high -= high_of(pairs);
      }
    }
  }
}

/// out[dim][lane] = out[dim][lane] * rescale[lane] + sum over these keys of weights[key][lane] * V[key][dim].
[[gnu::noinline]] void product_values(const Problem& p, const Panel&, int64_t first, int64_t count,
                                      const float* weights, const vf* rescale, const Operands& o,
                                      const PackedTile& tile, float* out) {
  const int64_t begin = first / kPad * kPad;
  const int64_t end = padded(first + count);
  const int64_t weight_piece = o.tile_keys / 2 * kPanel;
  const int pieces = pieces_of_weights(p);
  put_weights(weights, first, count, begin, end, pieces, weight_piece, o.weights);
  const Factors f{tile.values + begin,
                  left_stride(o.tile_keys),
                  value_piece(p, o.tile_keys),
                  pieces_of(p.v.dtype),
                  o.weights + begin / 2 * kPanel,
                  weight_piece,
                  pieces};
  for (int64_t d = 0; d < padded(p.value_dim); d += kPad) {
    multiply_block(f, d, (end - begin) / 2, o.sums);
    for (int64_t at = 0; at < kPad; at++) {
      for (int v = 0; v < TSR_PANEL_VECTORS; v++) {
        float* to = out + (d + at) * kPanel + v * TSR_VL;
        store(to, fma(load(to), rescale[v], load(o.sums + at * kPanel + v * TSR_VL)));
      }
    }
  }
}
