// A random merge of attention results, by its seed, and the float64 answer to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parts.h"

namespace fuzz {

struct Merge {
  explicit Merge(uint64_t seed);

  uint64_t seed;
  int64_t batch, rows, heads, dim;
  bool packed = false;
  std::vector<Holder> outs, lses;
  Holder out, lse;

  std::vector<Tensor*> inputs() const, outputs() const;
  /// What is wrong with the outputs as they are now; empty if nothing is.
  std::string judge() const;
  std::string text() const;
};

}  // namespace fuzz
