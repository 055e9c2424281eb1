// A seeded generator (splitmix64): the same problems on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// An integer in [least, most].
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(bits() % static_cast<uint64_t>(most - least + 1));
  }
  /// True once in `n` times.
  bool one_in(int n) { return bits() % static_cast<uint64_t>(n) == 0; }
  /// An integer in [0, most], small ones as often as large ones: 0, then each octave alike.
  int64_t log_uniform(int64_t most) {
    return static_cast<int64_t>(std::exp2(uniform() * std::log2(static_cast<double>(most) + 2))) - 1;
  }
  /// Bell-shaped, of variance 1, within about +-3.5.
  double normal() { return (uniform() + uniform() + uniform() + uniform() - 2) * 1.7320508075688772; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return *std::next(choices.begin(), between(0, static_cast<int64_t>(choices.size()) - 1));
  }

 private:
  uint64_t state_;
};

}  // namespace fuzz
