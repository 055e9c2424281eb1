// From memory to fp32 tiles: rows of any dtype, stride, page and packing become compact rows that micro-kernels read.

/// Elements that StoredBlock covers: one vector, or as much of a q8_0 or q4_0 block as makes two.
template <tsr_dtype T>
constexpr int kStep = is_block_format(T) ? (2 * TSR_VL < 32 ? 2 * TSR_VL : 32) : TSR_VL;

/// kStep elements of a stored row from element `at` (a multiple of kStep), read as fp32 vectors.
template <tsr_dtype T>
struct StoredBlock {
  TSR_SIMD StoredBlock(const uint8_t* row, int64_t at) : data(row + row_bytes(T, at)) {}
  TSR_SIMD vf load(int) const {
    if constexpr (T == TSR_F32) return *reinterpret_cast<const vf_unaligned*>(data);
    if constexpr (T == TSR_F16) return load_f16(data);
    if constexpr (T == TSR_BF16) return load_bf16(data);
    if constexpr (T == TSR_F8_E4M3) return load_f8(data);
  }
  const uint8_t* data;
};

template <>
struct StoredBlock<TSR_Q8_0> {
  TSR_SIMD StoredBlock(const uint8_t* row, int64_t at)
      : data(row + at / 32 * 34 + 2 + at % 32), scale(splat(scalar_f16(row + at / 32 * 34))) {}
  TSR_SIMD vf load(int n) const { return scale * __builtin_convertvector(widen_i8(data + n), vf); }
  const uint8_t* data;
  vf scale;
};

#if TSR_VL == 16
template <>
struct StoredBlock<TSR_Q4_0> {
  // A whole block: each nibble looks its value up among the sixteen.
  TSR_SIMD StoredBlock(const uint8_t* row, int64_t at)
      : nibbles(widen_u8(row + at / 32 * 18 + 2)),
        values(splat(scalar_f16(row + at / 32 * 18)) * vf{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}) {}
  TSR_SIMD vf load(int n) const { return look_up(nibbles >> (n / 16 * 4), values); }
  vi nibbles;  ///< 0..15 are the low ones, 16..31 the high ones
  vf values;
};
#else
template <>
struct StoredBlock<TSR_Q4_0> {
  TSR_SIMD StoredBlock(const uint8_t* row, int64_t at)
      : data(row + at / 32 * 18 + 2), within(static_cast<int>(at % 32)), scale(splat(scalar_f16(row + at / 32 * 18))) {}
  TSR_SIMD vf load(int n) const {
    const int element = within + n;  // 0..15 are the low nibbles, 16..31 the high ones
    const vi nibble = (widen_u8(data + element % 16) >> (element / 16 * 4)) & splat_int(15);
    return scale * __builtin_convertvector(nibble - splat_int(8), vf);
  }
  const uint8_t* data;
  int within;
  vf scale;
};
#endif

/// Whole blocks of a row to fp32; `scale` is f8_e4m3's. Says whether any element is NaN or infinite.
template <tsr_dtype T>
TSR_SIMD vi convert_blocks(const uint8_t* source, int64_t whole, float scale, float* row) {
  vi special = vi{};
  const vi exponent = splat_int(0x7f800000);
  for (int64_t i = 0; i < whole; i += kStep<T>) {
    const StoredBlock<T> block(source, i);
    for (int at = 0; at < kStep<T>; at += TSR_VL) {
      vf x = block.load(at);
      if constexpr (T == TSR_F8_E4M3) x *= splat(scale);
      special |= (bits(x) & exponent) == exponent;
      store(row + i + at, x);
    }
  }
  return special;
}

/// Converts `n` contiguous elements of a row (for block formats a multiple of 32) to fp32.
/// Returns true if any is NaN or infinite.
inline bool convert_row(tsr_dtype dtype, const void* source, int64_t n, float scale, float* row) {
  const auto* bytes = static_cast<const uint8_t*>(source);
  const int64_t whole = n - n % TSR_VL;
  vi special = vi{};
  switch (dtype) {
    case TSR_F32:
      special = convert_blocks<TSR_F32>(bytes, whole, scale, row);
      break;
    case TSR_F16:
      special = convert_blocks<TSR_F16>(bytes, whole, scale, row);
      break;
    case TSR_BF16:
      special = convert_blocks<TSR_BF16>(bytes, whole, scale, row);
      break;
    case TSR_F8_E4M3:
      special = convert_blocks<TSR_F8_E4M3>(bytes, whole, scale, row);
      break;
    case TSR_Q8_0:
      special = convert_blocks<TSR_Q8_0>(bytes, whole, scale, row);
      break;
    case TSR_Q4_0:
      special = convert_blocks<TSR_Q4_0>(bytes, whole, scale, row);
      break;
    default:
      break;
  }
  if (whole < n && !is_block_format(dtype)) {
    // The last few elements through a padded copy, so that nothing past the row is read or written.
    const int64_t rest = n - whole;
    alignas(64) uint8_t padded[TSR_VL * 4] = {};
    alignas(64) float out[32];
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
  auto* p = static_cast<uint8_t*>(target);
  const auto put = [&](void* at, vf x) { dtype == TSR_F16 ? store_f16(at, x) : store_bf16(at, x); };
  for (int64_t i = 0; i < whole; i += TSR_VL) put(p + 2 * i, load(row + i));
  if (rest > 0) {
    uint16_t last[TSR_VL];
    put(last, load(padded));
    __builtin_memcpy(p + 2 * whole, last, static_cast<size_t>(rest) * sizeof(uint16_t));
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

TSR_SIMD void prefetch_bytes(const uint8_t* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

/// Rows of one head lie apart, often a page or more, where hardware prefetchers don't follow: asks for the one that will be
/// read kRowsAhead rows later.
constexpr int64_t kRowsAhead = 4;
TSR_SIMD void prefetch_key_row(const Problem& p, const View& view, const Sequence& s, int64_t b, int64_t kv_head,
                               int64_t j, int64_t end, int64_t dim) {
  if (j < end) prefetch_bytes(key_row(p, view, s, b, kv_head, j), row_bytes(view.dtype, dim));
}

/// Keys [keys.begin, keys.end) of one KV head as fp32 rows. Returns true if any element is NaN or infinite.
inline bool load_tile(const Problem& p, const View& view, const Sequence& s, int64_t b, int64_t kv_head, Span keys,
                      int64_t dim, const float* scales, float* tile, int64_t stride) {
  const float scale = scales ? scales[kv_head] : 1.0f;
  bool special = false;
  for (int64_t j = keys.begin; j < keys.end; j++) {
    prefetch_key_row(p, view, s, b, kv_head, j + kRowsAhead, keys.end, dim);
    special |=
        convert_row(view.dtype, key_row(p, view, s, b, kv_head, j), dim, scale, tile + (j - keys.begin) * stride);
  }
  return special;
}

/// Row of query i of batch entry b in q, out or lse.
TSR_SIMD int64_t query_offset(const View& view, const Sequence& s, int64_t b, int64_t i, int64_t head) {
  return b * view.batch_stride + (s.query_row + i) * view.row_stride + head * view.head_stride;
}

TSR_SIMD void write_lse(const Problem& p, const Sequence& s, int64_t b, int64_t i, int64_t head, float lse) {
  if (!p.lse.given()) return;
  __builtin_memcpy(const_cast<uint8_t*>(element(p.lse, query_offset(p.lse, s, b, i, head))), &lse, sizeof lse);
}

/// What every kernel does with a finished row: normalise, add the sink, convert, write out and lse. `sum` is the sum of
/// 2^(score - maximum), scores in base 2; `row` holds the unnormalised output and is overwritten.
inline void finish_row(const Problem& p, const Sequence& s, int64_t b, int64_t i, int64_t head, float maximum,
                       float sum, float* row) {
  double lse = -static_cast<double>(kInf);
  float factor = 0;
  if (sum != 0) {  // also true for NaN, which must reach the output
    if (p.lse.given() || p.sinks) lse = (maximum + __builtin_log2(static_cast<double>(sum))) * kLn2;
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
  write_lse(p, s, b, i, head, static_cast<float>(lse));
}

/// Padded rows at or past a sequence's query count: out = 0, lse = -inf.
inline void clear_rows(const Problem& p, const Sequence& s, int64_t b, int64_t head, Span queries) {
  for (int64_t i = queries.begin; i < queries.end; i++) {
    __builtin_memset(const_cast<uint8_t*>(element(p.out, query_offset(p.out, s, b, i, head))), 0,
                     static_cast<size_t>(row_bytes(p.out.dtype, p.value_dim)));
    write_lse(p, s, b, i, head, -kInf);
  }
}

/// Query 0..n-1 of padded entries are rows of out even past the entry's length; packed ones end with the sequence.
TSR_SIMD int64_t rows_to_write(const Problem& p, const Sequence& s) {
  return p.packed_q ? s.query_count : p.query_rows;
}

TSR_SIMD bool cancelled(const Problem& p) {
  return p.cancel != nullptr && __atomic_load_n(p.cancel, __ATOMIC_RELAXED) != 0;
}
