// visibility.h against the definition of docs/semantics.md, tried on every small case.
#include <vector>

#include "count.h"
#include "tessera/common/visibility.h"
#include "visibility_device.h"

namespace {

using tsr::Span;
using tsr::Tile;

// The definition, with no cleverness.
bool visible(int64_t i, int64_t j, int64_t keys, int64_t offset, bool causal, int64_t left, int64_t right) {
  if (j < 0 || j >= keys) return false;
  if (causal && j > i + offset) return false;
  if (left >= 0 && j < i + offset - left) return false;
  return right < 0 || j <= i + offset + right;
}

struct Structure {
  int64_t queries, keys, offset;
  bool causal;
  int64_t left, right;
};

void check_rows(const Structure& s, const tsr::Visibility& v) {
  bool rows = true, columns = true;
  for (int64_t i = 0; i < s.queries; ++i) {
    int64_t seen = 0;
    for (int64_t j = -1; j <= s.keys; ++j) {
      const bool expected = visible(i, j, s.keys, s.offset, s.causal, s.left, s.right);
      seen += expected;
      rows = rows && v.keys(i).contains(j) == expected;
      columns = columns && v.queries(j, s.queries).contains(i) == expected;
    }
    rows = rows && v.keys(i).size() == seen && v.keys(i).empty() == (seen == 0);
  }
  CHECK(rows);
  CHECK(columns);
}

// Ranges may only be exact or, for what a range touches, too wide where no single query sees: never too narrow. A tile
// said to be full has to be.
void check_ranges(const Structure& s, const tsr::Visibility& v) {
  bool touched = true, common = true, tiles = true;
  for (int64_t a = 0; a <= s.queries; ++a) {
    for (int64_t b = a; b <= s.queries; ++b) {
      int64_t first = s.keys, last = -1;
      std::vector<int> count(static_cast<size_t>(s.keys));
      for (int64_t i = a; i < b; ++i) {
        for (int64_t j = 0; j < s.keys; ++j) {
          if (!visible(i, j, s.keys, s.offset, s.causal, s.left, s.right)) continue;
          count[static_cast<size_t>(j)]++;
          first = j < first ? j : first;
          last = j > last ? j : last;
        }
      }
      const Span queries{a, b};
      const Span some = v.keys(queries), all = v.common_keys(queries);
      if (last >= 0) touched = touched && some.begin <= first && some.end > last;
      for (int64_t j = 0; j < s.keys && a < b; ++j)
        common = common && all.contains(j) == (count[static_cast<size_t>(j)] == b - a);
      if (a == b) touched = touched && some.empty() && all.empty();

      for (int64_t c = 0; c < s.keys; ++c) {
        for (int64_t e = c + 1; e <= s.keys && a < b; ++e) {
          int64_t hits = 0;
          for (int64_t j = c; j < e; ++j) hits += count[static_cast<size_t>(j)];
          const Tile tile = v.tile(queries, Span{c, e});
          const bool full = hits == (b - a) * (e - c);
          tiles = tiles && (tile == Tile::kFull) == full && (hits == 0 || tile != Tile::kSkipped);
        }
      }
    }
  }
  CHECK(touched);
  CHECK(common);
  CHECK(tiles);
}

}  // namespace

int main() {
  for (int64_t queries = 0; queries <= 5; ++queries) {
    for (int64_t keys = 0; keys <= 6; ++keys) {
      for (int64_t offset = -7; offset <= 7; ++offset) {
        for (int64_t left = -1; left <= 4; ++left) {
          for (int64_t right = -1; right <= 4; ++right) {
            for (const bool causal : {false, true}) {
              const tsr::Visibility v = tsr::make_visibility(keys, offset, causal, left, right);
              const Structure s{queries, keys, offset, causal, left, right};
              check_rows(s, v);
              check_ranges(s, v);
            }
          }
        }
      }
    }
  }
  // The largest numbers that the checks let through don't wrap.
  constexpr int64_t kMost = int64_t{1} << 39;
  const tsr::Visibility top_left = tsr::make_visibility(kMost, 0, false, -1, -1);
  CHECK(top_left.keys(kMost - 1).size() == kMost);
  const tsr::Visibility bottom_right = tsr::make_visibility(kMost, -kMost, false, INT64_MAX, INT64_MAX);
  CHECK(bottom_right.keys(int64_t{0}).size() == kMost);
  CHECK(tsr::make_visibility(kMost, kMost, true, -1, -1).keys(kMost - 1).size() == kMost);
  CHECK(tsr::make_visibility(4, INT32_MIN, true, -1, -1).keys(int64_t{7}).empty());
  return tsr::check::finish();
}
