// Decode's score product of q8_0 or q4_0 keys and Q rounded to bytes (bytes.inc.h): products of bytes, whole sums of a block,
// fp32 for the scales and across blocks.

/// Elements between an item's rows of queries.
TSR_SIMD int64_t query_stride(const Problem& p) { return byte_groups(p.dim) * kGroupFloats; }

inline void put_query(const Problem& p, const uint8_t* stored, float* row, float* to) {
  convert_row(p.q.dtype, stored, p.dim, 1.0f, row);
  quantise_row(row, p.dim, p.k.dtype == TSR_Q8_0 ? kRaise<TSR_Q8_0> : kRaise<TSR_Q4_0>, to);
}

/// scores[r][key] = scale * Q[r][:] . K[key][:] for R rows and the keys of a tile; what is past its last key is for the
/// caller to overwrite. TSR_VL / R keys at a time, whose TSR_VL sums across lanes are made at once. `Ask`: for the next tile.
template <tsr_dtype T, int R, bool Ask>
TSR_SIMD void dot_rows(const float* queries, int64_t stride, const HeadRows& keys, int64_t dim, float scale,
                       float* scores) {
  constexpr int kKeys = TSR_VL / R;
  constexpr int64_t kBlockBytes = row_bytes(T, 32);
  const int64_t blocks = dim / 32;
  for (int64_t j = 0; j < keys.count(); j += kKeys) {
    vf acc[TSR_VL];  // [r][k]
#pragma GCC unroll 16
    for (int i = 0; i < TSR_VL; i++) acc[i] = splat(0);
    for (int64_t first = 0; first < blocks; first += kBlocks) {
      const float* query = queries + first / kBlocks * kGroupFloats;
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) {
        if constexpr (Ask) {
          const uint8_t* next = keys.next_row(j + k) + first * kBlockBytes;
          for (int64_t at = 0; at < kBlocks * kBlockBytes; at += 64) ask_for(next + at);
        }
        const uint8_t* row = keys.row(j + k < keys.count() ? j + k : keys.count() - 1);
        const uint8_t* block[kBlocks];
#pragma GCC unroll 4
        for (int n = 0; n < kBlocks; n++) {  // past the row's end its last one again: their scale in Q is 0
          block[n] = row + (first + n < blocks ? first + n : blocks - 1) * kBlockBytes;
        }
        const vf scales = block_scales(block);
        vi low, high;
        load_bytes<T>(block, low, high);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
          const float* q = query + r * stride;
          vi sum = bits(load(q + 2 * TSR_VL));
          sum = byte_dot(sum, low, bits(load(q)));
          sum = byte_dot(sum, high, bits(load(q + TSR_VL)));
          vf& to = acc[r * kKeys + k];
          to = fma(__builtin_convertvector(sum, vf), scales * load(q + 3 * TSR_VL), to);
        }
      }
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

using ScoreTile = decltype(&score_tile<TSR_Q8_0>);

TSR_SIMD ScoreTile score_tile_for(tsr_dtype dtype) {
  return dtype == TSR_Q8_0 ? score_tile<TSR_Q8_0> : score_tile<TSR_Q4_0>;
}
