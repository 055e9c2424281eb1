// What the tensors of a fuzzed problem hold.
#pragma once

#include "tensor.h"

namespace fuzz {

enum class Values {
  kNormal,
  kSharp,      ///< times 3
  kLarge,      ///< times 30
  kSmall,      ///< times 2^-17: subnormal in f16
  kSubnormal,  ///< the type's own
  kExtreme,    ///< 0, -0, the smallest, +-65504 or the type's largest, and ordinary numbers
  kZero,
  kEqualRows,  ///< all scores are equal
  kOneHuge     ///< one row is 100 times the others: one score decides
};

struct Fill {
  Values q, k, v;
};
Fill draw_fill(Random& r);

void fill(Tensor& t, Values values, Random& r);
/// NaN, an infinity of either sign or any bits in a row, or in its elements [begin, end).
void poison_row(Tensor& t, int64_t row, Random& r);
void poison_elements(Tensor& t, int64_t row, int64_t begin, int64_t end, Random& r);
void fill_bias(Tensor& t, Random& r);
void fill_mask(Tensor& t, Random& r);

}  // namespace fuzz
