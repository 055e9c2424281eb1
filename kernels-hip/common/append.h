// Writes new keys and values at the end of their caches: rotated, scaled, converted; rotates queries on the way.
//
// One block for a token. Its angles are computed once, in double, and used by every head of k and q; then 32 lanes at a time
// take rows (k, v and q heads) in turn: a row is widened to fp32, rotated, and rounded once to what it is stored as. The row is
// kept in LDS, because pairs of a rotation and blocks of 32 of a quantiser cross lanes.
#pragma once

#include "../kernel_arguments.h"
#include "convert.h"
#include "rotary.h"

namespace tsr::hip {

constexpr int kAppendThreads = 128;
constexpr int kAppendDim = 256;
constexpr int kAppendTeams = kAppendThreads / 32;  ///< of 32 lanes, whatever the wavefront is
constexpr int kAppendLdsBytes = kAppendDim / 2 * 8 + kAppendTeams * kAppendDim * 4;

struct Token {
  int64_t batch;
  int64_t row;    ///< in k, v and q
  int64_t index;  ///< among the new tokens of its sequence
};

/// Real new tokens of batch entry b, clamped to what the tensors hold.
TSR_DEVICE int64_t new_count(const Append& p, int64_t b) {
  if (p.packed) {
    const int64_t begin = clamped(p.cu_seqlens[b], 0, p.rows);
    return clamped(clamped(p.cu_seqlens[b + 1], 0, p.rows) - begin, 0, p.rows);
  }
  return p.new_lens ? clamped(p.new_lens[b], 0, p.rows) : p.rows;
}

/// False for padding.
TSR_DEVICE bool find_token(const Append& p, int64_t item, Token* token) {
  if (!p.packed) {
    *token = {item / p.rows, item % p.rows, item % p.rows};
    return token->index < new_count(p, token->batch);
  }
  // The last sequence that starts at or before the row; those of no length before it start there too.
  int64_t low = 0, high = p.batch;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (p.cu_seqlens[middle] <= item ? low : high) = middle;
  }
  *token = {low, item, item - p.cu_seqlens[low]};
  return token->index >= 0 && token->index < new_count(p, low);
}

/// The largest magnitude of the 32 lanes of a team, its value with its sign (of equals the first lane's), and whether there is a
/// NaN.
struct Extreme {
  float magnitude;
  float value;
  bool nan;
};
TSR_DEVICE float largest_of_team(float x) {
  x = larger(x, exchange<1>(x));
  x = larger(x, exchange<2>(x));
  x = larger(x, exchange<4>(x));
  x = larger(x, exchange<8>(x));
  return larger(x, exchange<16>(x));
}
TSR_DEVICE Extreme extreme_of_team(float x) {
  const float mine = x != x ? 0.0f : __builtin_fabsf(x);
  const float most = largest_of_team(mine);
  const bool nan = largest_of_team(x != x ? 1.0f : 0.0f) != 0;
  // The smallest number of a lane that has it.
  const float first = largest_of_team(mine == most ? -static_cast<float>(thread_index() % 32) : -32.0f);
  const int lane = (lane_index() & ~31) + static_cast<int>(-first);
  return {most, from_lane(x, lane & (kWave - 1)), nan};
}

// As in backends/common/src/numeric.cpp, to the bit: one rounding for each operation, nothing contracted.
TSR_DEVICE float quotient(float x, float y) {
#pragma clang fp contract(off)
  return x / y;
}
TSR_DEVICE float inverse(float d) {
  return d != 0 && __builtin_fabsf(d) != __builtin_inff() && d == d ? quotient(1.0f, d) : 0.0f;
}
TSR_DEVICE float scaled(float value, float inverse) {
#pragma clang fp contract(off)
  const float s = value * inverse;
  return __builtin_fabsf(s) < __builtin_inff() ? s : 0.0f;
}

TSR_DEVICE void store_q8(const char* row, int dim, char* to) {
  const int lane = thread_index() % 32;
  for (int i = 0; i < dim; i += 32, to += 34) {
    const float x = lds_load<float>(row + (i + lane) * 4);
    const Extreme e = extreme_of_team(x);
    const float d = quotient(e.magnitude, 127.0f);
    const float id = e.nan ? 0.0f : inverse(d);
    if (lane == 0) store_u16(to, e.nan ? 0x7e00u : f16_bits(d));
    to[2 + lane] = static_cast<char>(static_cast<int8_t>(__builtin_roundf(scaled(x, id))));
  }
}

TSR_DEVICE int nibble_of(float s) {
#pragma clang fp contract(off)
  const int q = static_cast<int>(s + 8.5f);
  return q < 15 ? q : 15;
}
TSR_DEVICE void store_q4(const char* row, int dim, char* to) {
  const int lane = thread_index() % 32;
  for (int i = 0; i < dim; i += 32, to += 18) {
    const float x = lds_load<float>(row + (i + lane) * 4);
    const Extreme e = extreme_of_team(x);
    const float d = quotient(e.magnitude == 0 ? 0.0f : e.value, -8.0f);
    const float id = e.nan ? 0.0f : inverse(d);
    if (lane == 0) store_u16(to, e.nan ? 0x7e00u : f16_bits(d));
    const int nibble = nibble_of(scaled(x, id));
    const int high = bits_of<int>(exchange<16>(bits_of<float>(nibble)));
    if (lane < 16) to[2 + lane] = static_cast<char>(nibble | high << 4);
  }
}

TSR_DEVICE void store_row(Type type, const char* row, int dim, char* to) {
  const int lane = thread_index() % 32;
  switch (type) {
    case Type::kQ8:
      store_q8(row, dim, to);
      break;
    case Type::kQ4:
      store_q4(row, dim, to);
      break;
    case Type::kF8:
      for (int d = lane; d < dim; d += 32) to[d] = static_cast<char>(f8_bits(lds_load<float>(row + d * 4)));
      break;
    default:
      for (int d = lane; d < dim; d += 32) store_1(type, to, d, lds_load<float>(row + d * 4));
  }
}

/// Every thread of the block takes the same number of barriers: rows are dealt out in rounds.
TSR_DEVICE void append(const AppendArguments& arguments, char* lds) {
  const Append& p = arguments.append;
  char* const angles = lds;  // cosine, sine of each pair
  const int team = thread_index() / 32, lane = thread_index() % 32;
  char* const row = lds + kAppendDim / 2 * 8 + team * kAppendDim * 4;

  Token token;
  if (!find_token(p, block_index(), &token)) return;  // the same for the whole block
  const int64_t slot = p.lengths[token.batch] + token.index;
  // A cache that is full keeps what it has; the host could not look.
  const bool room = slot >= 0 && slot < p.capacity;
  const int64_t position = p.positions ? p.positions[token.batch * p.positions_stride + token.row] : slot;
  for (int i = thread_index(); i < p.rope_dims / 2; i += kAppendThreads) {
    const Turn turn = turn_of(static_cast<double>(position) * (p.rope_scale * power(arguments.ratio, i)));
    lds_store(angles + i * 8, turn.cosine);
    lds_store(angles + i * 8 + 4, turn.sine);
  }
  int64_t page = token.batch, place = slot;
  if (p.paged() && room) {
    page = clamped(p.page_table[token.batch * p.page_table_stride + slot / p.page_size], 0, p.page_count - 1);
    place = slot % p.page_size;
  }

  const int items = 2 * p.kv_heads + p.heads;
  for (int first = 0; first < items; first += kAppendTeams) {
    const int item = first + team;
    const bool query = item >= 2 * p.kv_heads, key = !query && item % 2 == 0;
    const bool busy = item < items && (query || room);
    const int head = query ? item - 2 * p.kv_heads : item / 2;
    const int dim = query || key ? p.dim : p.value_dim;
    const View& from = query ? p.q : key ? p.k : p.v;
    block_barrier();  // angles are there; the rows before have been stored
    for (int d = lane; busy && d < dim; d += 32) {
      lds_store(row + d * 4, load_1(from.type, from.at(token.batch, token.row, head), d));
    }
    block_barrier();
    if (busy && (query || key)) {
      const int pairs = p.rope_dims / 2;
      for (int i = lane; i < pairs; i += 32) {
        char* const first_at = row + (p.rope_interleaved ? 2 * i : i) * 4;
        char* const second_at = row + (p.rope_interleaved ? 2 * i + 1 : i + pairs) * 4;
        const float cosine = lds_load<float>(angles + i * 8), sine = lds_load<float>(angles + i * 8 + 4);
        const float x = lds_load<float>(first_at), y = lds_load<float>(second_at);
        lds_store(first_at, x * cosine - y * sine);
        lds_store(second_at, x * sine + y * cosine);
      }
    }
    block_barrier();
    const float* const scales = query ? nullptr : key ? p.k_scale : p.v_scale;
    if (busy && scales != nullptr) {
      for (int d = lane; d < dim; d += 32) lds_store(row + d * 4, quotient(lds_load<float>(row + d * 4), scales[head]));
    }
    if (busy) {
      const View& to = query ? p.q_out : key ? p.cache_k : p.cache_v;
      store_row(to.type, row, dim, query ? to.at(token.batch, token.row, head) : to.at(page, place, head));
    }
  }
}

/// After every block of append has read the lengths: the stream orders the two.
TSR_DEVICE void advance(const Append& p) {
  const int64_t b = static_cast<int64_t>(block_index()) * kAppendThreads + thread_index();
  if (b >= p.batch) return;
  p.lengths[b] = static_cast<int32_t>(clamped(p.lengths[b] + new_count(p, b), 0, p.capacity));
}

}  // namespace tsr::hip
