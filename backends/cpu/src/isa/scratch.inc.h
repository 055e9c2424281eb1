// Small things that both kernel families use.

/// Hands out 64-byte aligned pieces of a block; with base = nullptr it only counts.
struct Carver {
  std::byte* base;
  int64_t used = 0;

  template <class T>
  TSR_SIMD T* take(int64_t count) {
    T* const piece = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return piece;
  }
};

/// Score plus bias: exactly -inf hides the key whatever the score, a finite bias is clamped so that it stays finite in
/// base 2.
TSR_SIMD float add_bias(float score, float bias) {
  if (bias == -kInf) return -kInf;
  if (bias < -TSR_BIAS_LIMIT) bias = -TSR_BIAS_LIMIT;
  if (bias > TSR_BIAS_LIMIT && bias != kInf) bias = TSR_BIAS_LIMIT;
  return score + bias;
}

/// What q.k is multiplied by: into base 2 at once if nothing comes between scale and softmax.
TSR_SIMD float score_factor(const Problem& p) {
  return p.plain_score() ? static_cast<float>(static_cast<double>(p.scale) / kLn2) : p.scale;
}

/// A number that a generic lambda can use as a template's argument.
template <int N>
struct Constant {
  constexpr operator int() const { return N; }
};

/// Multiply-adds of both products for which waking another thread doesn't pay: some 10 us of work.
constexpr double kInlineOperations = 1e6;

TSR_SIMD bool done_inline(const Problem& p) {
  const auto rows = static_cast<double>(p.batch * p.heads * p.max_queries);
  return rows * static_cast<double>(p.max_keys * (p.dim + p.value_dim)) < kInlineOperations;
}

/// Threads that take part in so many items.
TSR_SIMD int32_t threads_of(const Problem& p, int64_t items, int threads) {
  if (items <= 1 || done_inline(p)) return 1;
  return static_cast<int32_t>(items < threads ? items : threads);
}

template <class F>
TSR_SIMD void run_items(const Problem& p, ThreadPool& pool, int64_t items, F&& body) {
  if (!done_inline(p)) {
    pool.run(items, body);
    return;
  }
  for (int64_t item = 0; item < items; item++) body(item, 0);
}
