// The query rows of a block: (query, head of the group) pairs of a KV head, group heads of one query side by side.
#pragma once

#include "../common/output.cuh"
#include "decode_fragments.cuh"

namespace tsr::cuda::decode {

/// What a block works on. The grid: x = row tile * head_units + head unit, y = split, z = batch: blocks that run at the same time
/// read the adjoining heads of the same keys.
struct Work {
  int unit;  ///< without the split
  int batch;
  int split;
  int tile;
  int head_unit;
};

__device__ __forceinline__ Work work_of(const Parameters& p) {
  Work w;
  w.batch = p.first_batch + static_cast<int>(blockIdx.z);
  w.split = static_cast<int>(blockIdx.y);
  w.tile = 0;
  w.head_unit = static_cast<int>(blockIdx.x);
  if (p.row_tiles > 1) {
    w.tile = w.head_unit / p.head_units;
    w.head_unit -= w.tile * p.head_units;
  }
  w.unit = w.batch * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  return w;
}

/// Row r of a block. Rows past the last have a query that doesn't exist.
struct RowId {
  int kv_head;
  int query;
  int head;
};

__device__ __forceinline__ RowId row_id(const Attention& a, Variant variant, int tile, int head_unit, int r) {
  const bool several_heads = heads_of(variant) > 1;
  const int kv_head = several_heads ? head_unit * heads_of(variant) + r / 8 : head_unit;
  const int row = several_heads ? r % 8 : tile * 8 * tiles_of(variant) + r;
  const int query = row / a.group;
  return {kv_head, query, kv_head * a.group + row - query * a.group};
}

/// A row in shared memory: what its scores need beyond q.k.
struct Row {
  int begin;  ///< keys that it sees by structure; none if there is no such query
  int end;
  float factor;  ///< from the product's unit to the natural score
  float base2_factor;
  RowOptions options;
};

/// The block's queries into the operand table, and its rows: eight lanes for each row, so that all loads are under way
/// together. Beside a cache that isn't 16-bit queries become fp16, normalised by a power of two to a maximum in [2^14, 2^15),
/// so that nothing that counts is lost. kRowsAlone: no queries. kPlain: no options, and the queries' elements are aligned.
template <class L, bool kRowsAlone, bool kPlain = false>
__device__ __forceinline__ void prepare_rows(const Parameters& p, const Sequence& s, const Work& w, Row* rows,
                                             char* queries) {
  constexpr int kEach = L::kDim / 8;
  const Attention& a = p.a;
  const int lane = threadIdx.x % 8;
  for (int r = threadIdx.x / 8; r < L::kRows; r += blockDim.x / 8) {  // whole warps: 8 or 16 rows
    const RowId id = row_id(a, L::kVariant, w.tile, w.head_unit, r);
    const bool there = id.query < s.queries;
    const char* const q = there ? a.q.at(w.batch, s.query_row + id.query, id.head) : nullptr;
    uint16_t bits[kEach];
#pragma unroll
    for (int i = 0; i < kEach && !kRowsAlone; ++i) {
      const int d = lane + 8 * i;
      if constexpr (kPlain) {
        bits[i] = there ? *reinterpret_cast<const uint16_t*>(q + 2 * d) : uint16_t{0};
      } else {
        bits[i] = there && d < a.dim ? load_u16(q + 2 * d) : uint16_t{0};
      }
    }
    int shift = 0;
    if constexpr (kRowsAlone) {
    } else if constexpr (is_16_bit(L::kFormat)) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) *query_element<L>(queries, r, lane + 8 * i) = bits[i];
    } else {
      float x[kEach], largest = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        x[i] = a.q.type == Type::kF16 ? f16_value(bits[i]) : bf16_value(bits[i]);
        largest = fmaxf(largest, fabsf(x[i]));
      }
#pragma unroll
      for (int lanes = 4; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
      if (largest > 0 && largest < -TSR_NEG_INF) shift = 14 - ilogbf(largest);
      // In two steps: the whole power may be beyond fp32's range.
      const float first = scalbnf(1.0f, shift / 2), second = scalbnf(1.0f, shift - shift / 2);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        float value = x[i] * first * second;
        if (L::kFormat == Format::kQ4 && i % 4 >= 2) value *= 0.0625f;  // high nibbles count 16-fold
        *query_element<L>(queries, r, lane + 8 * i) = __half_as_ushort(__float2half_rn(value));
      }
    }
    if (lane == 0) {
      const Span keys = there ? s.visibility.keys(id.query) : Span{0, 0};
      float factor = a.scale * (a.k_scale != nullptr && L::kFormat == Format::kF8 ? a.k_scale[id.kv_head] : 1.0f);
      rows[r].begin = static_cast<int>(keys.begin);
      rows[r].end = static_cast<int>(keys.end);
      rows[r].factor = scalbnf(factor, -shift);
      rows[r].base2_factor = rows[r].factor * kLog2e;
      if (there && !kPlain) rows[r].options = row_options(a, s, w.batch, id.query, id.head);
    }
  }
}

/// Where a finished row goes, and what its sums are multiplied by.
struct RowEnd {
  char* out;  ///< NULL: nowhere
  float factor;
};

/// Writes the lse of a finished row, if asked to, or of one without a query (out 0, lse -inf; nothing where the layout is
/// packed).
__device__ __forceinline__ RowEnd end_of_row(const Attention& a, const Sequence& s, int b, const RowId& id,
                                             float maximum, float sum, bool writes_lse) {
  if (id.query >= (a.packed_q ? s.queries : a.query_rows)) return {nullptr, 0.0f};
  Ending ending{0.0f, TSR_NEG_INF};
  if (id.query < s.queries) ending = end_row(a, id.head, maximum, sum);
  if (a.v_scale != nullptr && a.v.type == Type::kF8) ending.factor *= a.v_scale[id.kv_head];
  const int64_t row = s.query_row + id.query;
  if (writes_lse) store_lse(a, b, row, id.head, ending.lse);
  return {a.out.at(b, row, id.head), ending.factor};
}
__device__ __forceinline__ void store_dim(const Attention& a, const RowEnd& end, int dim, float sum) {
  if (end.out == nullptr || dim >= a.value_dim) return;
  store_1(a.out.type, end.out, dim, end.factor == 0 ? 0.0f : sum * end.factor);
}

/// Four dims of a row at once: 16-bit output, rows aligned to 8 bytes, no padding.
template <class L>
__device__ __forceinline__ void store_plain(const Parameters& p, const Sequence& s, const Work& w, const RowId& id,
                                            int four, float4 value, float maximum, float sum) {
  const RowEnd end = end_of_row(p.a, s, w.batch, id, maximum, sum, four == 0);
  if (end.out == nullptr) return;
  if (end.factor == 0) value = make_float4(0, 0, 0, 0);
  const float f = end.factor;
  uint2 words;
  if (p.a.out.type == Type::kF16) {
    words = {pack_pair<__half>(value.x * f, value.y * f), pack_pair<__half>(value.z * f, value.w * f)};
  } else {
    words = {pack_pair<__nv_bfloat16>(value.x * f, value.y * f), pack_pair<__nv_bfloat16>(value.z * f, value.w * f)};
  }
  reinterpret_cast<uint2*>(end.out)[four] = words;
}

}  // namespace tsr::cuda::decode
