// What the append kernel is told. See tsr_append_desc in tessera.h.
#pragma once

#include "attention.h"

namespace tsr::cuda {

struct Append {
  View k, v;              ///< new rows
  View q, q_out;          ///< not given: no queries
  View cache_k, cache_v;  ///< paged: batch is the page

  int32_t batch = 0;
  int32_t kv_heads = 0;
  int32_t heads = 0;
  int32_t dim = 0;
  int32_t value_dim = 0;
  int64_t rows = 0;      ///< S padded, T packed
  int64_t capacity = 0;  ///< of one sequence
  bool packed = false;
  bool advance = false;  ///< lengths[b] += new tokens, at the end

  int32_t* lengths = nullptr;
  const int32_t* new_lens = nullptr;
  const int32_t* cu_seqlens = nullptr;
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0;
  int64_t page_size = 0;
  int64_t page_count = 0;

  int32_t rope_dims = 0;  ///< 0: no rotation
  bool rope_interleaved = false;
  double rope_theta = 0;
  double rope_scale = 1;
  const int32_t* positions = nullptr;  ///< [batch, row] or [row]; NULL: cache length + index
  int64_t positions_stride = 0;

  TSR_HOST_DEVICE bool paged() const { return page_size > 0; }
};

}  // namespace tsr::cuda
