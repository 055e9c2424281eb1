// Checks of what index tensors hold. Each does nothing for a tensor that isn't given or has no data.
#pragma once

#include "tensor.h"
#include "tessera/common/check.h"

namespace tsr {

/// Every value of an I32 [B] in [0, limit].
Verdict check_lengths(const Tensor& lengths, int64_t limit, const char* what);

/// Starts of packed sequences: from 0, never falling, to `total`; none longer than `longest` (0: not told).
Verdict check_starts(const Tensor& starts, int64_t total, const char* what, int64_t longest, const char* longest_name);

/// seq_lens_k as an attention will find it: after `append`, if that moves the very array.
struct KeyLengths {
  const Tensor& lengths;
  const AppendProblem* append;
  bool moves() const { return append != nullptr && append->advance && append->lengths == lengths.data; }
  bool readable() const { return lengths.given && lengths.data && (!moves() || append->counts_readable); }
  int64_t at(int64_t b) const;
};
Verdict check_key_lengths(const KeyLengths& keys, int64_t capacity);

/// Pages that hold the keys [0, length) of each sequence are in [0, page_count).
Verdict check_pages(const KeyLengths& keys, const Tensor& page_table, int64_t page_size, int64_t page_count);

/// Pages of row b that hold the slots [begin, end).
Verdict check_page_range(const Tensor& page_table, int64_t b, int64_t begin, int64_t end, int64_t page_size,
                         int64_t page_count);

}  // namespace tsr
