// Small things that both kernel families use.

/// Hands out 64-byte aligned pieces of a block; with base = nullptr it only counts.
struct Carver {
  std::byte* base;
  int64_t used = 0;

  template <class T>
  TSR_SIMD T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(base + used);
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return base ? piece : nullptr;
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
