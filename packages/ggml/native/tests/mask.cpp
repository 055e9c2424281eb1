// shape_of() against cells: no visible cell is ever outside a shape, an exact one hides nothing else, and the masks that
// runtimes make are exact.
#include "mask.h"

#include <cstdio>
#include <random>
#include <vector>

using namespace tsr::ggml;

namespace {

constexpr uint16_t kHidden = 0xfc00, kZero = 0, kMinusZero = 0x8000, kOne = 0x3c00, kNan = 0x7e00;
int failed = 0, passed = 0;

struct Mask {
  int64_t heads, queries, keys;
  std::vector<uint16_t> cells;
  Mask(int64_t h, int64_t q, int64_t k)
      : heads(h), queries(q), keys(k), cells(static_cast<size_t>(h * q * k), kHidden) {}
  uint16_t& at(int64_t h, int64_t i, int64_t j) { return cells[static_cast<size_t>((h * queries + i) * keys + j)]; }
  MaskShape shape() const {
    return shape_of(
        {cells.data(), heads, queries, keys, static_cast<size_t>(queries * keys) * 2, static_cast<size_t>(keys) * 2});
  }
};

/** want: 1 exact, 0 not, -1 whatever is true. */
void check(const char* name, Mask& mask, int want) {
  const MaskShape shape = mask.shape();
  bool covers = true, same = true;
  for (int64_t h = 0; h < mask.heads; h++) {
    for (int64_t i = 0; i < mask.queries; i++) {
      const KeyRange range = visible(shape, i);
      for (int64_t j = 0; j < mask.keys; j++) {
        const bool inside = j >= range.first && j <= range.last;
        const uint16_t cell = mask.at(h, i, j);
        if (cell != kHidden && !inside) covers = false;
        if (inside != (cell == kZero || cell == kMinusZero) || (inside && cell == kHidden)) same = false;
      }
    }
  }
  // Exact may be denied where it is true only if nobody asked for it; it must never be claimed where it is false.
  const bool good = covers && (!shape.exact || same) && (want < 0 || shape.exact == (want == 1));
  good ? passed++ : failed++;
  if (!good) {
    std::printf("%s: covers %d, exact %d, is %d: offset %lld, left %lld, keys %lld\n", name, covers, shape.exact, same,
                static_cast<long long>(shape.offset), static_cast<long long>(shape.left),
                static_cast<long long>(shape.keys));
  }
}

/** Queries at `past`, past + 1, …, in a cache of `keys` cells; a window of `window` keys if that isn't 0. */
Mask causal(int64_t queries, int64_t past, int64_t keys, int64_t window = 0) {
  Mask mask(1, queries, keys);
  for (int64_t i = 0; i < queries; i++) {
    for (int64_t j = 0; j < keys; j++) {
      if (j <= i + past && (window == 0 || j > i + past - window)) mask.at(0, i, j) = (i + j) % 3 ? kZero : kMinusZero;
    }
  }
  return mask;
}

}  // namespace

int main() {
  for (int64_t queries : {1, 2, 7, 64}) {
    for (int64_t past : {0, 1, 5, 100, 199}) {
      for (int64_t window : {0, 1, 3, 64}) {
        Mask mask = causal(queries, past, 263 + past % 7, window);
        check("a runtime's mask", mask, 1);
        Mask hole = mask;
        hole.at(0, queries - 1, past + queries - 1) = kOne;
        check("one cell that isn't zero", hole, 0);
        if (queries > 1 && window == 0 && past > 1) {
          hole = mask;
          hole.at(0, queries / 2, 1) = kHidden;
          check("a hole", hole, 0);
          hole = mask;
          hole.at(0, 0, past + 2) = kZero;
          check("one cell beyond the diagonal", hole, queries == 2 ? -1 : 0);
        }
      }
    }
  }
  Mask rectangle(1, 5, 40);
  for (int64_t i = 0; i < 5; i++) {
    for (int64_t j = 0; j < 33; j++) rectangle.at(0, i, j) = kZero;
  }
  check("all queries see the same keys", rectangle, 1);
  Mask none(2, 3, 9);
  check("nobody sees anything", none, 1);
  Mask heads(2, 4, 8);
  for (int64_t i = 0; i < 4; i++) {
    for (int64_t j = 0; j <= i + 4; j++) heads.at(0, i, j) = heads.at(1, i, j) = kZero;
  }
  check("heads alike", heads, 1);
  heads.at(1, 0, 4) = kHidden;
  check("heads that differ", heads, 0);
  Mask nan = causal(3, 2, 8);
  nan.at(0, 1, 1) = kNan;
  check("a NaN is no zero", nan, 0);
  Mask empty(1, 0, 8);
  check("no query", empty, 1);

  std::mt19937 random(7);
  const uint16_t values[] = {kHidden, kHidden, kZero, kZero, kMinusZero, kOne};
  for (int round = 0; round < 20000; round++) {
    Mask mask(1 + random() % 2, 1 + random() % 4, 1 + random() % 9);
    const int kinds = 1 + static_cast<int>(random() % 6);
    const uint32_t sparse = random() % 4;
    for (uint16_t& cell : mask.cells) {
      if (random() % 4 >= sparse) cell = values[random() % static_cast<uint32_t>(kinds)];
    }
    check("random", mask, -1);
  }
  std::printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":0}\n", passed, failed);
  return failed > 0;
}
