// One item is one token: its angles are computed once, in double, and used by every head of k and q. A row is widened to
// fp32, rotated, and rounded once to what it is stored as.
#include "append.h"

#include <algorithm>
#include <cmath>

#include "tessera/common/numeric.h"

namespace tsr::cpu {
namespace {

constexpr int kMaxDim = 512;

/// Fewer are written by the calling thread: some 10 us, in which another would only just wake.
constexpr int64_t kFewNumbers = 10'000;

struct Frequencies {
  double turn[kMaxDim / 2];  ///< radians per position, of each pair

  explicit Frequencies(const AppendProblem::Rope& rope) {
    for (int i = 0; i < rope.dims / 2; ++i) turn[i] = rope.scale * std::pow(rope.theta, -2.0 * i / rope.dims);
  }
};

struct Angles {
  float cosine[kMaxDim / 2];
  float sine[kMaxDim / 2];

  Angles(const Frequencies& frequencies, int pairs, double position) {
    for (int i = 0; i < pairs; ++i) {
      const double angle = position * frequencies.turn[i];
      cosine[i] = static_cast<float>(std::cos(angle));
      sine[i] = static_cast<float>(std::sin(angle));
    }
  }
};

void rotate(const AppendProblem::Rope& rope, const Angles& angles, float* row) {
  const int pairs = rope.dims / 2;
  const int first_step = rope.interleaved ? 2 : 1;
  const int to_second = rope.interleaved ? 1 : pairs;
  for (int i = 0; i < pairs; ++i) {
    float& first = row[i * first_step];
    float& second = row[i * first_step + to_second];
    const float x = first, y = second;
    first = x * angles.cosine[i] - y * angles.sine[i];
    second = x * angles.sine[i] + y * angles.cosine[i];
  }
}

// Strides of block formats are multiples of 32 elements, so an offset is a whole number of blocks.
std::byte* address(const View& view, int64_t batch, int64_t row, int64_t head) {
  const int64_t offset = batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
  return static_cast<std::byte*>(view.data) + row_bytes(view.dtype, offset);
}

struct Token {
  int64_t batch;
  int64_t row;    ///< in k, v and q
  int64_t index;  ///< among the new tokens of its sequence
};

// False for padding.
bool find_token(const AppendProblem& p, int64_t item, Token* token) {
  if (p.packed) {
    const int32_t* const starts = p.cu_seqlens;
    // The last sequence that starts at or before the row; those of no length before it start there too.
    const int64_t b = std::upper_bound(starts, starts + p.batch + 1, item) - starts - 1;
    *token = {b, item, item - starts[b]};
    return true;
  }
  *token = {item / p.rows, item % p.rows, item % p.rows};
  return token->index < p.new_count(token->batch);
}

void append_token(const AppendProblem& p, const Frequencies& frequencies, const Token& token) {
  const int64_t slot = p.lengths[token.batch] + token.index;
  double position = static_cast<double>(slot);
  if (p.rope.positions != nullptr) position = p.rope.positions[token.batch * p.rope.positions_stride + token.row];
  const Angles angles(frequencies, p.rope.dims / 2, position);

  const int64_t page = p.paged() ? p.page_table[token.batch * p.page_table_stride + slot / p.page_size] : token.batch;
  const int64_t place = p.paged() ? slot % p.page_size : slot;
  float row[kMaxDim];
  const auto scaled = [&](const float* scales, int64_t head, int64_t count) {
    if (scales == nullptr) return;
    for (int64_t d = 0; d < count; ++d) row[d] /= scales[head];
  };
  for (int64_t head = 0; head < p.kv_heads; ++head) {
    load_row(p.k.dtype, address(p.k, token.batch, token.row, head), p.dim, row);
    rotate(p.rope, angles, row);
    scaled(p.k_scale, head, p.dim);
    store_row(p.cache_k.dtype, row, p.dim, address(p.cache_k, page, place, head));
    load_row(p.v.dtype, address(p.v, token.batch, token.row, head), p.value_dim, row);
    scaled(p.v_scale, head, p.value_dim);
    store_row(p.cache_v.dtype, row, p.value_dim, address(p.cache_v, page, place, head));
  }
  for (int64_t head = 0; head < p.heads; ++head) {
    load_row(p.q.dtype, address(p.q, token.batch, token.row, head), p.dim, row);
    rotate(p.rope, angles, row);
    store_row(p.q_out.dtype, row, p.dim, address(p.q_out, token.batch, token.row, head));
  }
}

}  // namespace

void append(const AppendProblem& p, ThreadPool& pool) {
  const Frequencies frequencies(p.rope);
  const int64_t tokens = p.packed ? p.rows : p.batch * p.rows;
  const int64_t numbers = tokens * (p.kv_heads * (p.dim + p.value_dim) + p.heads * p.dim);
  pool.run(
      tokens,
      [&](int64_t item, int) {
        Token token;
        if (find_token(p, item, &token)) append_token(p, frequencies, token);
      },
      numbers < kFewNumbers);
  if (!p.advance) return;
  for (int64_t b = 0; b < p.batch; ++b) p.lengths[b] += static_cast<int32_t>(p.new_count(b));
}

}  // namespace tsr::cpu
