// Fused attention on matrix instructions: q, k, v of one 16-bit type, any alignment, all options.
//
// A block of 256 threads has 128 query rows of one head (64 for head dims beyond 128); a wavefront has 16 or 32 of them, each
// lane one query column, so that most of softmax stays in the lane. It walks the tiles of kKeys keys that any of its rows sees.
//   S^T = K Q^T    A: rows of K from LDS, B: Q, kept in registers
//   softmax        base 2, in registers; the lanes of a column (2 or 4) meet in two exchanges
//   O^T += V^T P^T A: rows of V^T from LDS, B: P^T, which is D of the first product (gfx11: after an exchange)
// kOptions: soft cap, bias, ALiBi, mask; kept apart, because what they take fills the instruction cache.
// LDS: K [kKeys][kDim + 8], V^T [kDim][kKeys + 8], 16-bit; the pad keeps rows off each other's banks.
#pragma once

#include "../common/score.h"
#include "../kernel_arguments.h"
#include "instructions.h"

#if defined(TSR_MATRIX)
namespace tsr::hip::matrix {

constexpr int kThreads = 256;
constexpr int kWaves = kThreads / kWave;

/// Groups of 16 query rows of a wavefront, and query rows of a block.
template <int kDim>
constexpr int groups() {
  return kWave == 64 && kDim <= 128 ? 2 : 1;
}
template <int kDim>
constexpr int rows() {
  return kWaves * groups<kDim>() * 16;
}
template <int kDim>
constexpr int keys() {
  return kDim > 64 && (kWave == 32 || kDim > 128) ? 32 : 64;
}
/// With options a lane's scores of one group go through LDS, its own words: what options take is then one copy in a loop, not one
/// for each of the elements in registers.
template <int kDim, bool kOptions>
constexpr int lds_bytes() {
  return (keys<kDim>() * (kDim + 8) + kDim * (keys<kDim>() + 8)) * 2 +
         (kOptions ? keys<kDim>() / 16 * kSums * kThreads * 4 : 0);
}

/// Eight 16-bit elements at any alignment.
TSR_DEVICE word4v load_words(const char* p) {
  if (aligned(p, 16)) return *reinterpret_cast<const word4v*>(p);
  word4v words;
  TSR_UNROLL for (int w = 0; w < 4; ++w) words[w] = load_u32(p + w * 4);
  return words;
}

template <class T, int kDim, bool kOptions>
TSR_DEVICE void attention(const Attention& a, const Tiling& t, char* lds) {
  constexpr int kGroups = groups<kDim>(), kRows = rows<kDim>();
  constexpr int kKeys = keys<kDim>(), kChunks = kDim / 8, kSteps = kDim / 16, kKeyTiles = kKeys / 16;
  constexpr int kRowBytes = (kDim + 8) * 2, kColumnBytes = (kKeys + 8) * 2;
  typedef typename T::Fragment Fragment;
  char* const k_tile = lds;
  char* const v_tile = lds + kKeys * kRowBytes;
  char* const own_scores = v_tile + kDim * kColumnBytes + thread_index() * 4;  // with options: every kThreads words
  const int lane = lane_index(), wave = thread_index() / kWave, column = lane % 16;

  // A tile of queries of one head; those with the most keys start first.
  const int64_t block = block_index();
  const int64_t lanes = static_cast<int64_t>(a.batch) * a.heads;
  const int64_t tile = t.tiles - 1 - block / lanes;
  const auto b = static_cast<int32_t>(block % lanes / a.heads), head = static_cast<int32_t>(block % a.heads);
  const int32_t kv_head = head / a.group;
  const Sequence s = sequence_of(a, b);
  const int64_t first_query = tile * kRows;
  if (first_query >= (a.packed_q ? s.queries : a.query_rows)) return;
  const Span queries{first_query, first_query + kRows < s.queries ? first_query + kRows : s.queries};
  const Span seen = s.visibility.keys(queries), common = s.visibility.common_keys(queries);

  // The maximum is of scores times `factor`, so that a negative scale needs no care.
  const float factor = kOptions ? a.scale : a.scale * kLog2e;
  int64_t query[kGroups];
  Span row_keys[kGroups];
  Fragment q[kGroups][kSteps];
  Sum out[kGroups][kSteps];
  float maximum[kGroups], sum[kGroups];
  TSR_UNROLL for (int g = 0; g < kGroups; ++g) {
    query[g] = first_query + (wave * kGroups + g) * 16 + column;
    const bool real = query[g] < s.queries;
    row_keys[g] = real ? s.visibility.keys(query[g]) : Span{0, 0};
    maximum[g] = negative_infinity();
    sum[g] = 0;
    const char* const row = a.q.at(b, s.query_row + (real ? query[g] : 0), head);
    TSR_UNROLL for (int d = 0; d < kSteps; ++d) {
      TSR_UNROLL for (int e = 0; e < kSums; ++e) out[g][d][e] = 0;
      union {
        word4v words[2];
        Fragment fragment;
      } from;
      // The 16 elements of the step; a lane keeps its own of them.
      word4v half[2];
      TSR_UNROLL for (int h = 0; h < 2; ++h) {
        const int at = d * 16 + h * 8;
        half[h] = real && at < a.dim ? load_words(row + at * 2) : word4v{0, 0, 0, 0};
      }
#if defined(TSR_RDNA3)
      from.words[0] = half[0];
      from.words[1] = half[1];
#elif defined(TSR_RDNA4)
      from.words[0] = lane < 16 ? half[0] : half[1];
#else
      const word4v mine = lane < 32 ? half[0] : half[1];
      from.words[0] = lane / 16 % 2 == 0 ? word4v{mine[0], mine[1], 0, 0} : word4v{mine[2], mine[3], 0, 0};
#endif
      q[g][d] = from.fragment;
    }
  }

  for (int64_t first = seen.begin / kKeys * kKeys; first < seen.end; first += kKeys) {
    block_barrier();
    TSR_ROLLED for (int chunk = thread_index(); chunk < kKeys * kChunks; chunk += kThreads) {
      const int row = chunk / kChunks, d = chunk % kChunks * 8;
      word4v k = {0, 0, 0, 0}, v = {0, 0, 0, 0};
      if (seen.contains(first + row)) {
        const KeyPlace place = key_place(a, s, b, first + row);
        if (d < a.dim) k = load_words(a.k.at(place.batch, place.row, kv_head) + d * 2);
        if (d < a.value_dim) v = load_words(a.v.at(place.batch, place.row, kv_head) + d * 2);
      }
      lds_store(k_tile + row * kRowBytes + d * 2, k);
      TSR_UNROLL for (int e = 0; e < 8; ++e) {
        lds_store(v_tile + (d + e) * kColumnBytes + row * 2, static_cast<uint16_t>(v[e / 2] >> (e % 2 * 16)));
      }
    }
    block_barrier();

    Sum score[kGroups][kKeyTiles];
    TSR_UNROLL for (int n = 0; n < kKeyTiles; ++n) {
      TSR_UNROLL for (int g = 0; g < kGroups; ++g) { TSR_UNROLL for (int e = 0; e < kSums; ++e) score[g][n][e] = 0; }
      TSR_UNROLL for (int d = 0; d < kSteps; ++d) {
        const Fragment k = load_fragment<T>(k_tile + (n * 16 + column) * kRowBytes + d * 32, lane);
        TSR_UNROLL for (int g = 0; g < kGroups; ++g) score[g][n] = multiply(k, q[g][d], score[g][n]);
      }
    }

    const bool whole = !kOptions && common.begin <= first && first + kKeys <= common.end;
    Fragment p[kGroups][kKeyTiles];
    TSR_UNROLL for (int g = 0; g < kGroups; ++g) {
      float next = maximum[g];
      if (whole) {
        TSR_UNROLL for (int n = 0; n < kKeyTiles; ++n) {
          TSR_UNROLL for (int e = 0; e < kSums; ++e) {
            score[g][n][e] *= factor;
            next = larger(next, score[g][n][e]);
          }
        }
      } else if constexpr (kOptions) {
        const bool real = query[g] < s.queries;
        const RowOptions options = row_options(a, s, b, real ? query[g] : 0, head);
        constexpr int kSlotBytes = kThreads * 4;
        TSR_UNROLL for (int n = 0; n < kKeyTiles; ++n) {
          TSR_UNROLL for (int e = 0; e < kSums; ++e) {
            lds_store(own_scores + (n * kSums + e) * kSlotBytes, static_cast<float>(score[g][n][e]));
          }
        }
        TSR_ROLLED for (int n = 0; n < kKeyTiles; ++n) {
          TSR_ROLLED for (int e = 0; e < kSums; ++e) {
            char* const slot = own_scores + (n * kSums + e) * kSlotBytes;
            const int64_t j = first + n * 16 + row_of(lane, e);
            lds_store(slot, row_keys[g].contains(j) ? score_base2(options, lds_load<float>(slot) * factor, j)
                                                    : negative_infinity());
          }
        }
        TSR_UNROLL for (int n = 0; n < kKeyTiles; ++n) {
          TSR_UNROLL for (int e = 0; e < kSums; ++e) {
            score[g][n][e] = lds_load<float>(own_scores + (n * kSums + e) * kSlotBytes);
            next = larger(next, score[g][n][e]);
          }
        }
      } else {
        const auto begin = static_cast<int>(clamped(row_keys[g].begin - first, 0, kKeys));
        const auto end = static_cast<int>(clamped(row_keys[g].end - first, 0, kKeys));
        TSR_UNROLL for (int n = 0; n < kKeyTiles; ++n) {
          TSR_UNROLL for (int e = 0; e < kSums; ++e) {
            const int j = n * 16 + row_of(lane, e);
            score[g][n][e] = j >= begin && j < end ? score[g][n][e] * factor : negative_infinity();
            next = larger(next, score[g][n][e]);
          }
        }
      }
      next = max_of_column(next, lane);
      const float base = next == negative_infinity() ? 0.0f : next;
      const float rescale = exp2_fast(maximum[g] - base);
      maximum[g] = next;
      float part = 0;
      TSR_UNROLL for (int n = 0; n < kKeyTiles; ++n) {
        TSR_UNROLL for (int e = 0; e < kSums; ++e) {
          score[g][n][e] = exp2_fast(score[g][n][e] - base);
          part += score[g][n][e];
        }
        p[g][n] = to_operand<T>(score[g][n], lane);
      }
      sum[g] = sum[g] * rescale + sum_of_column(part, lane);
      TSR_UNROLL for (int d = 0; d < kSteps; ++d) {
        TSR_UNROLL for (int e = 0; e < kSums; ++e) out[g][d][e] *= rescale;
      }
    }

    TSR_UNROLL for (int d = 0; d < kSteps; ++d) {
      TSR_UNROLL for (int n = 0; n < kKeyTiles; ++n) {
        const Fragment v = load_fragment<T>(v_tile + (d * 16 + column) * kColumnBytes + n * 32, lane);
        TSR_UNROLL for (int g = 0; g < kGroups; ++g) out[g][d] = multiply(v, p[g][n], out[g][d]);
      }
    }
  }

  TSR_UNROLL for (int g = 0; g < kGroups; ++g) {
    const int64_t i = query[g];
    const bool real = i < s.queries;
    if (!real && (a.packed_q || i >= a.query_rows)) continue;
    Ending ending = end_row(a, head, maximum[g], sum[g]);
    if (!real) ending = {0.0f, negative_infinity()};
    char* const to = a.out.at(b, s.query_row + i, head);
    TSR_UNROLL for (int d = 0; d < kSteps; ++d) {
      TSR_UNROLL for (int e = 0; e < kSums; ++e) {
        const int at = d * 16 + row_of(lane, e);
        // Chosen, not multiplied by 0: a row that saw nothing may hold 0 x NaN of another row's V.
        const float x = ending.factor == 0 ? 0.0f : out[g][d][e] * ending.factor;
        if (at < a.value_dim) store_1(a.out.type, to, at, x);
      }
    }
    if (lane < 16) store_lse(a, b, s.query_row + i, head, ending.lse);
  }
}

}  // namespace tsr::hip::matrix
#endif
