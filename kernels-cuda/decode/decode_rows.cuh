// The query rows of a block: (query, head of the group) pairs of a KV head, group heads of one query side by side.
#pragma once

#include "../common/output.cuh"
#include "decode_fragments.cuh"

namespace tsr::cuda::decode {

/// What a block works on. The grid: ((batch * splits + split) * row_tiles + tile) * head_units + head_unit: blocks that run
/// at the same time read the adjoining heads of the same keys.
struct Work {
  int64_t unit;  ///< without the split
  int64_t batch;
  int split;
  int tile;
  int head_unit;
};

__device__ __forceinline__ Work work_of(const Parameters& p, int64_t block) {
  Work w;
  w.head_unit = static_cast<int>(block % p.head_units);
  block /= p.head_units;
  w.tile = static_cast<int>(block % p.row_tiles);
  block /= p.row_tiles;
  w.split = static_cast<int>(block % p.splits);
  w.batch = block / p.splits;
  w.unit = (w.batch * p.row_tiles + w.tile) * p.head_units + w.head_unit;
  return w;
}

/// Row r of a block. Rows past the last have a query that doesn't exist.
struct RowId {
  int64_t kv_head;
  int64_t query;
  int64_t head;
};

TSR_HOST_DEVICE inline RowId row_id(const Attention& a, Variant variant, int tile, int head_unit, int r) {
  const bool two_heads = variant == Variant::kTwoHeads;
  const int64_t kv_head = two_heads ? head_unit * 2 + r / 8 : head_unit;
  const int64_t row = two_heads ? r % 8 : static_cast<int64_t>(tile) * 8 * tiles_of(variant) + r;
  return {kv_head, row / a.group, kv_head * a.group + row % a.group};
}

/// A row in shared memory: what its scores need beyond q.k.
struct Row {
  int begin;  ///< keys that it sees by structure; none if there is no such query
  int end;
  float factor;  ///< from the product's unit to the natural score
  float base2_factor;
  RowOptions options;
};

/// The block's queries into the operand table, and its rows. A warp for each row. Beside a cache that isn't 16-bit they become
/// fp16, normalised by a power of two to a maximum in [2^14, 2^15), so that nothing that counts is lost.
template <class L>
__device__ __forceinline__ void prepare_rows(const Parameters& p, const Sequence& s, const Work& w, Row* rows,
                                             char* queries, float* nibble_offsets, int warp, int warps, int lane) {
  const Attention& a = p.a;
  for (int r = warp; r < L::kRows; r += warps) {
    const RowId id = row_id(a, L::kVariant, w.tile, w.head_unit, r);
    const bool there = id.query < s.queries;
    const char* const q = there ? a.q.at(w.batch, s.query_row + id.query, id.head) : nullptr;
    constexpr int kEach = (L::kDim + 31) / 32;
    int shift = 0;
    if constexpr (is_16_bit(L::kFormat)) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int d = lane + 32 * i;
        *query_element<L>(queries, r, d) = there && d < a.dim ? load_u16(q + 2 * d) : uint16_t{0};
      }
    } else {
      float x[kEach], largest = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int d = lane + 32 * i;
        x[i] = there && d < a.dim ? load_1(a.q.type, q, d) : 0.0f;
        largest = fmaxf(largest, fabsf(x[i]));
      }
      for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
      if (largest > 0 && largest < -TSR_NEG_INF) shift = 14 - ilogbf(largest);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int d = lane + 32 * i;
        float value = scalbnf(x[i], shift);
        if constexpr (L::kFormat == Format::kQ4) {
          float sum = value;
          for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
          if (lane == 0) nibble_offsets[r * kEach + i] = sum * (-8.0f / kNibbleUnit);
          if (lane >= 16) value *= 0.0625f;  // high nibbles count 16 n
        }
        *query_element<L>(queries, r, d) = __half_as_ushort(__float2half_rn(value));
      }
    }
    if (lane == 0) {
      const Span keys = there ? s.visibility.keys(id.query) : Span{0, 0};
      float factor = a.scale * (a.k_scale != nullptr && L::kFormat == Format::kF8 ? a.k_scale[id.kv_head] : 1.0f);
      if (L::kFormat == Format::kQ4) factor *= kNibbleUnit;
      rows[r].begin = static_cast<int>(keys.begin);
      rows[r].end = static_cast<int>(keys.end);
      rows[r].factor = scalbnf(factor, -shift);
      rows[r].base2_factor = rows[r].factor * kLog2e;
      if (there) rows[r].options = row_options(a, s, w.batch, id.query, id.head);
    }
  }
}

/// Writes one dim of a finished row, or of one without a query (out 0, lse -inf; nothing where the layout is packed).
__device__ __forceinline__ void finish(const Attention& a, const Sequence& s, int64_t b, const RowId& id, int dim,
                                       float maximum, float sum, float out) {
  if (id.query >= (a.packed_q ? s.queries : a.query_rows)) return;
  Ending ending{0.0f, TSR_NEG_INF};
  if (id.query < s.queries) ending = end_row(a, id.head, maximum, sum);
  const int64_t row = s.query_row + id.query;
  if (a.v_scale != nullptr && a.v.type == Type::kF8) out *= a.v_scale[id.kv_head];
  const float value = ending.factor == 0 ? 0.0f : out * ending.factor;
  if (dim < a.value_dim) store_1(a.out.type, a.out.at(b, row, id.head), dim, value);
  if (dim == 0) store_lse(a, b, row, id.head, ending.lse);
}

}  // namespace tsr::cuda::decode
