// Decode's score product in fp32, straight from how K is stored: dequantised in registers, with no copy.

/// Elements between an item's rows of queries: fp32, zero from `dim` on.
TSR_SIMD int64_t query_stride(const Problem& p) { return tile_stride(p.dim); }

TSR_SIMD void put_query(const Problem& p, const uint8_t* stored, float*, float* to) {
  for (int64_t d = p.dim; d < query_stride(p); d++) to[d] = 0;
  convert_row(p.q.dtype, stored, p.dim, 1.0f, to);
}

/// Steps of kStep elements that a cache line holds.
template <tsr_dtype T>
constexpr int64_t kStepsOfLine = row_bytes(T, 32) * kStep<T> < 64 * 32 ? 64 * 32 / (row_bytes(T, 32) * kStep<T>) : 1;

/// scores[r][key] = scale * Q[r][:] . K[key][:] for R rows and the keys of a tile; what is past its last key is for the
/// caller to overwrite. TSR_VL / R keys at a time, whose TSR_VL sums across lanes are made at once. `Ask`: for the next tile.
template <tsr_dtype T, int R, bool Ask>
TSR_SIMD void dot_rows(const float* queries, int64_t query_stride, const HeadRows& keys, int64_t dim, float scale,
                       float* scores) {
  constexpr int kKeys = TSR_VL / R;
  const int64_t whole = dim - dim % kStep<T>;
  const bool odd = !is_block_format(T) && whole < dim;  // a head dim that isn't a multiple of the vector
  for (int64_t j = 0; j < keys.count(); j += kKeys) {
    const uint8_t* row[kKeys];
    const uint8_t* next[kKeys] = {};
    alignas(64) float rest[kKeys][TSR_VL];
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; k++) {
      row[k] = keys.row(j + k < keys.count() ? j + k : keys.count() - 1);
      if constexpr (Ask) next[k] = keys.next_row(j + k);
    }
    if (odd) {  // before the sums begin: they stay in registers, which a call would not leave them
      for (int k = 0; k < kKeys; k++) {
        __builtin_memset(rest[k], 0, sizeof rest[k]);
        convert_row(T, row[k] + row_bytes(T, whole), dim - whole, 1.0f, rest[k]);
      }
    }
    vf acc[TSR_VL];  // [r][k]
#pragma GCC unroll 16
    for (int i = 0; i < TSR_VL; i++) acc[i] = splat(0);
    const auto add = [&](int64_t at, int k, vf x) {
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        acc[r * kKeys + k] = fma(load(queries + r * query_stride + at), x, acc[r * kKeys + k]);
      }
    };
    for (int64_t d = 0; d < whole; d += kStep<T>) {
      if (Ask && d / kStep<T> % kStepsOfLine<T> == 0) {
#pragma GCC unroll 16
        for (int k = 0; k < kKeys; k++) ask_for(next[k] + row_bytes(T, d));
      }
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) {
        const StoredBlock<T> block(row[k], d);
#pragma GCC unroll 8
        for (int n = 0; n < kStep<T>; n += TSR_VL) add(d + n, k, block.load(n));
      }
    }
    if (odd) {  // rows of queries are zero past `dim`
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) add(whole, k, load(rest[k]));
    }
    alignas(64) float sums[TSR_VL];
    store(sums, sum_each(acc) * splat(scale));
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) __builtin_memcpy(scores + r * kDecodeTile + j, sums + r * kKeys, kKeys * sizeof(float));
  }
}

template <tsr_dtype T>
[[gnu::noinline]] void score_tile(const float* queries, int64_t stride, const HeadRows& keys, int64_t dim, int64_t rows,
                                  float scale, float* scores) {
  in_rows(rows, [&](auto count, int64_t row, auto ask) {
    dot_rows<T, count, ask>(queries + row * stride, stride, keys, dim, scale, scores + row * kDecodeTile);
  });
}

using ScoreTile = decltype(&score_tile<TSR_F32>);

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
