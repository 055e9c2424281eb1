// What random calls are made of: layouts, tensors with given contents, sizes that many kernels are made for.
#pragma once

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tensor.h"

namespace fuzz {

using Holder = std::unique_ptr<Tensor>;

inline Layout draw_layout(Random& r) {
  return r.of(
      {Layout::kContiguous, Layout::kContiguous, Layout::kTransposed, Layout::kGaps, Layout::kGaps, Layout::kRepeated});
}

/// Those in which rows begin at multiples of 16 bytes, if they are that long.
inline Layout draw_aligned_layout(Random& r) {
  return r.of({Layout::kContiguous, Layout::kContiguous, Layout::kTransposed, Layout::kTransposed, Layout::kAlignedGaps,
               Layout::kAlignedGaps, Layout::kRepeated});
}

inline Holder make(const char* name, tsr_dtype dtype, std::vector<int64_t> shape, Random& r,
                   Layout layout = Layout::kContiguous) {
  return std::make_unique<Tensor>(name, dtype, std::move(shape), layout, false, r);
}

inline Holder list(const char* name, const std::vector<int32_t>& values, Random& r) {
  auto t = make(name, TSR_I32, {static_cast<int64_t>(values.size())}, r);
  std::memcpy(t->row(0), values.data(), values.size() * 4);
  return t;
}

template <class Value>
Holder floats(const char* name, int64_t count, Random& r, Value value) {
  auto t = make(name, TSR_F32, {count}, r);
  for (int64_t i = 0; i < count; i++) {
    const auto x = static_cast<float>(value());
    std::memcpy(t->row(0) + 4 * i, &x, 4);
  }
  return t;
}

inline int64_t draw_head_dim(Random& r) {
  if (r.one_in(3)) return 1 + r.log_uniform(511);
  return r.one_in(2) ? 8 * r.between(1, 32) : r.of<int64_t>({32, 64, 64, 80, 96, 128, 128, 192, 256});
}

/// Whole blocks, where the type has them.
inline int64_t fitting(tsr_dtype t, int64_t dim) {
  return is_block(t) ? std::min<int64_t>(512, (dim + 31) / 32 * 32) : dim;
}

/// Starts of packed sequences of these lengths, and their end.
inline std::vector<int32_t> starts_of(const std::vector<int32_t>& counts) {
  std::vector<int32_t> all{0};
  for (int32_t n : counts) all.push_back(all.back() + n);
  return all;
}

/// 0 to count - 1 in any order.
inline std::vector<int32_t> shuffled(int64_t count, Random& r) {
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  for (size_t i = all.size(); i-- > 1;)
    std::swap(all[i], all[static_cast<size_t>(r.between(0, static_cast<int64_t>(i)))]);
  return all;
}

}  // namespace fuzz
