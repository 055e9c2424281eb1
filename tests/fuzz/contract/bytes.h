// What a fuzzer's input is read as: numbers, choices, hostile values. Past its end everything is 0.
#pragma once

#include <cstdint>
#include <cstring>

namespace fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  uint8_t byte() { return empty() ? uint8_t{0} : *at_++; }
  /// In [0, most].
  int64_t upto(int64_t most) { return byte() % (most + 1); }
  bool flag() { return (byte() & 1) != 0; }
  uint64_t word() {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value = value << 8 | byte();
    return value;
  }
  /// A number that somebody got wrong: around 0, around powers of two, or any.
  int64_t hostile() {
    const int kind = byte();
    if (kind < 100) return static_cast<int8_t>(byte());
    if (kind < 220) {
      const int64_t power = static_cast<int64_t>(uint64_t{1} << (byte() % 64));
      return static_cast<int64_t>(static_cast<uint64_t>(power) + static_cast<uint64_t>(upto(2)) - 1);
    }
    return static_cast<int64_t>(word());
  }
  float number() {
    static const float odd[] = {0.0f, -0.0f, 1.0f, -1.0f, 3.4e38f, -3.4e38f, 1e-45f, 0.5f};
    const int kind = byte();
    if (kind < 160) return odd[kind % 8];
    const auto bits = static_cast<uint32_t>(word());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace fuzz
