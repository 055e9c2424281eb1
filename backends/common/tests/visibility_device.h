// What the visibility header must answer, checked by the compiler at hand. Included by a host test and by
// kernels-*/common/visibility_check.*, which prove the same for device compilers.
#pragma once

#include "tessera/common/visibility.h"

namespace tsr::check {

// Sq 2, Sk 5, causal, bottom-right: the rows see 4 and 5 keys.
constexpr Visibility kCausal = make_visibility(5, 3, true, -1, -1);
static_assert(kCausal.keys(0).size() == 4 && kCausal.keys(1).size() == 5, "causal, bottom-right");
static_assert(kCausal.tile(Span{0, 2}, Span{0, 4}) == Tile::kFull, "left of the diagonal");
static_assert(kCausal.tile(Span{0, 2}, Span{4, 5}) == Tile::kPartial, "on the diagonal");

// Sq 5, Sk 2: the first three rows see nothing.
constexpr Visibility kMoreQueries = make_visibility(2, -3, true, -1, -1);
static_assert(kMoreQueries.keys(2).empty() && kMoreQueries.keys(3).size() == 1, "rows before the first key");
static_assert(kMoreQueries.tile(Span{0, 3}, Span{0, 2}) == Tile::kSkipped, "rows before the first key");

// A window of two keys, self included.
constexpr Visibility kWindow = make_visibility(8, 0, true, 1, 0);
static_assert(kWindow.keys(5).begin == 4 && kWindow.keys(5).end == 6, "window");
static_assert(kWindow.queries(5, 8).begin == 5 && kWindow.queries(5, 8).end == 7, "the transpose");
static_assert(kWindow.common_keys(Span{4, 6}).size() == 1, "keys that both rows see");

/// Every function with arguments that no compiler knows, so that each is also compiled to machine code.
TSR_HOST_DEVICE inline void exercise(Visibility visibility, Span queries, Span tile_keys, int64_t j, int64_t* out) {
  out[0] = visibility.keys(queries.begin).size();
  out[1] = visibility.keys(queries).size();
  out[2] = visibility.common_keys(queries).size();
  out[3] = static_cast<int64_t>(visibility.tile(queries, tile_keys));
  out[4] = visibility.queries(j, queries.end).size();
  out[5] = make_visibility(j, 0, true, j, -1).keys(queries.begin).contains(j) ? 1 : 0;
}

}  // namespace tsr::check
