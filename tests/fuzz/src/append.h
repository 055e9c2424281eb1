// A random append to a KV cache, by its seed, and whether it was done right: each new row is the given one, turned and
// converted, next to which nothing changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parts.h"

namespace fuzz {

struct Append {
  explicit Append(uint64_t seed);

  uint64_t seed;
  int64_t batch, tokens, kv_heads, heads, dim, value_dim, capacity;
  bool packed = false, advance = false, in_place = false;
  int64_t page_size = 0, pages_per_entry = 0;
  std::vector<int32_t> counts, held, start, pages;

  bool rope = false, interleaved = false;
  int32_t rope_dims = 0;
  float theta = 10000, rope_scale = 0;

  Holder k, v, q, q_out, cache_k, cache_v, table, lengths, new_lens, cu, k_scale, v_scale, positions;

  /// What is only read, and what is written in part.
  std::vector<Tensor*> inputs() const, outputs() const;
  /// What is wrong with the outputs as they are now; empty if nothing is. Rows of q_out that are padding may be anything,
  /// unless `padding` says that they stay.
  std::string judge(bool padding) const;
  std::string text() const;

 private:
  Tensor* written_q() const { return in_place ? q.get() : q_out.get(); }
  int64_t source_row(int64_t b, int64_t t) const { return packed ? start[b] + t : b * tokens + t; }
  int64_t slot_row(int64_t b, int64_t slot) const {
    if (page_size == 0) return b * capacity + slot;
    return pages[b * pages_per_entry + slot / page_size] * page_size + slot % page_size;
  }
  /// Token t of entry b, one head: the numbers that are to be stored, and how far fp32 may be from each.
  void turned(const Tensor& from, int64_t b, int64_t t, int64_t h, int64_t all_heads, bool turn, double scale,
              std::vector<double>* values, std::vector<double>* slack) const;
  std::string judge_tensor(const Tensor& from, const Tensor& to, const Tensor* scales, int64_t all_heads, bool turn,
                           bool cache, bool padding) const;
};

}  // namespace fuzz
