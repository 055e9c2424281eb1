// Attention in fp32 on the ordinary cores: any types, any alignment, all options. On every architecture, and all that those
// without matrix instructions have.
//
// A block of 256 threads, 16 x 16 as (ty, tx), has a tile of kRows query rows of one KV head: row r is query r / group of
// query head r % group, so that the heads of a group share every key that is read. It walks the tiles of kKeys keys that any
// of its rows sees, over one split of the key range.
//   S = Q K^T   thread: rows ty * R .. + R, keys tx and tx + 16
//   softmax     a row's keys are in the 16 lanes of one tx range: swizzles
//   O += P V    thread: the same rows, columns tx * 4 + 64 c; each tile's sum apart, so that chains stay short
// LDS, fp32: Q [kRows][kDim + 4], K or V [kKeys][kDim + 4] (one after the other), P [kRows][kKeys + 4].
// Results: out and lse, or with several splits an unnormalised partial.
#pragma once

#include "../common/split.h"

namespace tsr::hip::plain {

constexpr int kThreads = 256;
constexpr int kKeys = 32;

template <int kDim, int kRows>
constexpr int lds_bytes() {
  return ((kRows + kKeys) * (kDim + 4) + kRows * (kKeys + 4)) * 4;
}

TSR_DEVICE float max_16(float x) {
  x = larger(x, exchange<8>(x));
  x = larger(x, exchange<4>(x));
  x = larger(x, exchange<2>(x));
  return larger(x, exchange<1>(x));
}
TSR_DEVICE float sum_16(float x) {
  x += exchange<8>(x);
  x += exchange<4>(x);
  x += exchange<2>(x);
  return x + exchange<1>(x);
}

TSR_DEVICE void store_row_part(char* to, const float (&values)[8]) {
  lds_store(to, float4v{values[0], values[1], values[2], values[3]});
  lds_store(to + 16, float4v{values[4], values[5], values[6], values[7]});
}

/// Rows [0, kKeys) of k or v for the keys from `first` on, as fp32; zeros for keys outside `seen` and dims past `dim`.
template <int kDim>
TSR_DEVICE void load_keys(const Attention& a, const Sequence& s, const View& view, int dim, int64_t b, int kv_head,
                          int64_t first, Span seen, char* tile) {
  constexpr int kChunks = kDim / 8;
  TSR_ROLLED for (int chunk = thread_index(); chunk < kKeys * kChunks; chunk += kThreads) {
    const int row = chunk / kChunks, d = chunk % kChunks * 8;
    float values[8] = {};
    if (d < dim && seen.contains(first + row)) {
      const KeyPlace place = key_place(a, s, b, first + row);
      load_8(view.type, view.at(place.batch, place.row, kv_head), d, values);
    }
    store_row_part(tile + (row * (kDim + 4) + d) * 4, values);
  }
}

template <int kDim, int kRows>
TSR_DEVICE void attention(const Attention& a, const Tiling& t, float* partials, char* lds) {
  constexpr int R = kRows / 16;
  constexpr int C = kDim / 64;
  constexpr int kRowBytes = (kDim + 4) * 4, kWeightBytes = (kKeys + 4) * 4;
  char* const q_tile = lds;
  char* const kv_tile = q_tile + kRows * kRowBytes;
  char* const p_tile = kv_tile + kKeys * kRowBytes;
  const int tx = thread_index() % 16, ty = thread_index() / 16;

  const int64_t block = block_index();
  const Work work = work_of(a, t, block);
  const Sequence s = sequence_of(a, work.batch);
  const int64_t rows = s.queries * a.group;
  const int64_t first_row = static_cast<int64_t>(work.tile) * kRows;
  const int64_t last_row = first_row + kRows < rows ? first_row + kRows : rows;
  if (t.splits == 1 && last_row - first_row < kRows) clear_rows(a, s, work, first_row, kRows, kThreads);
  if (first_row >= last_row) return;

  TSR_ROLLED for (int chunk = thread_index(); chunk < kRows * kDim / 8; chunk += kThreads) {
    const int row = chunk / (kDim / 8), d = chunk % (kDim / 8) * 8;
    float values[8] = {};
    const int64_t r = first_row + row;
    if (d < a.dim && r < last_row) {
      load_8(a.q.type, a.q.at(work.batch, s.query_row + r / a.group, work.kv_head * a.group + r % a.group), d, values);
    }
    store_row_part(q_tile + row * kRowBytes + d * 4, values);
  }

  const bool plain = a.plain_score();
  const float scale = a.scale * (a.k_scale ? a.k_scale[work.kv_head] : 1.0f);
  const float factor = plain ? scale * kLog2e : scale;
  float maximum[R], sum[R], out[R][C][4] = {};
  Span row_keys[R];
  RowOptions options[R];
  TSR_UNROLL for (int r = 0; r < R; ++r) {
    maximum[r] = negative_infinity();
    sum[r] = 0;
    const int64_t row = first_row + ty * R + r;
    const bool real = row < last_row;
    const int64_t i = real ? row / a.group : 0;
    row_keys[r] = real ? s.visibility.keys(i) : Span{0, 0};
    options[r] = row_options(a, s, work.batch, i, work.kv_head * a.group + (real ? row % a.group : 0));
  }

  const Span queries{first_row / a.group, (last_row - 1) / a.group + 1};
  const Span seen = intersect(s.visibility.keys(queries), split_span(t, work.split));
  for (int64_t first = seen.begin / kKeys * kKeys; first < seen.end; first += kKeys) {
    block_barrier();
    load_keys<kDim>(a, s, a.k, a.dim, work.batch, work.kv_head, first, seen, kv_tile);
    block_barrier();
    float score[R][2] = {};
    TSR_ROLLED for (int d = 0; d < kDim; d += 4) {
      const auto k0 = lds_load<float4v>(kv_tile + tx * kRowBytes + d * 4);
      const auto k1 = lds_load<float4v>(kv_tile + (tx + 16) * kRowBytes + d * 4);
      TSR_UNROLL for (int r = 0; r < R; ++r) {
        const auto q = lds_load<float4v>(q_tile + (ty * R + r) * kRowBytes + d * 4);
        score[r][0] += q.x * k0.x + q.y * k0.y + q.z * k0.z + q.w * k0.w;
        score[r][1] += q.x * k1.x + q.y * k1.y + q.z * k1.z + q.w * k1.w;
      }
    }
    float rescale[R];
    TSR_UNROLL for (int r = 0; r < R; ++r) {
      TSR_UNROLL for (int e = 0; e < 2; ++e) {
        const int64_t j = first + tx + 16 * e;
        const float x = score[r][e] * factor;
        // Keys of other splits are hidden too: row_keys knows nothing of splits.
        score[r][e] = !(row_keys[r].contains(j) && seen.contains(j)) ? negative_infinity()
                      : plain                                        ? x
                                                                     : score_base2(options[r], x, j);
      }
      const float next = larger(maximum[r], max_16(larger(score[r][0], score[r][1])));
      const float base = next == negative_infinity() ? 0.0f : next;
      rescale[r] = exp2_fast(maximum[r] - base);
      const float p0 = exp2_fast(score[r][0] - base), p1 = exp2_fast(score[r][1] - base);
      sum[r] = sum[r] * rescale[r] + sum_16(p0 + p1);
      maximum[r] = next;
      lds_store(p_tile + (ty * R + r) * kWeightBytes + tx * 4, p0);
      lds_store(p_tile + (ty * R + r) * kWeightBytes + (tx + 16) * 4, p1);
    }
    block_barrier();  // K has been read by all, and P is whole
    load_keys<kDim>(a, s, a.v, a.value_dim, work.batch, work.kv_head, first, seen, kv_tile);
    block_barrier();
    float part[R][C][4] = {};
    TSR_ROLLED for (int j = 0; j < kKeys; j += 4) {
      float4v p[R];
      TSR_UNROLL for (int r = 0; r < R; ++r) p[r] = lds_load<float4v>(p_tile + (ty * R + r) * kWeightBytes + j * 4);
      TSR_UNROLL for (int e = 0; e < 4; ++e) {
        TSR_UNROLL for (int c = 0; c < C; ++c) {
          const auto v = lds_load<float4v>(kv_tile + (j + e) * kRowBytes + (c * 64 + tx * 4) * 4);
          TSR_UNROLL for (int r = 0; r < R; ++r) {
            TSR_UNROLL for (int x = 0; x < 4; ++x) part[r][c][x] += p[r][e] * v[x];
          }
        }
      }
    }
    TSR_UNROLL for (int r = 0; r < R; ++r) {
      TSR_UNROLL for (int c = 0; c < C; ++c) {
        TSR_UNROLL for (int e = 0; e < 4; ++e) out[r][c][e] = out[r][c][e] * rescale[r] + part[r][c][e];
      }
    }
  }

  const float v_scale = a.v_scale ? a.v_scale[work.kv_head] : 1.0f;
  TSR_UNROLL for (int r = 0; r < R; ++r) {
    const int64_t row = first_row + ty * R + r;
    if (row >= last_row) continue;
    const int head = work.kv_head * a.group + static_cast<int>(row % a.group);
    if (t.splits > 1) {
      const Partial partial = partial_of(t, partials, block, ty * R + r);
      if (tx == 0) {
        partial.head[0] = maximum[r];
        partial.head[1] = sum[r];
      }
      TSR_UNROLL for (int c = 0; c < C; ++c) {
        TSR_UNROLL for (int e = 0; e < 4; ++e) {
          const int d = c * 64 + tx * 4 + e;
          if (d < a.value_dim) partial.out[d] = out[r][c][e] * v_scale;
        }
      }
      continue;
    }
    const Ending ending = end_row(a, head, maximum[r], sum[r]);
    char* const to = a.out.at(work.batch, s.query_row + row / a.group, head);
    TSR_UNROLL for (int c = 0; c < C; ++c) {
      TSR_UNROLL for (int e = 0; e < 4; ++e) {
        const int d = c * 64 + tx * 4 + e;
        if (d < a.value_dim) store_1(a.out.type, to, d, out[r][c][e] * (ending.factor * v_scale));
      }
    }
    if (tx == 0) store_lse(a, work.batch, s.query_row + row / a.group, head, ending.lse);
  }
}

}  // namespace tsr::hip::plain
