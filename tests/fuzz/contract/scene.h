// Tensors for a call of the contract: first as they should be, then spoilt field by field, and given memory that ends exactly
// where the back end was told it does, so that the address sanitizer sees a byte too far.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "bytes.h"
#include "reach.h"
#include "tessera/tessera.h"

namespace fuzz {

/// A size that a back end may read as far as it says: there is no memory behind our structs. What is larger than the contract
/// allows is to be refused unread.
template <class T>
uint32_t readable_size(int64_t size) {
  const auto given = static_cast<uint32_t>(size);
  return given > sizeof(T) && given <= 1 << 16 ? sizeof(T) : given;
}

class Scene {
 public:
  static constexpr int64_t kMost = 1 << 16;  ///< bytes of a tensor that gets memory

  explicit Scene(Bytes& bytes) : bytes_(bytes) {}

  /// A contiguous tensor; trailing extents of -1 aren't there.
  tsr_tensor* tensor(tsr_dtype dtype, int64_t a, int64_t b = -1, int64_t c = -1, int64_t d = -1) {
    tensors_.emplace_back();
    tsr_tensor& t = tensors_.back();
    t.struct_size = sizeof t;
    t.dtype = dtype;
    for (const int64_t extent : {a, b, c, d}) {
      if (extent >= 0) t.shape[t.rank++] = extent;
    }
    int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; i--) t.stride[i] = stride, stride *= std::max<int64_t>(1, t.shape[i]);
    return &t;
  }

  /// One field of one tensor.
  void spoil() {
    if (tensors_.empty()) return;
    tsr_tensor& t = tensors_[static_cast<size_t>(bytes_.byte()) % tensors_.size()];
    const auto dimension = static_cast<size_t>(bytes_.upto(3));
    switch (bytes_.upto(9)) {
      case 0:
        t.struct_size = static_cast<uint32_t>(bytes_.hostile());
        break;
      case 1:
        t.dtype = static_cast<tsr_dtype>(bytes_.flag() ? bytes_.upto(9) : bytes_.hostile());
        break;
      case 2:
        t.rank = static_cast<int32_t>(bytes_.hostile());
        break;
      case 3:
        t.reserved = static_cast<uint32_t>(bytes_.hostile());
        break;
      case 4:
      case 5:
        t.shape[dimension] = bytes_.flag() ? bytes_.upto(40) : bytes_.hostile();
        break;
      case 6:
        t.stride[dimension] = bytes_.flag() ? 32 * bytes_.upto(8) : bytes_.hostile();
        break;
      case 7:
        t.stride[dimension] = 0;
        break;
      case 8:
        odd_ = 1 + static_cast<uint64_t>(bytes_.upto(6));
        break;
      default:
        short_of_ = static_cast<size_t>(bytes_.byte()) % tensors_.size();
    }
  }

  /// Gives every tensor its memory, filled from the input. Where the view is too large, or its struct doesn't tell of
  /// `bytes`, none: a caller who lies about that is beyond help.
  void place() {
    for (size_t i = 0; i < tensors_.size(); i++) {
      tsr_tensor& t = tensors_[i];
      const int64_t reach = reach_of(&t, kMost);
      const bool tells = t.struct_size >= sizeof t && t.struct_size <= sizeof t + 64;
      t.data = nullptr;
      t.bytes = 0;
      if (tells && (reach < 0 || reach > kMost)) {
        t.bytes = 64, t.data = memory(64, 0);  // to be refused
      } else if (reach > 0 && reach <= kMost) {
        const bool cut = tells && short_of_ == i;
        const auto given = static_cast<uint64_t>(cut ? (reach + 1) / 2 : reach);
        if (tells) t.bytes = given;
        t.data = memory(given, odd_);
      } else if (reach == 0) {
        t.data = memory(1, 0);
      }
      t.struct_size = readable_size<tsr_tensor>(t.struct_size);
    }
  }

  /// Indices that are mostly good: 0 to `most`, else anything.
  void indices(tsr_tensor* t, int64_t most) {
    if (t == nullptr || t->data == nullptr || t->dtype != TSR_I32) return;
    const int64_t count = std::max<int64_t>(0, reach_of(t, kMost)) / 4;
    for (int64_t i = 0; i < count && 4 * (i + 1) <= static_cast<int64_t>(room(t->data)); i++) {
      const int64_t value = bytes_.upto(15) == 15 ? bytes_.hostile() : bytes_.upto(most);
      const auto narrow = static_cast<int32_t>(value);
      std::memcpy(static_cast<uint8_t*>(t->data) + 4 * i, &narrow, 4);
    }
  }

  uint8_t* memory(uint64_t bytes, uint64_t odd) {
    blocks_.emplace_back(new uint8_t[bytes + odd], bytes + odd);
    uint8_t* const at = blocks_.back().first.get();
    const uint8_t pattern = bytes_.byte();
    for (uint64_t i = 0; i < bytes + odd; i++) at[i] = static_cast<uint8_t>(pattern * (i % 7 + 1));
    for (int i = 0; i < 8 && bytes > 0; i++) at[odd + bytes_.word() % bytes] = bytes_.byte();
    return at + odd;
  }

  std::deque<tsr_tensor>& tensors() { return tensors_; }

 private:
  size_t room(const void* data) const {
    for (const auto& [memory, bytes] : blocks_) {
      const auto* const at = static_cast<const uint8_t*>(data);
      if (at >= memory.get() && at < memory.get() + bytes) return static_cast<size_t>(memory.get() + bytes - at);
    }
    return 0;
  }

  Bytes& bytes_;
  std::deque<tsr_tensor> tensors_;
  std::vector<std::pair<std::unique_ptr<uint8_t[]>, uint64_t>> blocks_;
  uint64_t odd_ = 0;  ///< bytes past an aligned address
  size_t short_of_ = SIZE_MAX;
};

}  // namespace fuzz
