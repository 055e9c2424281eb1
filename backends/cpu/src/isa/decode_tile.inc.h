// Decode's tile of kDecodeTile keys and its value product, straight from how V is stored: dequantised in registers, with no
// copy. Lanes run along the head dimension; up to four rows share each load of K (decode_scores.inc.h) and of V.

/// Small enough that a token's heads of K and of V, of this tile and of the next, stay in the L2 cache.
constexpr int64_t kDecodeTile = 32;

/// Rows of a tile of keys, wherever pages and strides put them: those of KV head 0, and how far those of `head` are.
struct RowPointers {
  const uint8_t* row[kDecodeTile];
  int64_t count;
};

TSR_SIMD void point_at(const Problem& p, const View& view, const Sequence& s, int64_t b, Span keys, RowPointers& rows) {
  rows.count = keys.size();
  if (!p.paged() && rows.count > 0) {
    const uint8_t* row = key_row(p, view, s, b, 0, keys.begin);
    const int64_t stride = row_bytes(view.dtype, view.row_stride);
    for (int64_t j = 0; j < rows.count; j++) rows.row[j] = row + j * stride;
    return;
  }
  for (int64_t j = 0; j < rows.count; j++) rows.row[j] = key_row(p, view, s, b, 0, keys.begin + j);
}

/// One KV head's rows of this tile and of the next.
struct HeadRows {
  const RowPointers* now;
  const RowPointers* next;
  int64_t offset;  ///< bytes from KV head 0
  TSR_SIMD int64_t count() const { return now->count; }
  TSR_SIMD const uint8_t* row(int64_t j) const { return now->row[j] + offset; }

  /// Row j of the next tile, or where there is none, of this one, which costs nothing to ask for.
  TSR_SIMD const uint8_t* next_row(int64_t j) const { return (j < next->count ? next->row[j] : now->row[0]) + offset; }
};

/// Rows of the next tile are asked for while this one is worked on: those of one head lie apart, and hardware prefetchers lose
/// such a walk at every row. A line at a time: what comes from memory holds a fill buffer for long, and a burst leaves none
/// for what is to be read now. Into the L2 cache, which has room for a tile and more ways to memory than the L1 cache has.
TSR_SIMD void ask_for(const uint8_t* line) { __builtin_prefetch(line, 0, 2); }

/// The value product of up to four rows where something isn't finite: hidden keys are left out one by one, so that 0 * NaN
/// does not happen; and that of dims that fill no vector. Rare, or little, so plain. A tile's sum begins at zero here too: a
/// chain through all tiles rounds equal terms the same way at each step, which 862 of them took past the bound.
[[gnu::noinline]] void add_values_special(tsr_dtype dtype, const float* weights, const int32_t* hidden,
                                          const HeadRows& values, int64_t begin, int64_t count, int rows,
                                          const float* rescale, int64_t stride, float* out) {
  // `begin` may lie within a block, which is converted from its start and as a whole.
  const int64_t skip = is_block_format(dtype) ? begin % 32 : 0;
  const int64_t whole = is_block_format(dtype) ? (skip + count + 31) / 32 * 32 : count;
  constexpr int64_t kMost = 4 * TSR_VL + 32;
  alignas(64) float value[kMost];
  alignas(64) float sums[4][kMost] = {};
  for (int64_t j = 0; j < values.count(); j++) {
    convert_row(dtype, values.row(j) + row_bytes(dtype, begin - skip), whole, 1.0f, value);
    for (int r = 0; r < rows; r++) {
      if (hidden[r * kDecodeTile + j]) continue;
      for (int64_t d = 0; d < count; d++) sums[r][d] += weights[r * kDecodeTile + j] * value[skip + d];
    }
  }
  for (int r = 0; r < rows; r++) {
    float* row = out + r * stride + begin;
    for (int64_t d = 0; d < count; d++) row[d] = row[d] * rescale[r] + sums[r][d];
  }
}

/// Vectors [begin, begin + W) of out[r][:] = out[r][:] * rescale[r] + sum over keys of weights[r][key] * V[key][:], for
/// R rows and a tile: R * W accumulators stay in registers while the keys go by.
template <tsr_dtype T, int R, int W, bool Ask>
TSR_SIMD void add_dims(const float* weights, const int32_t* hidden, const HeadRows& values, int64_t begin,
                       const float* rescale, int64_t stride, float* out) {
  constexpr int kWide = W * TSR_VL;
  constexpr int kPart = kStep<T> < kWide ? kStep<T> : kWide;
  vf acc[R][W] = {};
  for (int64_t j = 0; j < values.count(); j++) {
    if constexpr (Ask) {
      const uint8_t* next = values.next_row(j);
      for (int64_t at = row_bytes(T, begin); at < row_bytes(T, begin + kWide); at += 64) ask_for(next + at);
    }
    vf x[W];
#pragma GCC unroll 8
    for (int part = 0; part < kWide; part += kPart) {
      const StoredBlock<T> block(values.row(j), begin + part);
#pragma GCC unroll 8
      for (int n = 0; n < kPart; n += TSR_VL) x[(part + n) / TSR_VL] = block.load(n);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const vf w = splat(weights[r * kDecodeTile + j]);
#pragma GCC unroll 8
      for (int n = 0; n < W; n++) acc[r][n] = fma(w, x[n], acc[r][n]);
    }
  }
  vi special = vi{};
  const vi exponent = splat_int(0x7f800000);
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (int n = 0; n < W; n++) special |= (bits(acc[r][n]) & exponent) == exponent;
  }
  if (any(special)) {
    add_values_special(T, weights, hidden, values, begin, kWide, R, rescale, stride, out);
    return;
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (int n = 0; n < W; n++) {
      float* at = out + r * stride + begin + n * TSR_VL;
      store(at, fma(load(at), splat(rescale[r]), acc[r][n]));
    }
  }
}

template <tsr_dtype T, int R, bool Ask>
TSR_SIMD void add_values(const float* weights, const int32_t* hidden, const HeadRows& values, int64_t dim,
                         const float* rescale, int64_t stride, float* out) {
  constexpr int kWide = TSR_VL == 16 ? 4 : 2;  // vectors: 4 x 4 accumulators of 32 registers, or 4 x 2 of 16
  int64_t d = 0;
  for (; d + kWide * TSR_VL <= dim; d += kWide * TSR_VL) {
    add_dims<T, R, kWide, Ask>(weights, hidden, values, d, rescale, stride, out);
  }
  if constexpr (kWide > 2) {
    for (; d + 2 * TSR_VL <= dim; d += 2 * TSR_VL) {
      add_dims<T, R, 2, Ask>(weights, hidden, values, d, rescale, stride, out);
    }
  }
  if constexpr (kStep<T> <= TSR_VL) {
    for (; d + TSR_VL <= dim; d += TSR_VL) add_dims<T, R, 1, Ask>(weights, hidden, values, d, rescale, stride, out);
  }
  if (d < dim) add_values_special(T, weights, hidden, values, d, dim - d, R, rescale, stride, out);
}

/// Four rows, then two, then one at a time; the first pass asks for the next tile.
template <class F>
TSR_SIMD void in_rows(int64_t rows, F&& body) {
  int64_t row = 0;
  const auto pass = [&](auto count) {
    if (row == 0) {
      body(count, row, Constant<true>{});
    } else {
      body(count, row, Constant<false>{});
    }
    row += count;
  };
  while (row + 4 <= rows) pass(Constant<4>{});
  if (row + 2 <= rows) pass(Constant<2>{});
  if (row < rows) pass(Constant<1>{});
}

template <tsr_dtype T>
[[gnu::noinline]] void value_tile(const float* weights, const int32_t* hidden, const HeadRows& values, int64_t dim,
                                  int64_t rows, const float* rescale, int64_t stride, float* out) {
  in_rows(rows, [&](auto count, int64_t row, auto ask) {
    add_values<T, count, ask>(weights + row * kDecodeTile, hidden + row * kDecodeTile, values, dim, rescale + row,
                              stride, out + row * stride);
  });
}

using ValueTile = decltype(&value_tile<TSR_Q8_0>);

TSR_SIMD ValueTile value_tile_for(tsr_dtype dtype) {
  switch (dtype) {
#if !defined(TSR_BYTES)
    case TSR_F16:
      return value_tile<TSR_F16>;
    case TSR_BF16:
      return value_tile<TSR_BF16>;
    case TSR_F8_E4M3:
      return value_tile<TSR_F8_E4M3>;
    case TSR_F32:
      return value_tile<TSR_F32>;
#endif
    case TSR_Q4_0:
      return value_tile<TSR_Q4_0>;
    default:
      return value_tile<TSR_Q8_0>;
  }
}
