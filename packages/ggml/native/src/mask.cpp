#include "mask.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tsr::ggml {

namespace {

constexpr uint16_t kHidden = 0xfc00;  // -inf in fp16

uint64_t four(const uint16_t* cells) {
  uint64_t bits;
  std::memcpy(&bits, cells, sizeof bits);
  return bits;
}

MaskRow read_row(const uint16_t* cells, int64_t count) {
  constexpr uint64_t hidden = kHidden * 0x0001000100010001ull;
  int64_t first = 0, last = count - 1;
  while (last >= 3 && four(cells + last - 3) == hidden) last -= 4;
  while (last >= 0 && cells[last] == kHidden) last--;
  if (last < 0) return {0, -1, true};
  while (first + 4 <= last && four(cells + first) == hidden) first += 4;
  while (cells[first] == kHidden) first++;
  unsigned bits = 0;  // of all cells but their signs: -0 is a zero, too
  for (int64_t j = first; j <= last; j++) bits |= cells[j];
  return {first, last, (bits & 0x7fffu) == 0};
}

const uint16_t* row(const MaskView& mask, int64_t head, int64_t query) {
  const auto* base = static_cast<const char*>(mask.data);
  return reinterpret_cast<const uint16_t*>(base + static_cast<size_t>(head) * mask.head_stride +
                                           static_cast<size_t>(query) * mask.query_stride);
}

}  // namespace

KeyRange visible(const MaskShape& shape, int64_t query) {
  const int64_t at = query + shape.offset;
  return {shape.left < 0 ? 0 : std::max<int64_t>(0, at - shape.left), std::min(shape.keys - 1, at)};
}

MaskShape shape_of(const MaskRow* rows, int64_t heads, int64_t queries) {
  bool any = false, zeros = true;
  int64_t offset = 0, keys = 0, left = 0, seen = 0;
  // The rightmost diagonal first: what lies left of it is measured from there.
  for (int64_t h = 0; h < heads; h++) {
    for (int64_t i = 0; i < queries; i++) {
      const MaskRow& row = rows[h * queries + i];
      if (row.first > row.last) continue;
      zeros = zeros && row.zeros;
      seen += row.last - row.first + 1;
      keys = std::max(keys, row.last + 1);
      // left + offset is the largest i + offset - first + offset, less offset; both maxima are of what a row alone says.
      const int64_t diagonal = row.last - i, reach = i - row.first;
      offset = any ? std::max(offset, diagonal) : diagonal;
      left = any ? std::max(left, reach) : reach;
      any = true;
    }
  }
  if (!any) return {0, -1, 0, true};
  MaskShape shape = {offset, left + offset, keys, false};
  // Query 0 already sees from key 0 on, and so does every later one.
  if (queries - 1 + offset - shape.left <= 0) shape.left = -1;
  if (zeros) {
    int64_t inside = 0;
    for (int64_t i = 0; i < queries; i++) {
      const KeyRange range = visible(shape, i);
      inside += std::max<int64_t>(0, range.last - range.first + 1);
    }
    shape.exact = inside * heads == seen;  // what is visible lies inside, so equal numbers are equal sets
  }
  return shape;
}

MaskShape shape_of(const MaskView& mask) {
  std::vector<MaskRow> rows;
  rows.reserve(static_cast<size_t>(mask.heads * mask.queries));
  for (int64_t h = 0; h < mask.heads; h++) {
    for (int64_t i = 0; i < mask.queries; i++) rows.push_back(read_row(row(mask, h, i), mask.keys));
  }
  return shape_of(rows.data(), mask.heads, mask.queries);
}

}  // namespace tsr::ggml
