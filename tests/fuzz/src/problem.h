// A random attention problem, by its seed: shapes, types, options, layouts and what the tensors hold.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parts.h"

namespace fuzz {

struct Limits {
  int64_t work;       ///< most multiplications of a problem
  bool exact_poison;  ///< the back end keeps NaN and Inf in V from every query that doesn't see them (CPU)
};

/// A kernel for tensor cores takes few of the problems that are drawn from everything.
enum class Aim {
  kAnything,
  kTensorCores,  ///< 16 bits throughout, aligned rows, head dims of whole tiles
  kLadder        ///< fp16, head dim 128, contiguous keys, no option but causality and scale: CUDA's teaching kernels
};

struct Problem {
  Problem(uint64_t seed, const Limits& limits);

  uint64_t seed;
  Aim aim;
  int64_t batch, queries, keys, heads, kv_heads, dim, value_dim;  ///< queries and keys: of the longest entry
  bool packed_q = false, packed_k = false, paged = false;
  int64_t page_size = 0;
  std::vector<int32_t> query_counts, key_counts, start_q, start_k, pages, offsets;
  int64_t pages_per_entry = 0, page_count = 0;

  bool has_scale = false, causal = false, has_window = false, tell_most = false;
  float scale = 0, softcap = 0;
  tsr_align align = TSR_ALIGN_DEFAULT;
  int64_t window_left = -1, window_right = -1;
  int32_t splits = 0;

  Holder q, k, v, out, lse, bias, mask, alibi, sinks, query_offset, lens_q, lens_k, cu_q, cu_k, table, k_scale, v_scale;

  /// Every tensor that there is: inputs, then outputs.
  std::vector<Tensor*> inputs() const, outputs() const;

  int64_t query_row(int64_t b, int64_t i) const { return packed_q ? start_q[b] + i : b * queries + i; }
  int64_t key_row(int64_t b, int64_t j) const {
    if (paged) return pages[b * pages_per_entry + j / page_size] * page_size + j % page_size;
    return packed_k ? start_k[b] + j : b * keys + j;
  }
  /// Whether query i of entry b can see key j by structure: lengths, causality, window.
  bool sees(int64_t b, int64_t i, int64_t j) const;

  /// What to tell when it goes wrong.
  std::string text() const;

 private:
  void draw_shape(Random& r, const Limits& limits);
  void draw_sequences(Random& r);
  void draw_options(Random& r);
  void make_tensors(Random& r);
  void make_overlays(Random& r);
  void poison(Random& r, bool exact);
  void poison_bias(Random& r);
};

}  // namespace fuzz
