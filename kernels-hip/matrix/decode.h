// Attention of few queries against many keys on matrix instructions: q fp16 or bf16; k and v of q's type or f8_e4m3, or both in
// blocks (q8_0, q4_0). All options, any alignment.
//
// A block has 16 rows of one KV head, (query, head of the group) pairs as in plain/, and one split of its keys. Each of its
// wavefronts walks tiles of 32 keys (RDNA: 16) of its own, without LDS or barriers: keys and values go from memory to the registers where
// the products want them.
//   S^T = K Q^T    A: a lane loads neighbouring elements of its key's row; that those are the k of its operand is arranged by
//                  loading Q alike
//   O^T = V^T P^T  A: for each of the keys of its operand a lane loads kRun neighbouring elements of V's row, element j of each
//                  makes the operand of product j: row r of V^T is dim r * kRun + j there
// Blocks of 32 values: whole numbers are multiplied, exactly, and each block's products take K's scale; V is widened and, like P,
// split into two bf16 numbers, of whose products the smallest is left out.
// At the end the wavefronts' results are added up in LDS, in order.
#pragma once

#include "../common/split.h"
#include "instructions.h"

#if defined(TSR_MATRIX)
namespace tsr::hip::decode {

using matrix::Brain;
using matrix::kElements;
using matrix::kSums;
using matrix::row_of;
using matrix::Sum;

constexpr int kThreads = 256;
constexpr int kWaves = kThreads / kWave;
constexpr int kRows = 16;
constexpr int kGroups = kWave == 64 ? 2 : 1;  ///< of 16 keys in a tile
#if defined(TSR_RDNA3)
constexpr int kMostRun =
    4;  ///< neighbouring elements of V that are loaded at a time: an operand takes those of 16 keys
#else
constexpr int kMostRun = 8;
#endif
constexpr int kKeys = kGroups * 16;

// ---- where a lane's elements are

#if defined(TSR_CDNA)
constexpr int kUnit = 32;  ///< dims that are loaded at a time: two products of 16
constexpr int kLoad = 8;   ///< of which a lane has these
TSR_DEVICE int load_at(int lane) { return lane / 16 * 8; }
TSR_DEVICE int key_of(int lane, int e) { return lane / 16 * 4 + e; }  ///< of an operand's elements
#elif defined(TSR_RDNA4)
constexpr int kUnit = 16;
constexpr int kLoad = 8;
TSR_DEVICE int load_at(int lane) { return lane / 16 * 8; }
TSR_DEVICE int key_of(int lane, int e) { return lane / 16 * 8 + e; }
#else
constexpr int kUnit = 16;
constexpr int kLoad = 16;
TSR_DEVICE int load_at(int) { return 0; }
TSR_DEVICE int key_of(int, int e) { return e; }
#endif
constexpr int kProducts = kLoad / kElements;

/// Q takes registers that RDNA has better uses for.
constexpr bool kQueriesInLds = kWave == 32;
template <int kDim>
constexpr int query_bytes() {
  return kQueriesInLds ? kDim / kUnit * kWave * kLoad * 2 : 0;
}
template <int kDim>
constexpr int lds_bytes() {
  constexpr int kScores = kGroups * kSums * kThreads * 4, kResults = (kRows * (kDim + 4) + 2 * kWaves * kRows) * 4;
  return query_bytes<kDim>() + (kScores > kResults ? kScores : kResults);
}

// ---- 16-bit operands out of what is stored

TSR_DEVICE uint32_t low_halves(uint32_t x, uint32_t y) { return __builtin_amdgcn_perm(y, x, 0x05040100u); }
TSR_DEVICE uint32_t high_halves(uint32_t x, uint32_t y) { return __builtin_amdgcn_perm(y, x, 0x07060302u); }

/// kWords words at any alignment, in one load: memory beyond LDS takes any under HSA.
template <int kWords>
using WordsOf = uint32_t __attribute__((ext_vector_type(kWords)));
template <int kWords>
TSR_DEVICE WordsOf<kWords> load_words(const char* p) {
  typedef WordsOf<kWords> Unaligned __attribute__((aligned(1)));
  return *reinterpret_cast<const Unaligned*>(p);
}

TSR_DEVICE uint32_t load_scale(const char* p) {
  typedef uint16_t Unaligned __attribute__((aligned(1)));
  return *reinterpret_cast<const Unaligned*>(p);
}

/// Where the compiler would load ahead until RDNA has no registers left.
TSR_DEVICE void keep_order() {
  if (kWave == 32) __builtin_amdgcn_sched_barrier(0);
}

template <class T>
constexpr bool kIsHalf = T::kType == Type::kF16;

/// Two numbers that a 16-bit type holds exactly.
template <class T>
TSR_DEVICE uint32_t exact_pair(float x, float y) {
  if constexpr (kIsHalf<T>) return f16_bits(x) | f16_bits(y) << 16;
  return high_halves(bits_of<uint32_t>(x), bits_of<uint32_t>(y));
}

/// Bytes 2 kPair and 2 kPair + 1 of a word, e4m3fn.
template <int kPair>
TSR_DEVICE float2v f8_pair(uint32_t word) {
#if defined(TSR_OCP_F8)
  return __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), kPair != 0);
#else
  // gfx942 converts the other e4m3, without a negative zero and with another bias.
  return float2v{f8_value(word >> kPair * 16 & 0xffu), f8_value(word >> (kPair * 16 + 8) & 0xffu)};
#endif
}

/// kCount elements of a row from element i on, as pairs; i a multiple of kCount.
template <class T, int kCount>
TSR_DEVICE void load_pairs(Type type, const char* row, int i, uint32_t (&pairs)[kCount / 2]) {
  if (type == T::kType) {
    const auto words = load_words<kCount / 2>(row + i * 2);
    TSR_UNROLL for (int w = 0; w < kCount / 2; ++w) pairs[w] = words[w];
  } else {
    const auto words = load_words<kCount / 4>(row + i);
    TSR_UNROLL for (int w = 0; w < kCount / 4; ++w) {
      const float2v first = f8_pair<0>(words[w]), second = f8_pair<1>(words[w]);
      pairs[2 * w] = exact_pair<T>(first[0], first[1]);
      pairs[2 * w + 1] = exact_pair<T>(second[0], second[1]);
    }
  }
}

/// The whole numbers of a block of q4_0 or q8_0, as what they are above the least: four bytes a word. kCount of them, from the
/// block's element i on; i a multiple of kCount.
template <bool kNibbles, int kCount>
TSR_DEVICE WordsOf<kCount / 4> load_bytes(const char* block, int i) {
  auto words = load_words<kCount / 4>(block + 2 + (kNibbles ? i % 16 : i));
  const int shift = i < 16 ? 0 : 4;  // the first 16 are low nibbles
  TSR_UNROLL for (int w = 0; w < kCount / 4; ++w) {
    words[w] = kNibbles ? words[w] >> shift & 0x0f0f0f0fu : words[w] ^ 0x80808080u;
  }
  return words;
}
/// Such a byte in the low bits of 2^23 (or of fp16's 2^10) is that much more: no conversion, which takes the time of four
/// instructions, and exact.
template <bool kNibbles, int kByte>
TSR_DEVICE float integer_of(uint32_t bytes) {
  const uint32_t bits = __builtin_amdgcn_perm(0x4b000000u, bytes, 0x070c0c00u + kByte);
  return bits_of<float>(bits) - (8388608.0f + (kNibbles ? 8 : 128));
}
template <class T, bool kNibbles, int kPair>
TSR_DEVICE uint32_t integer_pair(uint32_t bytes) {
  if constexpr (kIsHalf<T>) {
    const uint32_t bits = __builtin_amdgcn_perm(0x64646464u, bytes, 0x04000400u + kPair * 0x00020002u + 0x00010000u);
    const auto least = static_cast<_Float16>(1024 + (kNibbles ? 8 : 128));
    return bits_of<uint32_t>(bits_of<half2v>(bits) - half2v{least, least});
  }
  return high_halves(bits_of<uint32_t>(integer_of<kNibbles, 2 * kPair>(bytes)),
                     bits_of<uint32_t>(integer_of<kNibbles, 2 * kPair + 1>(bytes)));
}

template <bool kNibbles>
constexpr int kBlockBytes = kNibbles ? 18 : 34;

/// x = high + low + at most 2^-16 x, either a bf16 number in the upper half of its word.
struct Split {
  uint32_t high, low;
};
TSR_DEVICE Split split_of(float x) {
  const uint32_t bits = bits_of<uint32_t>(x);
  // Infinity has no rest, which would be NaN: any finite one does.
  const float rest = larger(x - bits_of<float>(bits & 0xffff0000u), -1e38f);
  return {bits, bits_of<uint32_t>(rest) + 0x8000u};
}

template <class F>
TSR_DEVICE F fragment_of(const uint32_t (&words)[kElements / 2]) {
  struct {
    uint32_t of[kElements / 2];
  } all;
  TSR_UNROLL for (int w = 0; w < kElements / 2; ++w) all.of[w] = words[w];
  return bits_of<F>(all);
}

/// kLoad elements of a row from element i on, in runs of 8, those past `dim` as 0: without a branch, from where there are some.
template <class T>
TSR_DEVICE void load_unit(Type type, const char* row, int i, int dim, uint32_t (&pairs)[kLoad / 2]) {
  TSR_UNROLL for (int part = 0; part < kLoad / 8; ++part) {
    const int at = i + part * 8;
    uint32_t eight[4];
    load_pairs<T, 8>(type, row, at < dim ? at : 0, eight);
    TSR_UNROLL for (int w = 0; w < 4; ++w) pairs[part * 4 + w] = at < dim ? eight[w] : 0u;
  }
}

template <class T>
TSR_DEVICE Sum multiply_unit(const uint32_t (&a)[kLoad / 2], const uint32_t (&b)[kLoad / 2], Sum c) {
  typedef typename T::Fragment Fragment;
  TSR_UNROLL for (int i = 0; i < kProducts; ++i) {
    uint32_t x[kElements / 2], y[kElements / 2];
    TSR_UNROLL for (int w = 0; w < kElements / 2; ++w) {
      x[w] = a[i * kElements / 2 + w];
      y[w] = b[i * kElements / 2 + w];
    }
    c = matrix::multiply(fragment_of<Fragment>(x), fragment_of<Fragment>(y), c);
  }
  return c;
}

/// A wavefront's rows and what it has of their results.
template <class T, int kDim, bool kBlocks>
struct Decoder {
  static constexpr int kUnits = kDim / kUnit;
  static constexpr int kRun = kDim > 64 && !(kBlocks && kWave == 32) ? kMostRun : 4;
  static constexpr int kParts = kDim / (16 * kRun);

  int lane, column;
  char* queries;                  ///< in LDS
  uint32_t q[kUnits][kLoad / 2];  ///< if not there
  Sum out[kParts * kRun];
  float maximum, sum;

  TSR_DEVICE void load_queries(const char* row, int dim) {
    TSR_UNROLL for (int u = 0; u < kUnits; ++u) {
      load_unit<T>(T::kType, row, u * kUnit + load_at(lane), dim, q[u]);
      if (kQueriesInLds && thread_index() < kWave) {
        TSR_UNROLL for (int part = 0; part < kLoad / 8; ++part) {
          const uint32_t* const w = q[u] + part * 4;
          lds_store(queries + ((u * kWave + lane) * (kLoad / 8) + part) * 16, word4v{w[0], w[1], w[2], w[3]});
        }
      }
    }
    if (kQueriesInLds) block_barrier();
  }
  TSR_DEVICE Sum multiply_unit(const uint32_t (&a)[kLoad / 2], int u, Sum c) const {
    if constexpr (!kQueriesInLds) return decode::multiply_unit<T>(a, q[u], c);
    uint32_t b[kLoad / 2];
    TSR_UNROLL for (int part = 0; part < kLoad / 8; ++part) {
      const auto w = lds_load<word4v>(queries + ((u * kWave + lane) * (kLoad / 8) + part) * 16);
      TSR_UNROLL for (int i = 0; i < 4; ++i) b[part * 4 + i] = w[i];
    }
    return decode::multiply_unit<T>(a, b, c);
  }

  /// S^T of 16 keys; `row`: of key lane % 16.
  TSR_DEVICE Sum scores(Type type, int dim, const char* row) const {
    if constexpr (kBlocks)
      return type == Type::kQ4 ? scores_of_blocks<true>(dim, row) : scores_of_blocks<false>(dim, row);
    Sum score;
    TSR_UNROLL for (int e = 0; e < kSums; ++e) score[e] = 0;
    TSR_UNROLL for (int u = 0; u < kUnits; ++u) {
      uint32_t k[kLoad / 2];
      load_unit<T>(type, row, u * kUnit + load_at(lane), dim, k);
      score = multiply_unit(k, u, score);
    }
    return score;
  }
  template <bool kNibbles>
  TSR_DEVICE Sum scores_of_blocks(int dim, const char* row) const {
    Sum score;
    TSR_UNROLL for (int e = 0; e < kSums; ++e) score[e] = 0;
    TSR_UNROLL for (int block = 0; block < kDim / 32; ++block) {
      const bool given = block * 32 < dim;
      const char* const from = row + (given ? block * kBlockBytes<kNibbles> : 0);
      Sum part;
      TSR_UNROLL for (int e = 0; e < kSums; ++e) part[e] = 0;
      TSR_UNROLL for (int u = 0; u < 32 / kUnit; ++u) {
        uint32_t k[kLoad / 2];
        TSR_UNROLL for (int i = 0; i < kLoad / 8; ++i) {
          const auto bytes = load_bytes<kNibbles, 8>(from, u * kUnit + load_at(lane) + i * 8);
          TSR_UNROLL for (int w = 0; w < 2; ++w) {
            k[i * 4 + w * 2] = integer_pair<T, kNibbles, 0>(bytes[w]);
            k[i * 4 + w * 2 + 1] = integer_pair<T, kNibbles, 1>(bytes[w]);
          }
        }
        part = multiply_unit(k, block * (32 / kUnit) + u, part);
      }
      const float scale = given ? f16_value(load_scale(from)) : 0.0f;
      // Lanes 0 to 15 have the scales of keys 0 to 15.
      TSR_UNROLL for (int e = 0; e < kSums; ++e) {
        score[e] = __builtin_fmaf(part[e], from_lane(scale, row_of(lane, e)), score[e]);
      }
      keep_order();
    }
    return score;
  }

  /// O^T += V^T P^T of 16 keys; rows: of keys key_of(lane, e). Sums past value_dim are of other dims, and go nowhere.
  TSR_DEVICE void add_values(Type type, int value_dim, const char* const (&rows)[kElements], Sum p) {
    if constexpr (!kBlocks) {
      typedef typename T::Fragment Fragment;
      const Fragment weights = matrix::to_operand<T>(p, lane);
      TSR_UNROLL for (int part = 0; part < kParts; ++part) {
        const int wanted = (part * 16 + column) * kRun, at = wanted < value_dim ? wanted : 0;
        uint32_t v[kElements][kRun / 2];
        TSR_UNROLL for (int e = 0; e < kElements; ++e) load_pairs<T, kRun>(type, rows[e], at, v[e]);
        TSR_UNROLL for (int j = 0; j < kRun; ++j) {
          uint32_t words[kElements / 2];
          TSR_UNROLL for (int w = 0; w < kElements / 2; ++w) {
            const uint32_t x = v[2 * w][j / 2], y = v[2 * w + 1][j / 2];
            words[w] = j % 2 == 0 ? low_halves(x, y) : high_halves(x, y);
          }
          Sum& sums = out[part * kRun + j];
          sums = matrix::multiply(fragment_of<Fragment>(words), weights, sums);
        }
      }
    } else if (type == Type::kQ4) {
      add_blocks<true>(value_dim, rows, p);
    } else {
      add_blocks<false>(value_dim, rows, p);
    }
  }
  template <bool kNibbles>
  TSR_DEVICE void add_blocks(int value_dim, const char* const (&rows)[kElements], Sum p) {
    typedef Brain::Fragment Fragment;
    Sum rest;
    TSR_UNROLL for (int e = 0; e < kSums; ++e) rest[e] = p[e] - bf16_value(static_cast<uint16_t>(Brain::round(p[e])));
    const Fragment weights = matrix::to_operand<Brain>(p, lane), rests = matrix::to_operand<Brain>(rest, lane);
    TSR_UNROLL for (int part = 0; part < kParts; ++part) {
      const int wanted = (part * 16 + column) * kRun, at = wanted < value_dim ? wanted : 0;
      uint32_t high[kRun][kElements / 2], low[kRun][kElements / 2];
      TSR_UNROLL for (int w = 0; w < kElements / 2; ++w) {
        float v[2][kRun];
        TSR_UNROLL for (int e = 0; e < 2; ++e) {
          const char* const block = rows[2 * w + e] + at / 32 * kBlockBytes<kNibbles>;
          const auto bytes = load_bytes<kNibbles, kRun>(block, at % 32);
          const float scale = f16_value(load_scale(block));
          TSR_UNROLL for (int w4 = 0; w4 < kRun / 4; ++w4) {
            v[e][w4 * 4] = integer_of<kNibbles, 0>(bytes[w4]) * scale;
            v[e][w4 * 4 + 1] = integer_of<kNibbles, 1>(bytes[w4]) * scale;
            v[e][w4 * 4 + 2] = integer_of<kNibbles, 2>(bytes[w4]) * scale;
            v[e][w4 * 4 + 3] = integer_of<kNibbles, 3>(bytes[w4]) * scale;
          }
        }
        TSR_UNROLL for (int j = 0; j < kRun; ++j) {
          const Split x = split_of(v[0][j]), y = split_of(v[1][j]);
          high[j][w] = high_halves(x.high, y.high);
          low[j][w] = high_halves(x.low, y.low);
        }
      }
      TSR_UNROLL for (int j = 0; j < kRun; ++j) {
        const auto a = fragment_of<Fragment>(high[j]), b = fragment_of<Fragment>(low[j]);
        Sum& sums = out[part * kRun + j];
        sums = matrix::multiply(a, weights, sums);
        sums = matrix::multiply(b, weights, sums);
        sums = matrix::multiply(a, rests, sums);
      }
      keep_order();
    }
  }
};

template <class T, int kDim, bool kBlocks>
TSR_DEVICE void attention(const Attention& a, const Tiling& t, float* partials, char* lds) {
  const int64_t block = block_index();
  const Work work = work_of(a, t, block);
  const Sequence s = sequence_of(a, work.batch);
  const int64_t rows = s.queries * a.group;
  const int64_t first_row = static_cast<int64_t>(work.tile) * kRows;
  const int64_t last_row = first_row + kRows < rows ? first_row + kRows : rows;
  if (t.splits == 1 && last_row - first_row < kRows) clear_rows(a, s, work, first_row, kRows, kThreads);
  if (first_row >= last_row) return;

  Decoder<T, kDim, kBlocks> d;
  d.lane = lane_index();
  d.column = d.lane % 16;
  d.maximum = negative_infinity();
  d.sum = 0;
  TSR_UNROLL for (int i = 0; i < d.kParts * d.kRun; ++i) { TSR_UNROLL for (int e = 0; e < kSums; ++e) d.out[i][e] = 0; }
  const int lane = d.lane, wave = wave_index();
  const int64_t row = first_row + d.column;
  const bool real = row < last_row;
  const int64_t i = real ? row / a.group : 0;
  const int head = work.kv_head * a.group + static_cast<int>(real ? row % a.group : 0);
  const Span split = split_span(t, work.split);
  const Span row_keys = real ? intersect(s.visibility.keys(i), split) : Span{0, 0};
  d.queries = lds;
  // A row that isn't real is another's once more; it goes nowhere.
  d.load_queries(a.q.at(work.batch, s.query_row + i, head), a.dim);

  const bool plain = a.plain_score();
  const float scale = a.scale * (a.k_scale ? a.k_scale[work.kv_head] : 1.0f);
  const float factor = plain ? scale * kLog2e : scale;
  lds += query_bytes<kDim>();
  char* const own_scores = lds + thread_index() * 4;  // with options: every kThreads words
  constexpr int kSlotBytes = kThreads * 4;

  const Span queries{first_row / a.group, (last_row - 1) / a.group + 1};
  const Span seen = intersect(s.visibility.keys(queries), split);
  for (int64_t first = seen.begin / kKeys * kKeys + wave * kKeys; first < seen.end; first += kWaves * kKeys) {
    // Keys that no row sees are one that some row does, once more: hidden, and of weight 0.
    const auto least = static_cast<int>(clamped(seen.begin - first, 0, kKeys));
    const auto most = static_cast<int>(clamped(seen.end - first, 0, kKeys)) - 1;
    const auto place_of = [&](int key) {
      return key_place(a, s, work.batch, first + (key < least ? least : key < most ? key : most));
    };
    Sum score[kGroups];
    KeyPlace place[kGroups];
    TSR_UNROLL for (int n = 0; n < kGroups; ++n) {
      place[n] = place_of(n * 16 + d.column);
      score[n] = d.scores(a.k.type, a.dim, a.k.at(place[n].batch, place[n].row, work.kv_head));
    }

    const auto begin = static_cast<int>(clamped(row_keys.begin - first, 0, kKeys));
    const auto end = static_cast<int>(clamped(row_keys.end - first, 0, kKeys));
    if (plain) {
      TSR_UNROLL for (int n = 0; n < kGroups; ++n) {
        TSR_UNROLL for (int e = 0; e < kSums; ++e) {
          const int j = n * 16 + row_of(lane, e);
          score[n][e] = j >= begin && j < end ? score[n][e] * factor : negative_infinity();
        }
      }
    } else {
      // What options take is one copy in a loop, not one for each of the elements in registers.
      const RowOptions options = row_options(a, s, work.batch, i, head);
      TSR_UNROLL for (int x = 0; x < kGroups * kSums; ++x) {
        lds_store(own_scores + x * kSlotBytes, static_cast<float>(score[x / kSums][x % kSums]));
      }
      TSR_ROLLED for (int x = 0; x < kGroups * kSums; ++x) {
        char* const slot = own_scores + x * kSlotBytes;
        const int j = x / kSums * 16 + row_of(lane, x % kSums);
        lds_store(slot, j >= begin && j < end ? score_base2(options, lds_load<float>(slot) * factor, first + j)
                                              : negative_infinity());
      }
      TSR_UNROLL for (int x = 0; x < kGroups * kSums; ++x) {
        score[x / kSums][x % kSums] = lds_load<float>(own_scores + x * kSlotBytes);
      }
    }

    float next = d.maximum;
    TSR_UNROLL for (int x = 0; x < kGroups * kSums; ++x) next = larger(next, score[x / kSums][x % kSums]);
    next = matrix::max_of_column(next, lane);
    const float base = next == negative_infinity() ? 0.0f : next;
    const float rescale = exp2_fast(d.maximum - base);
    d.maximum = next;
    float part = 0;
    TSR_UNROLL for (int x = 0; x < kGroups * kSums; ++x) {
      const float weight = exp2_fast(score[x / kSums][x % kSums] - base);
      score[x / kSums][x % kSums] = weight;
      part += weight;
    }
    d.sum = d.sum * rescale + part;
    TSR_UNROLL for (int x = 0; x < d.kParts * d.kRun; ++x) d.out[x] *= rescale;

    TSR_UNROLL for (int n = 0; n < kGroups; ++n) {
      const char* v_rows[kElements];
      TSR_UNROLL for (int e = 0; e < kElements; ++e) {
        // A page is looked up once for each key, by the lane that has it in K.
        const int of = key_of(lane, e);
        const KeyPlace at =
            a.paged() ? KeyPlace{from_lane(place[n].batch, of), from_lane(place[n].row, of)} : place_of(n * 16 + of);
        v_rows[e] = a.v.at(at.batch, at.row, work.kv_head);
      }
      d.add_values(a.v.type, a.value_dim, v_rows, score[n]);
    }
  }
  d.sum = matrix::sum_of_column(d.sum, lane);

  // All wavefronts' maxima and sums, then their results, one after the other.
  char* const heads = lds + kRows * (kDim + 4) * 4;
  const auto head_at = [&](int of, int r) { return heads + (of * kRows + r) * 8; };
  block_barrier();
  if (lane < kRows) {
    lds_store(head_at(wave, lane), d.maximum);
    lds_store(head_at(wave, lane) + 4, d.sum);
  }
  block_barrier();
  float maximum = negative_infinity();
  TSR_UNROLL for (int w = 0; w < kWaves; ++w) maximum = larger(maximum, lds_load<float>(head_at(w, d.column)));
  const float own = exp2_fast(d.maximum - (maximum == negative_infinity() ? 0.0f : maximum));
  TSR_ROLLED for (int w = 0; w < kWaves; ++w) {
    if (w == wave) {
      TSR_UNROLL for (int x = 0; x < d.kParts * d.kRun; ++x) {
        TSR_UNROLL for (int e = 0; e < kSums; ++e) {
          const int at = (x / d.kRun * 16 + row_of(lane, e)) * d.kRun + x % d.kRun;
          char* const to = lds + (d.column * (kDim + 4) + at) * 4;
          // Chosen: a wavefront without keys adds nothing, not 0 x what its registers hold.
          const float mine = own == 0 ? 0.0f : d.out[x][e] * own;
          lds_store(to, w == 0 ? mine : lds_load<float>(to) + mine);
        }
      }
    }
    block_barrier();
  }

  const float v_scale = a.v_scale ? a.v_scale[work.kv_head] : 1.0f;
  constexpr int kTogether = kThreads / kRows;  // threads of a row
  const int r = thread_index() / kTogether, member = thread_index() % kTogether;
  const int64_t result = first_row + r;
  if (result >= last_row) return;
  float largest = negative_infinity(), sum = 0;
  TSR_UNROLL for (int w = 0; w < kWaves; ++w) largest = larger(largest, lds_load<float>(head_at(w, r)));
  TSR_UNROLL for (int w = 0; w < kWaves; ++w) {
    const float weight = exp2_fast(lds_load<float>(head_at(w, r)) - (largest == negative_infinity() ? 0.0f : largest));
    sum += lds_load<float>(head_at(w, r) + 4) * weight;
  }
  const auto out_at = [&](int at) { return lds_load<float>(lds + (r * (kDim + 4) + at) * 4); };
  if (t.splits > 1) {
    const Partial partial = partial_of(t, partials, block, r);
    if (member == 0) {
      partial.head[0] = largest;
      partial.head[1] = sum;
    }
    for (int at = member; at < a.value_dim; at += kTogether) partial.out[at] = out_at(at) * v_scale;
    return;
  }
  const int out_head = work.kv_head * a.group + static_cast<int>(result % a.group);
  const Ending ending = end_row(a, out_head, largest, sum);
  char* const to = a.out.at(work.batch, s.query_row + result / a.group, out_head);
  for (int at = member; at < a.value_dim; at += kTogether) {
    const float x = ending.factor == 0 ? 0.0f : out_at(at) * (ending.factor * v_scale);
    store_1(a.out.type, to, at, x);
  }
  if (member == 0) store_lse(a, work.batch, s.query_row + result / a.group, out_head, ending.lse);
}

}  // namespace tsr::hip::decode
#endif
