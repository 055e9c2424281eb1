// Products of bytes of one instruction set. Included by simd.inc.h where a set has TSR_BYTES.

/// Every product of a key's byte and a query's, in every lane and place.
void test_byte_dot() {
  int wrong = 0;
  for (int k = -128; k <= 127; k++) {
    for (int q = -127; q <= 127; q++) {
      alignas(64) int8_t keys[TSR_VL * 4], queries[TSR_VL * 4];
      int32_t expected[TSR_VL];
      for (int i = 0; i < TSR_VL * 4; i++) {  // neighbours are the extremes: what saturates, saturates
        keys[i] = static_cast<int8_t>(i % 2 ? k : q < 0 ? -128 : 127);
        queries[i] = static_cast<int8_t>(i % 2 ? q : q < 0 ? -127 : 127);
        if (i % 4 == 0) expected[i / 4] = 5;
        expected[i / 4] += keys[i] * queries[i];
        if (kRaisedKeys) expected[i / 4] += 128 * queries[i];
      }
      vi a, b;
      std::memcpy(&a, keys, sizeof a);
      std::memcpy(&b, queries, sizeof b);
      if (kRaisedKeys) a ^= splat_int(static_cast<int32_t>(0x80808080u));
      const vi sums = byte_dot(splat_int(5), a, b);
      for (int i = 0; i < TSR_VL; i++) wrong += sums[i] != expected[i];
    }
  }
  check(wrong == 0, "byte_dot: wrong sums", wrong);
}

/// Scores of R rows and a tile's keys against float64 on Q as it is rounded; NaN where a row or a key has one.
template <tsr_dtype T, int R>
void test_byte_scores(int64_t dim, int64_t count) {
  Problem p{};
  p.dim = dim;
  p.q.dtype = TSR_F32;
  p.k.dtype = T;
  std::vector<float> q(static_cast<size_t>(R * dim));
  for (size_t i = 0; i < q.size(); i++) q[i] = std::sin(0.7f * static_cast<float>(i)) * (i % 32 == 3 ? 9.0f : 1.0f);
  for (int64_t i = 0; i < 32; i++) q[static_cast<size_t>(i)] *= 0x1p-122f;  // counts as zeros
  std::vector<uint8_t> bytes(static_cast<size_t>(count * row_bytes(T, dim)) + 64);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<uint8_t>(i * 37 + i / 5);
  const auto block_of = [&](int64_t j, int64_t n) { return bytes.data() + row_bytes(T, j * dim + n * 32); };
  for (int64_t j = 0; j < count; j++) {
    for (int64_t n = 0; n < dim / 32; n++) {
      const uint16_t half = f32_to_f16(j == 2 ? NAN : 0.01f * static_cast<float>(1 + (j + n) % 5));
      std::memcpy(block_of(j, n), &half, 2);
    }
  }
  std::vector<float> queries(static_cast<size_t>(R * query_stride(p)) + 16), row(static_cast<size_t>(dim));
  float* const aligned = queries.data() + (64 - reinterpret_cast<uintptr_t>(queries.data()) % 64) % 64 / 4;
  for (int r = 0; r < R; r++) {
    put_query(p, reinterpret_cast<const uint8_t*>(q.data() + r * dim), row.data(), aligned + r * query_stride(p));
  }
  RowPointers now{}, next{};
  now.count = count;
  for (int64_t j = 0; j < count; j++) now.row[j] = bytes.data() + row_bytes(T, j * dim);
  std::vector<float> scores(4 * kDecodeTile + 16);
  dot_rows<T, R, true>(aligned, query_stride(p), {&now, &next, 0}, dim, 0.5f, scores.data());
  double worst = 0;
  for (int r = 0; r < R; r++) {
    for (int64_t j = 0; j < count; j++) {
      double exact = 0, size = 1e-30;
      for (int64_t n = 0; n < dim / 32; n++) {
        const float* const from = q.data() + r * dim + n * 32;
        float largest = 0;
        for (int i = 0; i < 32; i++) largest = std::fmax(largest, std::fabs(from[i]));
        if (largest < 0x1p-119f) continue;
        uint16_t half;
        std::memcpy(&half, block_of(j, n), 2);
        for (int i = 0; i < 32; i++) {
          const uint8_t byte = block_of(j, n)[2 + (T == TSR_Q8_0 ? i : i % 16)];
          const int k = T == TSR_Q8_0 ? static_cast<int8_t>(byte) : (i < 16 ? byte & 15 : byte >> 4) - 8;
          const float steps = std::nearbyint(from[i] * (127.0f / largest));
          const double product = static_cast<double>(steps) * static_cast<double>(largest / 127.0f) * k *
                                 static_cast<double>(f16_to_f32(half));
          exact += product;
          size += std::fabs(product);
        }
      }
      const double error = std::fabs(static_cast<double>(scores[static_cast<size_t>(r * kDecodeTile + j)]) - exact / 2);
      const bool nan = j == 2;  // 0 * NaN, too
      if (nan && !std::isnan(scores[static_cast<size_t>(r * kDecodeTile + j)])) worst = 1;
      if (!nan && !(error <= worst * size)) worst = error / size;
    }
  }
  check(worst <= 4e-7, "byte scores: error as a share of all products' sizes", worst);
}

template <tsr_dtype T>
void test_byte_rows() {
  for (const int64_t dim : {32, 64, 96, 128, 160, 512}) {
    for (const int64_t count : {3, 7, 32}) {
      test_byte_scores<T, 1>(dim, count);
      test_byte_scores<T, 2>(dim, count);
      test_byte_scores<T, 4>(dim, count);
    }
  }
}

void test_bytes() {
  test_byte_dot();
  test_byte_rows<TSR_Q8_0>();
  test_byte_rows<TSR_Q4_0>();
}
