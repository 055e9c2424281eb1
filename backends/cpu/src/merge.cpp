// One item is one query row with all its heads. Weights and sums are double: merging costs next to nothing beside what it
// merges, and then adds no error worth naming.
#include "merge.h"

#include <cmath>
#include <limits>

#include "tessera/common/numeric.h"

namespace tsr::cpu {
namespace {

/// Fewer are read by the calling thread: some 10 us, in which another would only just wake.
constexpr int64_t kFewNumbers = 10'000;

std::byte* address(const View& view, int64_t batch, int64_t row, int64_t head) {
  const int64_t offset = batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
  return static_cast<std::byte*>(view.data) + row_bytes(view.dtype, offset);
}

// Weights exp(lse_i - max) / sum of all parts; 0 for an empty one, whose out is then not read. Returns the merged lse.
double weigh(const MergeProblem& p, int64_t batch, int64_t row, int64_t head, double* weights) {
  constexpr double kEmpty = -std::numeric_limits<double>::infinity();
  double largest = kEmpty;
  for (size_t i = 0; i < p.lses.size(); ++i) {
    float lse;
    load_row(TSR_F32, address(p.lses[i], batch, row, head), 1, &lse);
    weights[i] = lse;
    if (weights[i] > largest || std::isnan(weights[i])) largest = weights[i];  // and a NaN is never beaten: it shows
  }
  if (largest == kEmpty) {
    for (size_t i = 0; i < p.lses.size(); ++i) weights[i] = 0;
    return kEmpty;
  }
  double sum = 0;
  for (size_t i = 0; i < p.lses.size(); ++i) {
    weights[i] = weights[i] == kEmpty ? 0 : std::exp(weights[i] - largest);
    sum += weights[i];
  }
  for (size_t i = 0; i < p.lses.size(); ++i) weights[i] /= sum;
  return largest + std::log(sum);
}

void merge_row(const MergeProblem& p, int64_t batch, int64_t row, int64_t head, double* weights) {
  const auto lse = static_cast<float>(weigh(p, batch, row, head, weights));
  // In pieces, so that any head dim fits; each is read from every part before it is written, which may be in place.
  constexpr int64_t kPiece = 128;
  for (int64_t from = 0; from < p.value_dim; from += kPiece) {
    const int64_t count = p.value_dim - from < kPiece ? p.value_dim - from : kPiece;
    double sums[kPiece] = {};
    float values[kPiece];
    for (size_t i = 0; i < p.outs.size(); ++i) {
      if (weights[i] == 0) continue;
      const View& part = p.outs[i];
      load_row(part.dtype, address(part, batch, row, head) + row_bytes(part.dtype, from), count, values);
      for (int64_t d = 0; d < count; ++d) sums[d] += weights[i] * values[d];
    }
    for (int64_t d = 0; d < count; ++d) values[d] = static_cast<float>(sums[d]);
    store_row(p.out.dtype, values, count, address(p.out, batch, row, head) + row_bytes(p.out.dtype, from));
  }
  if (p.lse.given()) store_row(TSR_F32, &lse, 1, address(p.lse, batch, row, head));
}

}  // namespace

void merge_parts(const MergeProblem& p, ThreadPool& pool) {
  const size_t parts = p.outs.size();
  std::vector<double> weights(parts * static_cast<size_t>(pool.size()));
  const auto numbers = p.batch * p.rows * p.heads * p.value_dim * static_cast<int64_t>(parts);
  pool.run(
      p.batch * p.rows,
      [&](int64_t item, int worker) {
        for (int64_t head = 0; head < p.heads; ++head) {
          merge_row(p, item / p.rows, item % p.rows, head, weights.data() + parts * static_cast<size_t>(worker));
        }
      },
      numbers < kFewNumbers);
}

}  // namespace tsr::cpu
