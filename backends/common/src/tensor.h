// A tsr_tensor once its own rules are checked: type, rank, strides, extent. What its shape has to agree with is up to
// the caller.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/common/problem.h"
#include "tessera/common/text.h"

namespace tsr {

struct Tensor {
  const char* name = "";
  bool given = false;
  void* data = nullptr;
  tsr_dtype dtype = TSR_DTYPE_NONE;
  int rank = 0;
  int64_t shape[TSR_MAX_RANK] = {};
  /// Of dimensions with one element or none, 0: their stride means nothing, and must not spoil an alignment either.
  int64_t stride[TSR_MAX_RANK] = {};
  bool empty() const {
    for (int d = 0; d < rank; ++d) {
      if (shape[d] == 0) return true;
    }
    return false;
  }
};

struct TensorRules {
  /// Bits (1 << tsr_dtype) of types that are right.
  uint32_t dtypes;
  /// Bits of types that mean something, but not here: unsupported, where others are invalid.
  uint32_t other_dtypes;
  /// Dimensions in words: "[B,Sq,Hq,D]"; the rank is their number.
  const char* layout;
  bool written;
  bool need_data;
  /// The pointer is to be dereferenced as int32_t or float: naturally aligned.
  bool vector;
};

/// Leaves `tensor->given` false for a NULL pointer if `required` is; otherwise that's an error.
Verdict read_tensor(const tsr_tensor* from, const char* name, const TensorRules& rules, bool required, Tensor* tensor);

/// shape[dim] == value, or a text that says so: "must be 8, the batch of q".
Verdict expect_extent(const Tensor& tensor, int dim, int64_t value, const char* what);
/// shape[dim] is value or 1.
Verdict expect_broadcast(const Tensor& tensor, int dim, int64_t value, const char* what);

std::string shape_text(const Tensor& tensor);

}  // namespace tsr
