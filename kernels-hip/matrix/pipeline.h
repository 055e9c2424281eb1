// Prefill as CDNA wants it: q, k, v of one 16-bit type, head dim 64 or 128, rows aligned to 16 bytes, no option that changes a
// score; keys in a row or in pages of 2^n, 8 or more. matrix/attention.h has the rest.
//
// A block of 8 wavefronts has 256 query rows of one head, 32 a wavefront, each lane a query column; two lanes share one. There
// are two wavefronts to a SIMD (kOccupancy), and of those two one multiplies while the other does softmax:
//
//   phase          2i              2i + 1          2i + 2
//   wavefronts 0-3 multiply i      softmax i + 1   multiply i + 1
//   wavefronts 4-7 softmax i       multiply i      softmax i + 1
//
// multiply i is S = K(i + 1) Q^T and O += V(i)^T P(i); softmax i makes P(i) of S. A barrier ends each phase, and an extra one at
// the start puts the second half a phase behind.
//   S^T = K Q^T    A: rows of K from LDS, B: Q, kept in registers
//   O^T += V^T P^T A: rows of V^T from LDS, B: P^T, which is D of the first product as it is
// LDS: two tiles of 64 keys each of K and V^T, without pads:
//   K [64][kDim]: copied there by the memory system; the 16 bytes c of row r at c ^ r % 8, which the addresses that are copied
//   from see to. Copied through phases 2j - 4 and 2j - 3 for tile j, where nobody reads its buffer.
//   V^T [kDim][64]: by way of registers, four keys of kDim / 32 dims a thread. The four keys 8m + 4h .. + 3 of row d are in the
//   16 bytes (m / 2 * 2 + h) ^ f(d), so that a lane reads eight keys of P's order at a time. Written in phase 2j - 1.
// A row's maximum is let be until it is 2^8 out of date: most steps rescale nothing.
#pragma once

#include "../common/score.h"
#include "../kernel_arguments.h"
#include "wide.h"

#if defined(TSR_CDNA)
namespace tsr::hip::pipeline {

using wide::kCopyBytes;
using wide::Operand;
using wide::Sum;

constexpr int kWaves = 8;
constexpr int kThreads = kWaves * 64;
constexpr int kWaveRows = 32;
constexpr int kRows = kWaves * kWaveRows;
constexpr int kKeys = 64;
constexpr float kLate = 8;  ///< base 2, by which a maximum may be out of date
/// Base 2. A weight's exponent is score x factor - reference in one FMA, and the reference a rounded product, up to 2^-24 of itself off,
/// which has to stay small beside 1. Beyond this the scores are rounded likewise first.
constexpr float kFar = 1048576.0f;

template <int kDim>
constexpr int lds_bytes() {
  return 4 * kKeys * kDim * 2;
}

/// Which tile of which head a block has: those of one KV head run on one chiplet, which has its own L2 (block n of a grid runs
/// on chiplet n % chiplets), as far as KV heads can be dealt out evenly; tiles with the most keys first.
struct Place {
  int64_t tile;
  int32_t batch;
  int32_t head;
};
TSR_DEVICE Place place_of(const Attention& a, const Tiling& t, int32_t chiplets, int64_t block) {
  const int64_t pairs = static_cast<int64_t>(a.batch) * a.kv_heads;
  const int64_t each = static_cast<int64_t>(t.tiles) * a.group;
  const int64_t even = pairs / chiplets * chiplets * each;
  int64_t pair = block / each, rest = block % each;
  if (block < even) {
    const int64_t slot = block / chiplets;
    pair = slot / each * chiplets + block % chiplets;
    rest = slot % each;
  }
  return {t.tiles - 1 - rest / a.group, static_cast<int32_t>(pair / a.kv_heads),
          static_cast<int32_t>(pair % a.kv_heads * a.group + rest % a.group)};
}

template <class T, int kDim, bool kPaged>
struct Pipeline {
  static constexpr int kRowBytes = kDim * 2, kTileBytes = kKeys * kRowBytes;
  static constexpr int kSteps = kDim / 16, kOutTiles = kDim / 32;
  static constexpr int kColumnBytes = kKeys * 2;
  /// Copies of a wavefront's eight rows of K; dims of a thread's piece of V, as words.
  static constexpr int kCopies = kTileBytes / kWaves / (64 * kCopyBytes);
  static constexpr int kWords = kDim / 64;
  typedef uint32_t Words __attribute__((ext_vector_type(kWords)));
  static constexpr int kFirstV = 2 * kTileBytes;

  char* lds;
  int lane, wave;
  // The keys, counted from the first of tile 0.
  const char* k;
  const char* v;
  int64_t k_stride, v_stride;
  // In pages: k and v are those of page 0, and a wavefront's eight rows of a tile are all in one page.
  const int32_t* page_table;
  int64_t k_page_stride, v_page_stride;
  int first_key, page_shift, last_page;
  int v_page, k_page, later_page;       ///< of the tiles fetched next; the last is looked up a step ahead
  int seen_begin, seen_end;             ///< what the block sees
  int first_inside, inside_tiles;       ///< tiles of which it sees every key
  int first_full, full_tiles;           ///< tiles of which every row of the wavefront sees every key
  int row_begin, row_size;              ///< what this lane's row sees
  const char *next_keys, *next_values;  ///< of the tiles that are fetched next: a wavefront's rows of K, and V
  uint32_t k_offsets[kCopies];          ///< of a whole tile, in bytes, from `kBehind` before it
  uint32_t v_offset;
  // The queries.
  float factor;
  Operand q[kSteps];
  Sum score[2];
  Operand p[4];
  Sum out[kOutTiles];
  float reference;  ///< the maximum that weights are relative to, base 2
  float sum;        ///< of this lane's weights
  bool far;         ///< a reference of the wavefront's is beyond kFar
  // LDS addresses and staged words.
  char* k_at[4];
  char* v_at[4];
  char* v_to[2 * kWords];
  Words staged[4];

  /// Offsets may be smaller than what the instruction adds to them.
  static constexpr int kBehind = 2048;

  TSR_DEVICE static int swizzle_of(int d) { return (d & 7) ^ (d >> 3 & 3); }
  /// Of the halves of 16 bytes: writes of 16 lanes then are in different banks. A whole operand can't be had swapped for free.
  TSR_DEVICE static constexpr bool swapped(int d) { return !wide::kWholeOperands && (d >> 5 & 1) != 0; }

  TSR_DEVICE void prepare_addresses() {
    const int column = lane % 32, half = lane / 32;
    TSR_UNROLL for (int i = 0; i < 4; ++i) {
      k_at[i] = lds + column * kRowBytes + ((2 * i + half) ^ (column & 7)) * 16;
      v_at[i] = lds + kFirstV + column * kColumnBytes + ((2 * i + half) ^ swizzle_of(column)) * 16;
    }
    TSR_UNROLL for (int i = 0; i < kCopies; ++i) {
      k_offsets[i] = k_offset(i, (i * 64 + lane) * kCopyBytes / kRowBytes);
    }
    const int dims = lane % 32, keys = v_group();
    v_offset = static_cast<uint32_t>(lane / 32 * 4 * static_cast<int32_t>(v_stride) + dims * kWords * 4);
    const int m = keys / 2, chunk = m / 2 * 2 + keys % 2;
    TSR_UNROLL for (int e = 0; e < 2 * kWords; ++e) {
      const int d = dims * 2 * kWords + e;
      v_to[e] = lds + kFirstV + d * kColumnBytes + (chunk ^ swizzle_of(d)) * 16 + (m % 2 ^ swapped(d)) * 8;
    }
  }
  /// Of what goes to this lane's place in copy i, from row `row` of the wavefront's.
  TSR_DEVICE uint32_t k_offset(int i, int row) const {
    const int at = (i * 64 + lane) * kCopyBytes, within = (at % kRowBytes) ^ (at / kRowBytes & 7) * 16;
    return static_cast<uint32_t>(row * static_cast<int>(k_stride) + within + kBehind - i * 64 * kCopyBytes);
  }
  /// Of V a thread takes the four keys 4 g .. + 3.
  TSR_DEVICE int v_group() const { return wave * 2 + lane / 32; }

  /// Rows that nobody sees repeat one that somebody does, whose weight there is 0.
  TSR_DEVICE int real_key(int key) const { return key < seen_begin ? seen_begin : key < seen_end ? key : seen_end - 1; }
  /// The block sees all of the tile.
  TSR_DEVICE bool inside(int tile) const {
    return static_cast<uint32_t>(tile - first_inside) < static_cast<uint32_t>(inside_tiles);
  }

  /// The page of a wavefront's rows of a tile.
  TSR_DEVICE int page_of(int tile) const {
    if constexpr (!kPaged) return 0;
    const int page = page_table[(first_key + real_key(tile * kKeys + wave * 8)) >> page_shift];
    return page < 0 ? 0 : page < last_page ? page : last_page;
  }
  TSR_DEVICE void look_up_pages() {
    k_page = page_of(0);
    later_page = page_of(1);
  }
  /// After V of tile - 1 and K of `tile` have been set out for.
  TSR_DEVICE void next_page(int tile) {
    v_page = k_page;
    k_page = later_page;
    later_page = page_of(tile + 2);
  }
  /// Of a key that is among a wavefront's rows of a tile in that page.
  TSR_DEVICE const char* key_at(const char* first, int64_t stride, int64_t page_stride, int page, int key) const {
    if constexpr (!kPaged) return first + key * stride;
    const int slot = (first_key + key) & ((1 << page_shift) - 1);
    return first + __builtin_amdgcn_readfirstlane(page) * page_stride + slot * stride;
  }

  /// Tiles one after the other, from 0 on. kInside: it is known that the block sees all of the tile.
  template <bool kInside>
  TSR_DEVICE void copy_keys(int buffer, int tile) {
    char* const to = lds + buffer * kTileBytes + wave * (kTileBytes / kWaves);
    const int first = tile * kKeys + wave * 8;
    if (kInside || inside(tile)) {
      const char* const from = kPaged ? key_at(k, k_stride, k_page_stride, k_page, first) - kBehind : next_keys;
      wide::copy_to_lds<kCopies>(from, k_offsets, to);
    } else {
      const int least = real_key(first);
      uint32_t offsets[kCopies];
      TSR_UNROLL for (int i = 0; i < kCopies; ++i) {
        const int row = (i * 64 + lane) * kCopyBytes / kRowBytes;
        offsets[i] = k_offset(i, real_key(first + row) - least);
      }
      wide::copy_to_lds<kCopies>(key_at(k, k_stride, k_page_stride, k_page, least) - kBehind, offsets, to);
    }
    next_keys += kKeys * k_stride;
  }

  template <bool kInside>
  TSR_DEVICE void load_values(int tile) {
    const int first = tile * kKeys + wave * 8;
    if (kInside || inside(tile)) {
      const char* const from = kPaged ? key_at(v, v_stride, v_page_stride, v_page, first) : next_values;
      TSR_UNROLL for (int r = 0; r < 4; ++r) staged[r] = global_load<Words>(from + r * v_stride, v_offset);
    } else {
      const int least = real_key(first);
      const char* const from = key_at(v, v_stride, v_page_stride, v_page, least);
      TSR_UNROLL for (int r = 0; r < 4; ++r) {
        const int row = real_key(first + lane / 32 * 4 + r) - least;
        staged[r] =
            global_load<Words>(from, static_cast<uint32_t>(row * static_cast<int>(v_stride) + lane % 32 * kWords * 4));
      }
    }
    next_values += kKeys * v_stride;
  }
  TSR_DEVICE void store_values(int buffer) {
    TSR_UNROLL for (int w = 0; w < kWords; ++w) {
      TSR_UNROLL for (int e = 0; e < 2; ++e) {
        const uint32_t take = e == 0 ? 0x05040100u : 0x07060302u;
        lds_store(v_to[w * 2 + e] + buffer * kTileBytes,
                  word2v{__builtin_amdgcn_perm(staged[1][w], staged[0][w], take),
                         __builtin_amdgcn_perm(staged[3][w], staged[2][w], take)});
      }
    }
  }

  TSR_DEVICE void multiply_keys(int buffer) {
    TSR_UNROLL for (int n = 0; n < 2; ++n) { TSR_UNROLL for (int e = 0; e < wide::kSums; ++e) score[n][e] = 0; }
    TSR_UNROLL for (int s = 0; s < kSteps; ++s) {
      Operand rows[2];
      TSR_UNROLL for (int n = 0; n < 2; ++n) {
        rows[n] = lds_load<Operand>(k_at[s % 4] + buffer * kTileBytes + n * 32 * kRowBytes + s / 4 * 128);
      }
      TSR_UNROLL for (int n = 1; n >= 0; --n) score[n] = T::multiply(rows[n], q[s], score[n]);
    }
  }
  TSR_DEVICE void multiply_values(int buffer) {
    TSR_UNROLL for (int c = 0; c < 4; ++c) {
      TSR_UNROLL for (int d = 0; d < kOutTiles; d += 2) {
        Operand columns[2];
        TSR_UNROLL for (int n = 0; n < 2; ++n) {
          columns[n] = lds_load<Operand>(v_at[c] + buffer * kTileBytes + (d + n) * 32 * kColumnBytes);
          if (swapped((d + n) * 32)) columns[n] = columns[n].zwxy;
        }
        TSR_UNROLL for (int n = 1; n >= 0; --n) out[d + n] = T::multiply(columns[n], p[c], out[d + n]);
      }
    }
  }

  /// x factor - base, each rounded: a separate product is what the reference is made of.
  TSR_DEVICE static float2v relative(float2v x, float factor, float base) {
#pragma clang fp contract(off)
    const float2v product = x * float2v{factor, factor};
    return product - float2v{base, base};
  }

  /// A difference, which is exact where it matters: reference + kLate may be rounded up to twice as far.
  TSR_DEVICE static bool late(float top, float reference) {
#pragma clang fp contract(off)
    return top - reference > kLate;
  }

  /// Scores of a tile become weights, rounded, in p.
  template <bool kFull>
  TSR_DEVICE void soften(int tile) {
    if (!kFull && static_cast<uint32_t>(tile - first_full) >= static_cast<uint32_t>(full_tiles)) {
      const int begin = row_begin - tile * kKeys - 4 * (lane / 32);
      TSR_UNROLL for (int n = 0; n < 2; ++n) {
        TSR_UNROLL for (int e = 0; e < wide::kSums; ++e) {
          const auto j = static_cast<uint32_t>(n * 32 + wide::row_of(0, e) - begin);
          score[n][e] = j < static_cast<uint32_t>(row_size) ? score[n][e] : negative_infinity();
        }
      }
    }
    float top = score[0][0];
    TSR_UNROLL for (int e = 1; e < wide::kSums; ++e) top = larger(top, score[0][e]);
    TSR_UNROLL for (int e = 0; e < wide::kSums; ++e) top = larger(top, score[1][e]);
    top = wide::max_of_column(top, lane) * factor;
    if (__builtin_amdgcn_ballot_w64(late(top, reference)) != 0) {
      const float next = larger(reference, top);
      const float finite = next == negative_infinity() ? 0.0f : next;
      const float rescale = exp2_fast(reference - finite);
      reference = next;
      far = __builtin_amdgcn_ballot_w64(__builtin_fabsf(finite) > kFar) != 0;
      sum *= rescale;
      TSR_UNROLL for (int d = 0; d < kOutTiles; ++d) out[d] *= rescale;
    }
    const float finite = reference == negative_infinity() ? 0.0f : reference;
    float times = factor, base = T::kShift - finite;
    if (far) {
      TSR_UNROLL for (int n = 0; n < 2; ++n) {
        TSR_UNROLL for (int e = 0; e < wide::kSums; e += 2) {
          const float2v x = relative(float2v{score[n][e], score[n][e + 1]}, factor, finite);
          score[n][e] = x[0], score[n][e + 1] = x[1];
        }
      }
      times = 1, base = T::kShift;
    }
    float2v part = {0, 0};
    TSR_UNROLL for (int n = 0; n < 2; ++n) {
      TSR_UNROLL for (int e = 0; e < wide::kSums; e += 2) {
        const float2v x = __builtin_elementwise_fma(float2v{score[n][e], score[n][e + 1]}, float2v{times, times},
                                                    float2v{base, base});
        const float2v weights = {exp2_fast(x[0]), exp2_fast(x[1])};
        part += weights;
        p[n * 2 + e / 8][e % 8 / 2] = T::round(weights[0], weights[1]);
      }
    }
    sum += part[0] + part[1];
  }

  /// All tiles. Half 1 is a phase behind half 0. Most steps are those of the loop in the middle, of two so that buffers are
  /// constants in it, which fetches no tile that isn't whole and masks nothing.
  template <int kHalf>
  TSR_DEVICE void run(int tiles) {
    if constexpr (kHalf == 1) block_barrier();
    multiply_keys(0);
    block_barrier();
    if constexpr (kHalf == 1) fetch<false>(0, 0);
    soften<false>(0);
    block_barrier();
    // Step `tile` softens tile + 1 and fetches up to tile + 3.
    const int first_plain = (first_full > first_inside ? first_full : first_inside) / 2 * 2;
    const int behind_full = first_full + full_tiles - 1, behind_inside = first_inside + inside_tiles - 3;
    const int behind_plain = behind_full < behind_inside ? behind_full : behind_inside;
    int tile = 0;
    TSR_ROLLED for (int pass = 0; pass < 2; ++pass) {
      const int stop = pass == 0 && first_plain + 1 < behind_plain ? first_plain : tiles - 1;
      TSR_ROLLED for (; tile < stop; ++tile) step<kHalf, false>(tile & 1, tile);
      if (pass == 1) break;
      TSR_ROLLED for (; tile + 1 < behind_plain; tile += 2) {
        step<kHalf, true>(0, tile);
        step<kHalf, true>(1, tile + 1);
      }
    }
    multiply_values(tile & 1);
    if constexpr (kHalf == 0) block_barrier();
  }
  /// Operands are read a few products ahead of their use, not all at once, for which there are no registers; in pairs, of which
  /// the second is used first, so that one wait does for both.
  TSR_DEVICE static void order_multiplication() {
    constexpr int kMatrix = 8, kRead = 0x100, kReads = 2 * kSteps + 4 * kOutTiles, kAhead = 4, kTogether = 2;
    constexpr int kEach = wide::kWholeOperands ? 1 : 2;
    __builtin_amdgcn_sched_group_barrier(kRead, kAhead, 0);
    TSR_UNROLL for (int i = 0; i < kReads - kAhead; i += kTogether) {
      __builtin_amdgcn_sched_group_barrier(kMatrix, kEach * kTogether, 0);
      __builtin_amdgcn_sched_group_barrier(kRead, kTogether, 0);
    }
    __builtin_amdgcn_sched_group_barrier(kMatrix, kEach * kAhead, 0);
  }
  /// Sets out for what the two phases from 2 `tile` on do of memory: V of the tile behind, K of the one behind that, whose buffer
  /// is `tile`'s.
  template <bool kInside>
  TSR_DEVICE void fetch(int buffer, int tile) {
    load_values<kInside>(tile + 1);
    copy_keys<kInside>(buffer, tile + 2);
    if constexpr (kPaged) next_page(tile + 2);
  }
  TSR_DEVICE void arrive(int buffer) {
    store_values(buffer);
    wide::wait_for_copies();
  }
  /// The compiler moves arithmetic across barriers; here each phase is to keep its own.
  TSR_DEVICE static void end_phase() {
    __builtin_amdgcn_sched_barrier(0);
    block_barrier();
    __builtin_amdgcn_sched_barrier(0);
  }
  template <int kHalf, bool kPlain>
  TSR_DEVICE void step(int buffer, int tile) {
    if constexpr (kHalf == 0) fetch<kPlain>(buffer, tile);
    __builtin_amdgcn_s_setprio(1);
    multiply_keys(1 - buffer);
    multiply_values(buffer);
    order_multiplication();
    __builtin_amdgcn_s_setprio(0);
    if constexpr (kHalf == 1) arrive(1 - buffer);
    end_phase();
    if constexpr (kHalf == 1) fetch<kPlain>(1 - buffer, tile + 1);
    soften<kPlain>(tile + 1);
    if constexpr (kHalf == 0) arrive(1 - buffer);
    end_phase();
  }
};

TSR_DEVICE void store_4(Type type, char* row, int d, float4v x) {
  if (type == Type::kF32) {
    *reinterpret_cast<float4v*>(row + d * 4) = x;
  } else if (type == Type::kF16) {
    *reinterpret_cast<half4v*>(row + d * 2) = __builtin_convertvector(x, half4v);
  } else {
    *reinterpret_cast<word2v*>(row + d * 2) =
        word2v{bf16_bits(x[0]) | bf16_bits(x[1]) << 16, bf16_bits(x[2]) | bf16_bits(x[3]) << 16};
  }
}

template <class T, int kDim, bool kPaged>
TSR_DEVICE void attention(const Attention& a, const Tiling& t, int32_t chiplets, char* lds) {
  const Place place = place_of(a, t, chiplets, block_index());
  const int32_t b = place.batch, head = place.head, kv_head = head / a.group;
  const Sequence s = sequence_of(a, b);
  const int64_t first_query = place.tile * kRows;
  if (first_query >= (a.packed_q ? s.queries : a.query_rows)) return;

  typedef pipeline::Pipeline<T, kDim, kPaged> Pipe;
  Pipe pipe;
  pipe.lds = lds;
  pipe.lane = lane_index();
  pipe.wave = wave_index();
  const int lane = pipe.lane;
  const auto real_rows = [&](int64_t begin, int64_t count) {
    return Span{begin, begin + count < s.queries ? begin + count : s.queries};
  };
  const int64_t wave_query = first_query + pipe.wave * kWaveRows, query = wave_query + lane % 32;
  const bool real = query < s.queries;
  const Span seen = s.visibility.keys(real_rows(first_query, kRows));
  const Span common = s.visibility.common_keys(real_rows(wave_query, kWaveRows));
  const Span own = real ? s.visibility.keys(query) : Span{0, 0};
  const int64_t first_key = seen.begin / kKeys * kKeys;

  // With a negative scale it is -q that is multiplied: a maximum of scores is one of exponents then, too.
  // One of 0 becomes one that no score notices: 0 x -inf would be NaN.
  pipe.factor = larger(__builtin_fabsf(a.scale) * kLog2e, 1e-37f);
  const uint32_t sign = a.scale < 0 ? 0x80008000u : 0u;
  const char* const row = a.q.at(b, s.query_row + (real ? query : 0), head) + lane / 32 * 16;
  TSR_UNROLL for (int d = 0; d < Pipe::kSteps; ++d) {
    pipe.q[d] = real ? *reinterpret_cast<const Operand*>(row + d * 32) ^ sign : Operand{0, 0, 0, 0};
  }
  TSR_UNROLL for (int d = 0; d < Pipe::kOutTiles; ++d) {
    TSR_UNROLL for (int e = 0; e < wide::kSums; ++e) pipe.out[d][e] = 0;
  }
  pipe.reference = negative_infinity();
  pipe.sum = 0;
  pipe.far = false;

  if (!seen.empty()) {
    pipe.k = kPaged ? a.k.at(0, 0, kv_head) : a.k.at(b, s.key_row + first_key, kv_head);
    pipe.v = kPaged ? a.v.at(0, 0, kv_head) : a.v.at(b, s.key_row + first_key, kv_head);
    pipe.k_stride = a.k.row;
    pipe.v_stride = a.v.row;
    pipe.seen_begin = static_cast<int>(seen.begin - first_key);
    pipe.seen_end = static_cast<int>(seen.end - first_key);
    pipe.first_inside = pipe.seen_begin > 0 ? 1 : 0;
    pipe.inside_tiles = pipe.seen_end / kKeys - pipe.first_inside;
    const auto full = static_cast<int>(common.begin - first_key + kKeys - 1) / kKeys;
    const auto behind_full = static_cast<int>(common.end - first_key) / kKeys;
    pipe.first_full = full;
    pipe.full_tiles = !common.empty() && behind_full > full ? behind_full - full : 0;
    pipe.row_begin = static_cast<int>(own.begin - first_key);
    pipe.row_size = static_cast<int>(own.size());
    pipe.next_keys = pipe.k + pipe.wave * 8 * pipe.k_stride - Pipe::kBehind;
    pipe.next_values = pipe.v + pipe.wave * 8 * pipe.v_stride;
    pipe.prepare_addresses();
    const int tiles = (pipe.seen_end + kKeys - 1) / kKeys;
    if constexpr (kPaged) {
      pipe.page_table = a.page_table + b * a.page_table_stride;
      pipe.k_page_stride = a.k.batch;
      pipe.v_page_stride = a.v.batch;
      pipe.first_key = static_cast<int>(first_key);
      pipe.page_shift = __builtin_ctz(static_cast<uint32_t>(a.page_size));
      pipe.last_page = static_cast<int>(clamped(a.page_count - 1, 0, 0x7fffffff));
      pipe.look_up_pages();
    }
    pipe.template copy_keys<false>(0, 0);
    if constexpr (kPaged) pipe.next_page(0);
    pipe.template load_values<false>(0);
    pipe.template copy_keys<false>(1, 1);
    if constexpr (kPaged) pipe.next_page(1);
    pipe.arrive(0);
    block_barrier();
    if (pipe.wave < kWaves / 2) {
      pipe.template run<0>(tiles);
    } else {
      pipe.template run<1>(tiles);
    }
  }

  // The shift comes off here, not off the reference, which may be so large that it would be lost.
  const auto unshifted = [](float x) { return __builtin_ldexpf(x, -static_cast<int>(T::kShift)); };
  const float sum = unshifted(wide::sum_of_column(pipe.sum, lane));
  if (!real && (a.packed_q || query >= a.query_rows)) return;
  Ending ending = end_row(a, head, pipe.reference, sum);
  ending.factor = unshifted(ending.factor);
  if (!real) ending = {0.0f, negative_infinity()};
  char* const to = a.out.at(b, s.query_row + query, head);
  TSR_UNROLL for (int d = 0; d < Pipe::kOutTiles; ++d) {
    TSR_UNROLL for (int e = 0; e < wide::kSums; e += 4) {
      float4v x;
      // Chosen, not multiplied by 0: a row that saw nothing may hold 0 x NaN of another row's V.
      TSR_UNROLL for (int i = 0; i < 4; ++i) x[i] = ending.factor == 0 ? 0.0f : pipe.out[d][e + i] * ending.factor;
      store_4(a.out.type, to, d * 32 + wide::row_of(lane, e), x);
    }
  }
  if (lane < 32) store_lse(a, b, s.query_row + query, head, ending.lse);
}

}  // namespace tsr::hip::pipeline
#endif
