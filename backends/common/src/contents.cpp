#include "contents.h"

namespace tsr {
namespace {

const int32_t* readable(const Tensor& t) { return t.given ? static_cast<const int32_t*>(t.data) : nullptr; }

}  // namespace

Verdict check_lengths(const Tensor& t, int64_t limit, const char* what) {
  const int32_t* const lengths = readable(t);
  if (lengths == nullptr) return {};
  for (int64_t b = 0; b < t.shape[0]; ++b) {
    if (lengths[b] < 0 || lengths[b] > limit) {
      return invalid(t.name, ": [", b, "] is ", lengths[b], ", must be 0 to ", limit, ", ", what);
    }
  }
  return {};
}

Verdict check_starts(const Tensor& t, int64_t total, const char* what, int64_t longest, const char* longest_name) {
  const int32_t* const starts = readable(t);
  if (starts == nullptr) return {};
  const int64_t batch = t.shape[0] - 1;
  if (starts[0] != 0) return invalid(t.name, ": [0] is ", starts[0], ", must be 0");
  for (int64_t b = 0; b < batch; ++b) {
    if (starts[b + 1] < starts[b]) {
      return invalid(t.name, ": [", b + 1, "] is ", starts[b + 1], ", must be at least ", starts[b],
                     ", the start before it");
    }
    const int64_t length = int64_t{starts[b + 1]} - starts[b];
    if (longest > 0 && length > longest) {
      return invalid(longest_name, ": is ", longest, ", but sequence ", b, " of ", t.name, " has ", length, " rows");
    }
  }
  if (starts[batch] != total) {
    return invalid(t.name, ": [", batch, "] is ", starts[batch], ", must be ", total, ", ", what);
  }
  return {};
}

int64_t KeyLengths::at(int64_t b) const {
  const auto* values = static_cast<const int32_t*>(lengths.data);
  return values[b] + (moves() ? append->new_count(b) : 0);
}

Verdict check_key_lengths(const KeyLengths& keys, int64_t capacity) {
  if (!keys.readable()) return {};
  for (int64_t b = 0; b < keys.lengths.shape[0]; ++b) {
    const int64_t length = keys.at(b);
    if (length < 0 || length > capacity) {
      return invalid(keys.lengths.name, ": [", b, "] is ", length, ", must be 0 to ", capacity,
                     ", the keys that k has room for");
    }
  }
  return {};
}

Verdict check_page_range(const Tensor& page_table, int64_t b, int64_t begin, int64_t end, int64_t page_size,
                         int64_t page_count) {
  const int32_t* const pages = readable(page_table);
  if (pages == nullptr || begin >= end) return {};
  const int32_t* const row = pages + b * page_table.stride[0];
  for (int64_t n = begin / page_size; n <= (end - 1) / page_size; ++n) {
    if (row[n] < 0 || row[n] >= page_count) {
      return invalid(page_table.name, ": [", b, ",", n, "] is ", row[n], ", must be 0 to ", page_count - 1,
                     ": there are ", page_count, " pages");
    }
  }
  return {};
}

Verdict check_pages(const KeyLengths& keys, const Tensor& page_table, int64_t page_size, int64_t page_count) {
  if (page_size == 0 || !keys.readable()) return {};
  for (int64_t b = 0; b < keys.lengths.shape[0]; ++b) {
    TSR_TRY(check_page_range(page_table, b, 0, keys.at(b), page_size, page_count));
  }
  return {};
}

}  // namespace tsr
