// The two products of decode, on a tile of kDecodeTile keys, straight from how K and V are stored: dequantised in
// registers, with no copy. Lanes run along the head dimension; up to four rows share each load of K and V.

constexpr int64_t kDecodeTile = 32;

/// Rows of a tile of keys, wherever pages and strides put them.
struct RowPointers {
  const uint8_t* row[kDecodeTile];
  int64_t count;
};

TSR_SIMD void point_at(const Problem& p, const View& view, const Sequence& s, int64_t b, int64_t kv_head, Span keys,
                       RowPointers& rows) {
  rows.count = keys.size();
  for (int64_t j = 0; j < rows.count; j++) rows.row[j] = key_row(p, view, s, b, kv_head, keys.begin + j);
}

/// Asks for the lines of one row of the next tile, so that they are there when its turn comes: rows of one head lie apart,
/// and hardware prefetchers lose such a walk at every row.
TSR_SIMD void prefetch_row(const RowPointers& rows, int64_t j, int64_t bytes) {
  if (j >= rows.count) return;
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(rows.row[j] + at);
}

/// scores[r][key] = scale * Q[r][:] . K[key][:] for R rows and the keys of a tile. Two keys share each load of Q.
template <tsr_dtype T, int R>
TSR_SIMD void dot_rows(const float* queries, int64_t query_stride, const RowPointers& keys, const RowPointers& next,
                       int64_t dim, float scale, float* scores) {
  const int64_t whole = dim - dim % kStep<T>;
  for (int64_t j = 0; j < keys.count; j += 2) {
    const uint8_t* first = keys.row[j];
    const uint8_t* second = keys.row[j + 1 < keys.count ? j + 1 : j];
    prefetch_row(next, j, row_bytes(T, dim));
    prefetch_row(next, j + 1, row_bytes(T, dim));
    vf a[R] = {};
    vf c[R] = {};
    for (int64_t d = 0; d < whole; d += kStep<T>) {
      const StoredBlock<T> x(first, d);
      const StoredBlock<T> y(second, d);
#pragma GCC unroll 8
      for (int n = 0; n < kStep<T>; n += TSR_VL) {
        const vf k = x.load(n);
        const vf l = y.load(n);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
          const vf q = load(queries + r * query_stride + d + n);
          a[r] = fma(q, k, a[r]);
          c[r] = fma(q, l, c[r]);
        }
      }
    }
    float rest[2][32] = {};
    if (whole < dim) {  // a head dim that isn't a multiple of the vector; block formats have none
      convert_row(T, first + row_bytes(T, whole), dim - whole, 1.0f, rest[0]);
      convert_row(T, second + row_bytes(T, whole), dim - whole, 1.0f, rest[1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      float one = sum_lanes(a[r]);
      float two = sum_lanes(c[r]);
      for (int64_t d = whole; d < dim; d++) {
        one += queries[r * query_stride + d] * rest[0][d - whole];
        two += queries[r * query_stride + d] * rest[1][d - whole];
      }
      scores[r * kDecodeTile + j] = one * scale;
      if (j + 1 < keys.count) scores[r * kDecodeTile + j + 1] = two * scale;
    }
  }
}

/// The value product of R rows where something isn't finite: hidden keys are left out one by one, so that 0 * NaN does
/// not happen. Rare, so plain.
[[gnu::noinline]] void add_values_special(tsr_dtype dtype, const float* weights, const int32_t* hidden,
                                          const RowPointers& values, int64_t begin, int64_t count, int rows,
                                          const float* rescale, int64_t stride, float* out) {
  alignas(64) float value[64];
  for (int r = 0; r < rows; r++) {
    for (int64_t d = 0; d < count; d++) out[r * stride + begin + d] *= rescale[r];
  }
  for (int64_t j = 0; j < values.count; j++) {
    convert_row(dtype, values.row[j] + row_bytes(dtype, begin), count, 1.0f, value);
    for (int r = 0; r < rows; r++) {
      if (hidden[r * kDecodeTile + j]) continue;
      for (int64_t d = 0; d < count; d++) out[r * stride + begin + d] += weights[r * kDecodeTile + j] * value[d];
    }
  }
}

/// out[r][:] = out[r][:] * rescale[r] + sum over keys of weights[r][key] * V[key][:], for R rows and a tile.
template <tsr_dtype T, int R>
TSR_SIMD void add_values(const float* weights, const int32_t* hidden, const RowPointers& values,
                         const RowPointers& next, int64_t dim, const float* rescale, int64_t stride, float* out) {
  // Dimensions that stay in registers: 2 R accumulators.
  constexpr int kWide = 2 * TSR_VL;
  const int64_t whole = dim - dim % kWide;
  for (int64_t j = 0; j < values.count; j++) prefetch_row(next, j, row_bytes(T, dim));
  for (int64_t d = 0; d < whole; d += kWide) {
    vf acc[R][kWide / TSR_VL] = {};
    for (int64_t j = 0; j < values.count; j++) {
      vf x[kWide / TSR_VL];
#pragma GCC unroll 8
      for (int step = 0; step < kWide; step += kStep<T>) {
        const StoredBlock<T> block(values.row[j], d + step);
#pragma GCC unroll 8
        for (int n = 0; n < kStep<T>; n += TSR_VL) x[(step + n) / TSR_VL] = block.load(n);
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        const vf w = splat(weights[r * kDecodeTile + j]);
#pragma GCC unroll 8
        for (int n = 0; n < kWide / TSR_VL; n++) acc[r][n] = fma(w, x[n], acc[r][n]);
      }
    }
    vi special = vi{};
    const vi exponent = splat_int(0x7f800000);
    for (int r = 0; r < R; r++) {
      for (int n = 0; n < kWide / TSR_VL; n++) special |= (bits(acc[r][n]) & exponent) == exponent;
    }
    if (any(special)) {
      add_values_special(T, weights, hidden, values, d, kWide, R, rescale, stride, out);
      continue;
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
      for (int n = 0; n < kWide / TSR_VL; n++) {
        float* at = out + r * stride + d + n * TSR_VL;
        store(at, fma(load(at), splat(rescale[r]), acc[r][n]));
      }
    }
  }
  if (whole < dim) {
    add_values_special(T, weights, hidden, values, whole, dim - whole, R, rescale, stride, out);
  }
}

template <tsr_dtype T>
[[gnu::noinline]] void score_tile(const float* queries, int64_t stride, const RowPointers& keys,
                                  const RowPointers& next, int64_t dim, int64_t rows, float scale, float* scores) {
  RowPointers none;
  none.count = 0;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    dot_rows<T, 4>(queries + row * stride, stride, keys, row == 0 ? next : none, dim, scale,
                   scores + row * kDecodeTile);
  }
  for (; row < rows; row++) {
    dot_rows<T, 1>(queries + row * stride, stride, keys, row == 0 ? next : none, dim, scale,
                   scores + row * kDecodeTile);
  }
}

template <tsr_dtype T>
[[gnu::noinline]] void value_tile(const float* weights, const int32_t* hidden, const RowPointers& values,
                                  const RowPointers& next, int64_t dim, int64_t rows, const float* rescale,
                                  int64_t stride, float* out) {
  RowPointers none;
  none.count = 0;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    add_values<T, 4>(weights + row * kDecodeTile, hidden + row * kDecodeTile, values, row == 0 ? next : none, dim,
                     rescale + row, stride, out + row * stride);
  }
  for (; row < rows; row++) {
    add_values<T, 1>(weights + row * kDecodeTile, hidden + row * kDecodeTile, values, row == 0 ? next : none, dim,
                     rescale + row, stride, out + row * stride);
  }
}

using ScoreTile = decltype(&score_tile<TSR_F32>);
using ValueTile = decltype(&value_tile<TSR_F32>);

TSR_SIMD ScoreTile score_tile_for(tsr_dtype dtype) {
  switch (dtype) {
    case TSR_F16:
      return score_tile<TSR_F16>;
    case TSR_BF16:
      return score_tile<TSR_BF16>;
    case TSR_F8_E4M3:
      return score_tile<TSR_F8_E4M3>;
    case TSR_Q8_0:
      return score_tile<TSR_Q8_0>;
    case TSR_Q4_0:
      return score_tile<TSR_Q4_0>;
    default:
      return score_tile<TSR_F32>;
  }
}

TSR_SIMD ValueTile value_tile_for(tsr_dtype dtype) {
  switch (dtype) {
    case TSR_F16:
      return value_tile<TSR_F16>;
    case TSR_BF16:
      return value_tile<TSR_BF16>;
    case TSR_F8_E4M3:
      return value_tile<TSR_F8_E4M3>;
    case TSR_Q8_0:
      return value_tile<TSR_Q8_0>;
    case TSR_Q4_0:
      return value_tile<TSR_Q4_0>;
    default:
      return value_tile<TSR_F32>;
  }
}
