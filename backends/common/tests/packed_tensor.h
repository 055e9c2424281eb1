// A tensor of the contract for tests: its last dimension adjoins, and each dimension the one behind it.
#pragma once

#include <initializer_list>

#include "tessera/tessera.h"

inline tsr_tensor tensor(tsr_dtype dtype, void* data, std::initializer_list<int64_t> shape) {
  tsr_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.data = data;
  t.rank = static_cast<int32_t>(shape.size());
  int64_t stride = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    t.shape[d] = shape.begin()[d];
    t.stride[d] = stride;
    stride *= t.shape[d];
  }
  return t;
}
