#include "tensor.h"

#include <algorithm>
#include <cstring>

namespace fuzz {
namespace {

const char* name_of(tsr_dtype t) {
  static const char* const names[] = {"none", "f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0", "bool", "i32"};
  return names[t];
}

}  // namespace

Tensor::Tensor(std::string name, tsr_dtype dtype, std::vector<int64_t> shape, Layout layout, bool output,
               Random& random)
    : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)), strides_(shape_.size(), 1), output_(output) {
  const size_t rank = shape_.size();
  const int64_t unit = is_block(dtype) ? 32 : 1;
  std::vector<size_t> order(rank);  // of memory, outermost first
  for (size_t i = 0; i < rank; i++) order[i] = i;
  if (layout == Layout::kTransposed && rank >= 3) std::swap(order[rank - 2], order[rank - 3]);
  int64_t step = 1;
  for (size_t i = rank; i-- > 0;) {
    const size_t dimension = order[i];
    strides_[dimension] = step;
    step *= std::max<int64_t>(1, shape_[dimension]);
    if (layout == Layout::kAlignedGaps && i > 0) step += 8 * unit * random.between(0, 2);
    if (layout == Layout::kGaps) step += unit * random.between(0, dimension + 1 == rank ? 7 : 2) * (i ? 1 : 0);
  }
  if (layout == Layout::kRepeated && !output && rank >= 2)
    strides_[static_cast<size_t>(random.between(0, static_cast<int64_t>(rank) - 2))] = 0;

  const bool empty = std::find(shape_.begin(), shape_.end(), 0) != shape_.end();
  int64_t reach = empty ? 0 : 1;
  for (size_t i = 0; !empty && i < rank; i++) reach += (shape_[i] - 1) * strides_[i];
  const int64_t start = layout == Layout::kGaps          ? random.between(0, 15) * unit
                        : layout == Layout::kAlignedGaps ? random.between(0, 3) * 8 * unit
                        : layout == Layout::kTransposed  ? 32
                                                         : 0;
  constexpr uint64_t kAround = 64;
  const bool any_byte = layout == Layout::kGaps && dtype != TSR_I32 && random.one_in(2);
  offset_ = static_cast<int64_t>(kAround) + bytes_of(dtype, start) + (any_byte ? random.between(1, 7) : 0);
  bytes_ = static_cast<uint64_t>(offset_ + bytes_of(dtype, (reach + unit - 1) / unit * unit)) + kAround;
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes_ + 63) / 64 * 64)));
  std::memset(memory_.get(), output ? kCanary : kPoison, bytes_);
}

int64_t Tensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape_.size(); i++) rows *= shape_[i];
  return rows;
}

int64_t Tensor::start_of(int64_t row) const {
  int64_t at = 0;
  for (size_t i = shape_.size() - 1; i-- > 0;) {
    at += row % shape_[i] * strides_[i];
    row /= shape_[i];
  }
  return at;
}

std::string Tensor::text() const {
  std::string text = name_ + " " + name_of(dtype_);
  for (const auto* list : {&shape_, &strides_}) {
    text += list == &shape_ ? " [" : " strides [";
    for (size_t i = 0; i < list->size(); i++) text += (i ? "," : "") + std::to_string((*list)[i]);
    text += "]";
  }
  return text + " +" + std::to_string(offset_ - 64);
}

std::vector<float> Tensor::decoded() const {
  std::vector<float> values(static_cast<size_t>(rows() * width()));
  if (values.empty()) return values;
  for (int64_t r = 0; r < rows(); r++) decode_row(dtype_, row(r), width(), values.data() + r * width());
  return values;
}

tsr_tensor Tensor::described(uint8_t* base) const {
  tsr_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype_;
  t.data = base + offset_;
  t.rank = static_cast<int32_t>(shape_.size());
  for (size_t i = 0; i < shape_.size(); i++) t.shape[i] = shape_[i], t.stride[i] = strides_[i];
  return t;
}

void Tensor::spoil() {
  std::memset(memory_.get(), kCanary, bytes_);
  if (width() == 0) return;
  for (int64_t r = 0; r < rows(); r++) std::memset(row(r), kPoison, static_cast<size_t>(row_bytes()));
}

bool Tensor::intact() const {
  if (!output_) return std::memcmp(memory_.get(), before_.data(), bytes_) == 0;
  std::vector<uint8_t> copy(memory_.get(), memory_.get() + bytes_);
  for (int64_t r = 0; width() > 0 && r < rows(); r++)
    std::memset(copy.data() + (row(r) - memory_.get()), kCanary, static_cast<size_t>(row_bytes()));
  return std::all_of(copy.begin(), copy.end(), [](uint8_t byte) { return byte == kCanary; });
}

bool Tensor::untouched() const {
  for (int64_t r = 0; width() > 0 && r < rows(); r++) {
    const uint8_t* const at = row(r);
    if (!std::all_of(at, at + row_bytes(), [](uint8_t byte) { return byte == kPoison; })) return false;
  }
  return intact();
}

}  // namespace fuzz
