// From memory to fp32 tiles: rows of any dtype, stride, page and packing become compact rows that micro-kernels read.

/// Converts `n` contiguous elements of a row (for block formats a multiple of 32) to fp32.
/// Returns true if any is NaN or infinite.
inline bool convert_row(tsr_dtype dtype, const void* source, int64_t n, float scale, float* row) {
  vi special = vi{};
  const vi exponent = splat_int(0x7f800000);
  const auto put = [&](float* p, vf x) {
    special |= (bits(x) & exponent) == exponent;
    store(p, x);
  };
  const auto* bytes = static_cast<const uint8_t*>(source);
  const int64_t whole = n - n % TSR_VL;
  switch (dtype) {
    case TSR_F32: {
      const auto* p = static_cast<const float*>(source);
      for (int64_t i = 0; i < whole; i += TSR_VL) put(row + i, load(p + i));
      break;
    }
    case TSR_F16: {
      const auto* p = static_cast<const uint16_t*>(source);
      for (int64_t i = 0; i < whole; i += TSR_VL) put(row + i, load_f16(p + i));
      break;
    }
    case TSR_BF16: {
      const auto* p = static_cast<const uint16_t*>(source);
      for (int64_t i = 0; i < whole; i += TSR_VL) put(row + i, load_bf16(p + i));
      break;
    }
    case TSR_F8_E4M3:
      for (int64_t i = 0; i < whole; i += TSR_VL) put(row + i, load_f8(bytes + i) * splat(scale));
      break;
    case TSR_Q8_0:
      for (int64_t block = 0; block < n / 32; block++, bytes += 34) {
        const vf d = splat(scalar_f16(bytes));
        for (int i = 0; i < 32; i += TSR_VL) {
          vi8 q;
          __builtin_memcpy(&q, bytes + 2 + i, sizeof q);
          put(row + block * 32 + i, d * __builtin_convertvector(q, vf));
        }
      }
      break;
    case TSR_Q4_0:
      for (int64_t block = 0; block < n / 32; block++, bytes += 18) {
        const vf d = splat(scalar_f16(bytes));
        for (int i = 0; i < 16; i += TSR_VL) {
          vu8 q;
          __builtin_memcpy(&q, bytes + 2 + i, sizeof q);
          const vi both = __builtin_convertvector(q, vi);
          put(row + block * 32 + i, d * __builtin_convertvector((both & splat_int(15)) - splat_int(8), vf));
          put(row + block * 32 + 16 + i, d * __builtin_convertvector((both >> 4) - splat_int(8), vf));
        }
      }
      break;
    default:
      break;
  }
  if (whole < n && !is_block_format(dtype)) {
    // The last few elements through a padded copy, so that nothing past the row is read or written.
    const int64_t rest = n - whole;
    alignas(64) uint8_t padded[TSR_VL * 4] = {};
    alignas(64) float out[TSR_VL];
    const int64_t size = row_bytes(dtype, 1);
    __builtin_memcpy(padded, bytes + whole * size, static_cast<size_t>(rest * size));
    special |= splat_int(convert_row(dtype, padded, TSR_VL, scale, out) ? -1 : 0);
    __builtin_memcpy(row + whole, out, static_cast<size_t>(rest) * sizeof(float));
  }
  return any(special);
}

/// Rounds `n` fp32 values to an output row of f32, f16 or bf16.
inline void store_row(tsr_dtype dtype, void* target, int64_t n, const float* row) {
  alignas(64) float padded[TSR_VL] = {};
  const int64_t whole = n - n % TSR_VL;
  const int64_t rest = n - whole;
  if (rest > 0) __builtin_memcpy(padded, row + whole, static_cast<size_t>(rest) * sizeof(float));
  if (dtype == TSR_F32) {
    __builtin_memcpy(target, row, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  auto* p = static_cast<uint16_t*>(target);
  const auto put = [&](uint16_t* at, vf x) { dtype == TSR_F16 ? store_f16(at, x) : store_bf16(at, x); };
  for (int64_t i = 0; i < whole; i += TSR_VL) put(p + i, load(row + i));
  if (rest > 0) {
    uint16_t last[TSR_VL];
    put(last, load(padded));
    __builtin_memcpy(p + whole, last, static_cast<size_t>(rest) * sizeof(uint16_t));
  }
}

/// Address of a row's first element. For block formats the offset is a multiple of 32.
TSR_SIMD const uint8_t* element(const View& view, int64_t offset) {
  return static_cast<const uint8_t*>(view.data) +
         (is_block_format(view.dtype) ? row_bytes(view.dtype, offset) : offset * row_bytes(view.dtype, 1));
}

/// Row of key j of batch entry b: through the page table, or straight.
TSR_SIMD const uint8_t* key_row(const Problem& p, const View& view, const Sequence& s, int64_t b, int64_t kv_head,
                                int64_t j) {
  const int64_t head = kv_head * view.head_stride;
  if (p.paged()) {
    const int64_t page = p.page_table[b * p.page_table_stride + j / p.page_size];
    return element(view, page * view.batch_stride + j % p.page_size * view.row_stride + head);
  }
  return element(view, b * view.batch_stride + (s.key_row + j) * view.row_stride + head);
}

/// Elements between rows of an fp32 tile: at least `dim`, and an odd number of cache lines, so that walking down a
/// column doesn't fall on few cache sets.
TSR_SIMD int64_t tile_stride(int64_t dim) {
  const int64_t lines = (dim + 15) / 16;
  return (lines | 1) * 16;
}

/// Keys [keys.begin, keys.end) of one KV head as fp32 rows. Returns true if any element is NaN or infinite.
inline bool load_tile(const Problem& p, const View& view, const Sequence& s, int64_t b, int64_t kv_head, Span keys,
                      int64_t dim, const float* scales, float* tile, int64_t stride) {
  const float scale = scales ? scales[kv_head] : 1.0f;
  bool special = false;
  for (int64_t j = keys.begin; j < keys.end; j++) {
    special |=
        convert_row(view.dtype, key_row(p, view, s, b, kv_head, j), dim, scale, tile + (j - keys.begin) * stride);
  }
  return special;
}

/// Row of query i of batch entry b in q, out or lse.
TSR_SIMD int64_t query_offset(const View& view, const Sequence& s, int64_t b, int64_t i, int64_t head) {
  return b * view.batch_stride + (s.query_row + i) * view.row_stride + head * view.head_stride;
}

/// What every kernel does with a finished row: normalise, add the sink, convert, write out and lse. `sum` is the sum of
/// 2^(score - maximum), scores in base 2; `row` holds the unnormalised output and is overwritten.
inline void finish_row(const Problem& p, const Sequence& s, int64_t b, int64_t i, int64_t head, float maximum,
                       float sum, float* row) {
  double lse = -static_cast<double>(kInf);
  float factor = 0;
  if (sum != 0) {  // also true for NaN, which must reach the output
    lse = (maximum + __builtin_log2(static_cast<double>(sum))) * kLn2;
    factor = 1.0f / sum;
  }
  if (p.sinks) {
    // The sink joins the denominator: out *= 1 / (1 + e^(sink - lse)), lse = ln(e^lse + e^sink).
    const double sink = p.sinks[head];
    if (lse == -static_cast<double>(kInf)) {
      lse = sink;
    } else {
      const double hi = lse > sink ? lse : sink;
      const double total = hi + __builtin_log(__builtin_exp(lse - hi) + __builtin_exp(sink - hi));
      factor = static_cast<float>(factor * __builtin_exp(lse - total));
      lse = total;
    }
  }
  if (sum == 0) {
    for (int64_t d = 0; d < p.value_dim; d++) row[d] = 0;  // nothing visible, whatever was accumulated
  } else {
    for (int64_t d = 0; d < p.value_dim; d++) row[d] *= factor;
  }
  store_row(p.out.dtype, const_cast<uint8_t*>(element(p.out, query_offset(p.out, s, b, i, head))), p.value_dim, row);
  if (p.lse.given()) static_cast<float*>(p.lse.data)[query_offset(p.lse, s, b, i, head)] = static_cast<float>(lse);
}

/// Padded rows at or past a sequence's query count: out = 0, lse = -inf.
inline void clear_rows(const Problem& p, const Sequence& s, int64_t b, int64_t head, Span queries) {
  for (int64_t i = queries.begin; i < queries.end; i++) {
    __builtin_memset(const_cast<uint8_t*>(element(p.out, query_offset(p.out, s, b, i, head))), 0,
                     static_cast<size_t>(row_bytes(p.out.dtype, p.value_dim)));
    if (p.lse.given()) static_cast<float*>(p.lse.data)[query_offset(p.lse, s, b, i, head)] = -kInf;
  }
}

/// Query 0..n-1 of padded entries are rows of out even past the entry's length; packed ones end with the sequence.
TSR_SIMD int64_t rows_to_write(const Problem& p, const Sequence& s) {
  return p.packed_q ? s.query_count : p.query_rows;
}

TSR_SIMD bool cancelled(const Problem& p) {
  return p.cancel != nullptr && __atomic_load_n(p.cancel, __ATOMIC_RELAXED) != 0;
}
