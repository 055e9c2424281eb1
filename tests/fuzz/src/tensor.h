// A tensor of a fuzzed problem and the memory it lies in: gaps between input rows hold NaN, gaps between output rows a
// canary; both are looked at again after each call.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "numbers.h"
#include "random.h"

namespace fuzz {

constexpr uint8_t kCanary = 0xa5;
constexpr uint8_t kPoison = 0xff;  ///< NaN in every float type, -1 as an index

enum class Layout {
  kContiguous,
  kTransposed,   ///< [B,S,H,D] in the order of memory [B,H,S,D]
  kGaps,         ///< an odd number of elements behind each row and each slice, from an odd start, which may be any byte
  kAlignedGaps,  ///< gaps and a start of whole 16 bytes
  kRepeated      ///< stride 0 along one dimension
};

class Tensor {
 public:
  Tensor(std::string name, tsr_dtype dtype, std::vector<int64_t> shape, Layout layout, bool output, Random& random);

  const std::string& name() const { return name_; }
  tsr_dtype dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t width() const { return shape_.back(); }
  int64_t rows() const;
  /// Leading dimensions along which all slices are one.
  bool repeats(size_t dimension) const { return strides_[dimension] == 0 && shape_[dimension] > 1; }
  std::string text() const;

  /// Bytes of row `row` (its number in row-major order of the leading dimensions), in host memory.
  uint8_t* row(int64_t row) { return memory_.get() + place(row); }
  const uint8_t* row(int64_t row) const { return memory_.get() + place(row); }
  int64_t row_bytes() const { return bytes_of(dtype_, width()); }

  /// The whole tensor, contiguous, as numbers.
  std::vector<float> decoded() const;

  /// As the contract wants it, at `base`: where the memory's first byte is for the device.
  tsr_tensor described(uint8_t* base) const;
  uint8_t* memory() { return memory_.get(); }
  const uint8_t* memory() const { return memory_.get(); }
  uint64_t bytes() const { return bytes_; }

  /// Outputs: every element NaN, every other byte a canary.
  void spoil();
  /// Remembers the bytes: an input's for `intact`, those of what a call writes in part.
  void remember() { before_.assign(memory_.get(), memory_.get() + bytes_); }
  /// That row as it was then, and all of it.
  const uint8_t* row_before(int64_t row) const { return before_.data() + place(row); }
  const std::vector<uint8_t>& before() const { return before_; }
  /// Byte of the memory at which a row begins.
  int64_t place(int64_t row) const { return offset_ + bytes_of(dtype_, start_of(row)); }
  /// An input as it was; an output whose bytes between rows are as they were.
  bool intact() const;
  /// An output that nobody wrote to.
  bool untouched() const;

 private:
  int64_t start_of(int64_t row) const;

  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::string name_;
  tsr_dtype dtype_;
  std::vector<int64_t> shape_, strides_;
  int64_t offset_ = 0;  ///< bytes before element 0
  uint64_t bytes_ = 0;
  bool output_;
  std::unique_ptr<uint8_t, Free> memory_;
  std::vector<uint8_t> before_;
};

}  // namespace fuzz
