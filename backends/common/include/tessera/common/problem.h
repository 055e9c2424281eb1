// A checked attention, in one form: what kernels are written against. check.h makes one from a tsr_attention_desc, so
// a kernel never sees a padded/packed/paged distinction beyond `Sequence` and `key_row`, nor a default left open.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/common/visibility.h"
#include "tessera/tessera.h"

namespace tsr {

/// Strided view with named dimensions, in elements. Packed tensors have batch stride 0: the row says it all.
struct View {
  void* data = nullptr;
  tsr_dtype dtype = TSR_DTYPE_NONE;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;   ///< query or key position (for pages: slot in the page)
  int64_t head_stride = 0;  ///< for bias, mask and lse too
  TSR_HOST_DEVICE bool given() const { return dtype != TSR_DTYPE_NONE; }
};

/// One batch entry, wherever its rows live.
struct Sequence {
  int64_t query_count = 0;
  int64_t query_row = 0;  ///< row of query 0 in a packed q (0 if padded)
  int64_t key_row = 0;    ///< row of key 0 in a packed k (0 if padded or paged)
  Visibility visibility{};
};

struct Problem {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t group = 0;  ///< heads / kv_heads
  int64_t dim = 0;
  int64_t value_dim = 0;
  int64_t query_rows = 0;   ///< rows of q's row dimension: Sq padded, T packed
  int64_t key_rows = 0;     ///< rows of k's row dimension: Sk, T; paged: page_size
  int64_t max_queries = 0;  ///< upper bound of any sequence's query count, from shapes alone
  int64_t max_keys = 0;     ///< upper bound of any sequence's key count, from shapes alone (capacity)

  View q, k, v, out;
  /// lse: row stride is the query's, batch stride 0 when packed.
  View lse;
  /// bias, mask: row_stride is the query's; a broadcast batch or head has stride 0.
  View bias, mask;

  float scale = 0;
  float softcap = 0;
  bool causal = false;
  bool top_left = false;
  int64_t window_left = -1;
  int64_t window_right = -1;

  const float* alibi_slopes = nullptr;  ///< [heads]
  const float* sinks = nullptr;         ///< [heads]
  const float* k_scale = nullptr;       ///< [kv_heads]
  const float* v_scale = nullptr;
  const int32_t* seq_lens_q = nullptr;  ///< [batch]
  const int32_t* seq_lens_k = nullptr;
  const int32_t* cu_seqlens_q = nullptr;  ///< [batch + 1]
  const int32_t* cu_seqlens_k = nullptr;
  const int32_t* query_offset = nullptr;  ///< [batch]

  const int32_t* page_table = nullptr;  ///< [batch, page_table_stride]
  int64_t page_table_stride = 0;
  int64_t page_size = 0;  ///< 0 = not paged
  int64_t page_count = 0;

  const char* kernel = nullptr;  ///< forced variant
  int32_t num_splits = 0;        ///< forced, 0 = free
  const volatile int32_t* cancel = nullptr;

  bool packed_q = false;
  bool packed_k = false;

  TSR_HOST_DEVICE bool paged() const { return page_size > 0; }
  /// True if the score is scale * q.k and nothing else, so that tiles without a boundary need no per-element work.
  TSR_HOST_DEVICE bool plain_score() const {
    return softcap == 0 && alibi_slopes == nullptr && !bias.given() && !mask.given();
  }

  /// Batch entry b. Reads the length arrays, so it is for code that runs where they are readable.
  TSR_HOST_DEVICE Sequence sequence(int64_t b) const {
    Sequence s;
    s.query_row = packed_q ? cu_seqlens_q[b] : 0;
    s.query_count = packed_q ? cu_seqlens_q[b + 1] - cu_seqlens_q[b] : seq_lens_q ? seq_lens_q[b] : query_rows;
    s.key_row = packed_k ? cu_seqlens_k[b] : 0;
    const int64_t keys = packed_k ? cu_seqlens_k[b + 1] - cu_seqlens_k[b] : seq_lens_k ? seq_lens_k[b] : key_rows;
    const int64_t offset = query_offset ? query_offset[b] : top_left ? 0 : keys - s.query_count;
    s.visibility = make_visibility(keys, offset, causal, window_left, window_right);
    return s;
  }
};

/// Bytes of one row of `count` contiguous elements.
TSR_HOST_DEVICE constexpr int64_t row_bytes(tsr_dtype dtype, int64_t count) {
  switch (dtype) {
    case TSR_F32:
    case TSR_I32:
      return count * 4;
    case TSR_F16:
    case TSR_BF16:
      return count * 2;
    case TSR_Q8_0:
      return count / 32 * 34;
    case TSR_Q4_0:
      return count / 32 * 18;
    default:
      return count;
  }
}

TSR_HOST_DEVICE constexpr bool is_block_format(tsr_dtype dtype) { return dtype == TSR_Q8_0 || dtype == TSR_Q4_0; }

const char* dtype_name(tsr_dtype dtype);

/// Why a call can't be done. `ok()` when it can.
struct Verdict {
  tsr_status status = TSR_OK;
  std::string text;
  bool ok() const { return status == TSR_OK; }
};

}  // namespace tsr
