#include "tensor.h"

#include "tessera/common/catalogue.h"
#include "tessera/common/check.h"

namespace tsr {
namespace {

int layout_rank(const char* layout) {
  int rank = 1;
  for (const char* c = layout; *c; ++c) rank += *c == ',';
  return rank;
}

Verdict check_shape(const Tensor& t) {
  int64_t count = 1;
  bool zero = false;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0) return invalid(t.name, ": shape[", d, "] is ", t.shape[d], ", must be >= 0");
    zero = zero || t.shape[d] == 0;
    if (t.shape[d] > kMaxElements) return invalid(t.name, ": shape ", shape_text(t), " has more than 2^56 elements");
  }
  for (int d = 0; d < t.rank && !zero; ++d) {
    if (__builtin_mul_overflow(count, t.shape[d], &count) || count > kMaxElements) {
      return invalid(t.name, ": shape ", shape_text(t), " has more than 2^56 elements");
    }
  }
  return {};
}

Verdict check_strides(const Tensor& t, bool written) {
  for (int d = 0; d < t.rank; ++d) {
    if (t.stride[d] < 0) return invalid(t.name, ": stride[", d, "] is ", t.stride[d], ", must be >= 0");
  }
  if (t.empty()) return {};
  const int last = t.rank - 1;
  if (t.shape[last] > 1 && t.stride[last] != 1) {
    return invalid(t.name, ": stride[", last, "] is ", t.stride[last], ", must be 1: the last dimension is contiguous");
  }
  for (int d = 0; d < last; ++d) {
    if (t.shape[d] <= 1) continue;
    if (written && t.stride[d] == 0) {
      return invalid(t.name, ": stride[", d, "] is 0 over ", t.shape[d],
                     " elements, must be > 0: a repeated element can't be written");
    }
    if (is_block_format(t.dtype) && t.stride[d] % 32 != 0) {
      return invalid(t.name, ": stride[", d, "] is ", t.stride[d], ", must be a multiple of 32 for ",
                     dtype_name(t.dtype));
    }
  }
  return {};
}

// The view has to lie within `bytes`, and within what an address can say.
Verdict check_extent(const Tensor& t, uint64_t bytes) {
  if (t.empty()) return {};
  int64_t last = 0;  // index of the last element
  for (int d = 0; d < t.rank; ++d) {
    int64_t step;
    if (__builtin_mul_overflow(t.shape[d] - 1, t.stride[d], &step) || __builtin_add_overflow(last, step, &last) ||
        last >= kMaxElements) {
      return invalid(t.name, ": shape ", shape_text(t), " with stride[", d, "] = ", t.stride[d],
                     " reaches past 2^56 elements");
    }
  }
  const auto reach = static_cast<uint64_t>(row_bytes(t.dtype, last + 1));
  if (bytes != 0 && reach > bytes) {
    return invalid(t.name, ": shape ", shape_text(t), " of ", dtype_name(t.dtype), " reaches ", reach,
                   " bytes, but bytes is ", bytes);
  }
  const auto address = reinterpret_cast<uintptr_t>(t.data);
  if (address + reach < address) return invalid(t.name, ": reaches past the end of the address space");
  return {};
}

}  // namespace

std::string shape_text(const Tensor& t) {
  std::string all = "[";
  for (int d = 0; d < t.rank; ++d) all += text(d ? "," : "", t.shape[d]);
  return all + "]";
}

Verdict read_tensor(const tsr_tensor* from, const char* name, const TensorRules& rules, bool required, Tensor* tensor) {
  *tensor = Tensor{};
  tensor->name = name;
  if (from == nullptr) return required ? invalid(name, ": is NULL, must be a tensor ", rules.layout) : Verdict{};

  tsr_tensor t;
  TSR_TRY(read_struct(from, name, &t));
  const bool known = t.dtype > TSR_DTYPE_NONE && t.dtype <= TSR_I32;
  if (!known || !(dtype_bit(t.dtype) & (rules.dtypes | rules.other_dtypes))) {
    return invalid(name, ": dtype is ", dtype_name(t.dtype), " (", t.dtype, "), must be ", dtype_list(rules.dtypes));
  }
  if (!(dtype_bit(t.dtype) & rules.dtypes)) {
    return unsupported(name, ": dtype ", dtype_name(t.dtype), " is not supported here, only ",
                       dtype_list(rules.dtypes));
  }
  const int rank = layout_rank(rules.layout);
  if (t.rank != rank) return invalid(name, ": rank is ", t.rank, ", must be ", rank, ": ", rules.layout);
  if (t.reserved != 0) return unsupported(name, ": reserved is ", t.reserved, ", must be 0");

  tensor->given = true;
  tensor->data = t.data;
  tensor->dtype = t.dtype;
  tensor->rank = rank;
  for (int d = 0; d < rank; ++d) {
    tensor->shape[d] = t.shape[d];
    tensor->stride[d] = t.stride[d];
  }
  TSR_TRY(check_shape(*tensor));
  if (is_block_format(t.dtype) && t.shape[rank - 1] % 32 != 0) {
    return invalid(name, ": shape[", rank - 1, "] is ", t.shape[rank - 1], ", must be a multiple of 32 for ",
                   dtype_name(t.dtype));
  }
  TSR_TRY(check_strides(*tensor, rules.written));
  for (int d = 0; d < rank; ++d) {
    if (tensor->shape[d] <= 1) tensor->stride[d] = 0;
  }
  TSR_TRY(check_extent(*tensor, t.bytes));
  if (t.data == nullptr && rules.need_data && !tensor->empty()) {
    return invalid(name, ": data is NULL, must not be for shape ", shape_text(*tensor));
  }
  if (rules.vector && reinterpret_cast<uintptr_t>(t.data) % 4 != 0) {
    return invalid(name, ": data is not aligned to 4 bytes, must be for ", dtype_name(t.dtype));
  }
  return {};
}

Verdict expect_extent(const Tensor& t, int dim, int64_t value, const char* what) {
  if (t.shape[dim] == value) return {};
  return invalid(t.name, ": shape[", dim, "] is ", t.shape[dim], ", must be ", value, ", ", what, " (shape is ",
                 shape_text(t), ")");
}

Verdict expect_broadcast(const Tensor& t, int dim, int64_t value, const char* what) {
  if (t.shape[dim] == value || t.shape[dim] == 1) return {};
  return invalid(t.name, ": shape[", dim, "] is ", t.shape[dim], ", must be 1 or ", value, ", ", what, " (shape is ",
                 shape_text(t), ")");
}

}  // namespace tsr
