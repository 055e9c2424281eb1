// A checked problem as GPU kernels are told it: plain numbers and device pointers, no C ABI, no vendor header; strides in
// bytes. Everything that a caller may leave open is settled by then. device_translate.h makes these from check.h's problems.
#pragma once

#include <cstdint>

#include "tessera/common/visibility.h"

namespace tsr::device {

/// Storage types. Block formats as in ggml: 32 values behind one fp16 scale.
enum class Type : int32_t {
  kNone,
  kF32,
  kF16,
  kBF16,
  kF8,  ///< e4m3fn
  kQ8,  ///< q8_0: 34 bytes for 32 values
  kQ4,  ///< q4_0: 18 bytes for 32 values
  kBool
};

/// A strided tensor of device memory. Strides are in BYTES (exact for block formats too: theirs are whole blocks), and
/// name what they step over. Packed tensors have batch stride 0, broadcast dimensions stride 0.
struct View {
  char* data = nullptr;
  int64_t batch = 0;  ///< paged k and v: from page to page
  int64_t row = 0;    ///< query or key position; paged: slot in the page
  int64_t head = 0;
  Type type = Type::kNone;

  TSR_HOST_DEVICE bool given() const { return type != Type::kNone; }
  TSR_HOST_DEVICE char* at(int64_t b, int64_t r, int64_t h) const { return data + b * batch + r * row + h * head; }
};

/// out = softmax(mask(softcap(scale q k^T) + bias - alibi)) v over batch x heads. docs/semantics.md says what each part
/// means; shapes are those of tsr_attention_desc in tessera.h.
struct Attention {
  View q, k, v, out;
  View lse;   ///< fp32; not given: not wanted
  View bias;  ///< elements of a row are contiguous; not given: none
  View mask;  ///< bytes, 0 hides

  int32_t batch = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t group = 0;  ///< heads / kv_heads
  int32_t dim = 0;
  int32_t value_dim = 0;
  int64_t query_rows = 0;   ///< rows of q: Sq padded, T packed
  int64_t key_rows = 0;     ///< rows of k: Sk padded, T packed, page size paged
  int64_t max_queries = 0;  ///< no sequence has more
  int64_t max_keys = 0;

  float scale = 0;
  float softcap = 0;  ///< 0: none
  bool causal = false;
  bool top_left = false;
  bool packed_q = false;
  bool packed_k = false;
  int64_t window_left = -1;  ///< -1: unbounded
  int64_t window_right = -1;

  // Device arrays; NULL: not given.
  const float* alibi_slopes = nullptr;  ///< [heads]
  const float* sinks = nullptr;         ///< [heads]
  const float* k_scale = nullptr;       ///< [kv_heads]
  const float* v_scale = nullptr;
  const int32_t* seq_lens_q = nullptr;  ///< [batch]
  const int32_t* seq_lens_k = nullptr;
  const int32_t* cu_seqlens_q = nullptr;  ///< [batch + 1]
  const int32_t* cu_seqlens_k = nullptr;
  const int32_t* query_offset = nullptr;  ///< [batch]
  const int32_t* page_table = nullptr;    ///< [batch, page_table_stride]
  int64_t page_table_stride = 0;
  int64_t page_size = 0;  ///< 0: not paged
  int64_t page_count = 0;

  /// Splits that the caller asks for; 0: the plan decides.
  int32_t num_splits = 0;

  TSR_HOST_DEVICE bool paged() const { return page_size > 0; }
  /// The score is scale * q.k and nothing else: tiles without a boundary need no work per element.
  TSR_HOST_DEVICE bool plain_score() const {
    return softcap == 0 && alibi_slopes == nullptr && !bias.given() && !mask.given();
  }
};

/// One batch entry, as the device finds it. Lengths are clamped to what the tensors hold: the host can't look at them.
struct Sequence {
  int64_t queries = 0;
  int64_t query_row = 0;  ///< row of query 0 (packed), else 0
  int64_t key_row = 0;
  Visibility visibility{};
};

TSR_HOST_DEVICE inline int64_t clamped(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

TSR_HOST_DEVICE inline Sequence sequence_of(const Attention& a, int64_t b) {
  Sequence s;
  if (a.packed_q) {
    s.query_row = clamped(a.cu_seqlens_q[b], 0, a.query_rows);
    s.queries = clamped(clamped(a.cu_seqlens_q[b + 1], 0, a.query_rows) - s.query_row, 0, a.max_queries);
  } else {
    s.queries = a.seq_lens_q ? clamped(a.seq_lens_q[b], 0, a.query_rows) : a.query_rows;
  }
  int64_t keys = a.max_keys;
  if (a.packed_k) {
    s.key_row = clamped(a.cu_seqlens_k[b], 0, a.key_rows);
    keys = clamped(clamped(a.cu_seqlens_k[b + 1], 0, a.key_rows) - s.key_row, 0, a.max_keys);
  } else if (a.seq_lens_k) {
    keys = clamped(a.seq_lens_k[b], 0, a.max_keys);
  }
  const int64_t offset = a.query_offset ? a.query_offset[b] : a.top_left ? 0 : keys - s.queries;
  s.visibility = make_visibility(keys, offset, a.causal, a.window_left, a.window_right);
  return s;
}

/// Where key j of batch entry b is stored: for View::at(batch, row, head) of k and v. Page numbers are clamped.
struct KeyPlace {
  int64_t batch;
  int64_t row;
};
TSR_HOST_DEVICE inline KeyPlace key_place(const Attention& a, const Sequence& s, int64_t b, int64_t j) {
  if (!a.paged()) return {b, s.key_row + j};
  const int64_t n = j / a.page_size;
  return {clamped(a.page_table[b * a.page_table_stride + n], 0, a.page_count - 1), j - n * a.page_size};
}

/// What an append kernel is told. See tsr_append_desc in tessera.h.
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

/// Parts that one launch takes; a call with more is TSR_UNSUPPORTED. (Kernel parameters may have 32,764 bytes.)
constexpr int kMergeParts = 128;

/// What a merge kernel is told. See tsr_merge_desc in tessera.h.
struct Merge {
  View outs[kMergeParts];
  View lses[kMergeParts];
  int32_t count = 0;
  View out;
  View lse;  ///< may be not given

  int32_t batch = 0;
  int32_t heads = 0;
  int32_t value_dim = 0;
  int64_t rows = 0;
};

}  // namespace tsr::device
