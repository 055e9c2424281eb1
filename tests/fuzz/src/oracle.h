// The float64 answer to a fuzzed problem, written straight from docs/semantics.md: a second implementation, beside that of
// tests/conformance in TypeScript.
#pragma once

#include <string>
#include <vector>

#include "problem.h"

namespace fuzz {

/// One row of the result, and how far a kernel may be from it.
struct Row {
  int64_t out_row;  ///< of `out`, in row-major order of its leading dimensions
  int64_t lse_at;   ///< its element of a contiguous lse
  std::vector<double> out;
  double lse;
  bool checked = true;   ///< false: infinities among the scores, about which nothing is promised
  double underflow = 0;  ///< what fp32 can't tell from 0 or a neighbour, in each product and in the result
  /// Columns whose largest |v| times the visible keys is beyond fp32, so that the unnormalised sum may be: docs/semantics.md,
  /// "Empty, NaN and infinity". Empty if no key is seen.
  std::vector<bool> may_overflow;
  double rounding = 0;  ///< most that rounding P and the output by nearest may cost, whatever the luck
};

class Oracle {
 public:
  /// Solves every row, or a sample if that takes more than `work` multiplications. `flushes`: for variants that take elements of
  /// q, k and v below 2^-126 for 0, and sums too.
  Oracle(const Problem& problem, int64_t work, Random random, bool flushes);

  const std::vector<Row>& rows() const { return rows_; }
  /// What is wrong with the outputs of the problem as they are now; empty if nothing is. `deviation` becomes the largest
  /// error of `out`, in parts of its bound.
  std::string judge(double* deviation) const;

 private:
  Row solve(int64_t b, int64_t h, int64_t i);

  const Problem& p_;
  std::vector<float> q_, k_, v_, bias_, mask_, alibi_, sinks_, k_scale_, v_scale_;
  tsr_dtype p_type_;
  double score_underflow_ = 0;  ///< of sums that are taken for 0 on their way to a score
  bool flushes_;
  std::vector<Row> rows_;
  // Over all rows solved, what the bounds are made of (docs/semantics.md, "Numbers").
  double products_ = 0, shift_ = 0, largest_v_ = 0, forced_error_ = 0;
};

}  // namespace fuzz
