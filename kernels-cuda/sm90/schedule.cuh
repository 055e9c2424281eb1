// The tiles of queries, in the order in which the blocks of the grid take them: a counter in memory hands them out, longest
// first, heads in sections whose keys and values fit into the L2 cache together. What a tile's consumers have to know of it is
// worked out once, by the producer.
#pragma once

#include "../common/attention.h"
#include "../sm80/order.cuh"

namespace tsr::cuda::sm90 {

/// A tile as consumers and producer see it. Positions are keys of its sequence.
struct Tile {
  int32_t batch;
  int32_t head;
  int32_t kv_head;
  int32_t first_query;
  int32_t queries;    ///< of the sequence
  int32_t query_row;  ///< of query 0 in the tensor (packed), else 0
  int32_t key_row;
  int32_t steps;     ///< key tiles; 0: no tile, the block is done. Walked from the last to the first
  int32_t masked;    ///< of them from the last on, which some row sees only part of
  int32_t unmasked;  ///< that follow, seen whole by all rows
  int32_t last_key;  ///< first key of the last key tile
  int32_t low;       ///< query i sees keys from max(0, i + low) ...
  int32_t high;      ///< ... to min(count, i + high)
  int32_t count;
  int32_t clean_from;  ///< values of keys outside [clean_from, clean_to) may be anything, and are made zero
  int32_t clean_to;
  int32_t offset;  ///< query i stands at key i + offset
};

/// Fills in a Tile. All arithmetic that could leave 32 bits is cut to where it makes no difference.
template <int kRows, int kKeys>
__device__ __forceinline__ void make_tile(const Attention& a, const sm80::Place& place, Tile& t) {
  const Sequence s = sequence_of(a, place.batch);
  constexpr int64_t kFar = int64_t{1} << 30;
  const int first_query = place.tile * kRows;
  t.batch = place.batch;
  t.head = place.head;
  t.kv_head = place.head / a.group;
  t.first_query = first_query;
  t.queries = static_cast<int32_t>(s.queries);
  t.query_row = static_cast<int32_t>(s.query_row);
  t.key_row = static_cast<int32_t>(s.key_row);
  const Visibility& v = s.visibility;
  t.low = static_cast<int32_t>(clamped(v.offset - v.left, -kFar, kFar));
  t.high = static_cast<int32_t>(clamped(v.offset + v.right + 1, -kFar, kFar));
  t.count = static_cast<int32_t>(v.key_count);
  t.offset = static_cast<int32_t>(v.offset);
  const Span all = v.keys(Span{0, s.queries});
  t.clean_from = static_cast<int32_t>(all.begin);
  // Behind the memory that copies read there are zeros.
  const int64_t readable = a.paged() ? kFar : a.packed_k ? a.key_rows - s.key_row : a.key_rows;
  t.clean_to = static_cast<int32_t>(all.end < readable ? all.end : kFar);

  const int64_t end = first_query + kRows < s.queries ? first_query + kRows : s.queries;
  const Span queries{first_query, end};
  const Span seen = v.keys(queries);
  // A tile that sees nothing has one step, all masked, and writes zeros.
  const int first = seen.empty() ? 0 : static_cast<int>(seen.begin) / kKeys;
  const int last = seen.empty() ? 0 : static_cast<int>(seen.end - 1) / kKeys;
  const int steps = last - first + 1;
  t.steps = steps;
  t.last_key = last * kKeys;
  // Rows past the sequence's end are masked like any other: such a tile has no step without a mask.
  const Span whole = first_query + kRows <= s.queries ? v.common_keys(queries) : Span{0, 0};
  const int whole_first = static_cast<int>((static_cast<uint32_t>(whole.begin) + kKeys - 1) / kKeys),
            whole_end = static_cast<int>(whole.end) / kKeys;
  const int unmasked = whole_end > whole_first ? whole_end - whole_first : 0;
  t.unmasked = unmasked;
  t.masked = unmasked > 0 ? last + 1 - whole_end : steps;
}

}  // namespace tsr::cuda::sm90
