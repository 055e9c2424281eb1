// Combines attention results over disjoint sets of keys by their lse: 32 lanes for each row and head, along the head dim;
// weights in fp32. An empty part (lse -inf) has weight 0 and isn't read.
#pragma once

#include "score.h"
#include "split.h"

namespace tsr::hip {

TSR_DEVICE float exp_natural(float x) { return exp2_fast(x * kLog2e); }

TSR_DEVICE void merge(const Merge& p) {
  const int lane = thread_index() % 32;
  const int64_t item = static_cast<int64_t>(block_index()) * kMergeRows + thread_index() / 32;
  if (item >= p.batch * p.rows * p.heads) return;
  const int64_t head = item % p.heads, row = item / p.heads % p.rows, b = item / p.heads / p.rows;
  const auto lse_of = [&](int part) { return bits_of<float>(load_u32(p.lses[part].at(b, row, head))); };
  float largest = negative_infinity();
  for (int i = 0; i < p.count; ++i) {
    const float lse = lse_of(i);
    if (lse > largest || lse != lse) largest = lse;  // and a NaN is never beaten: it shows
  }
  const bool empty = largest == negative_infinity();
  const auto weight_of = [&](int part) {
    const float lse = lse_of(part);
    return lse == negative_infinity() ? 0.0f : exp_natural(lse - largest);
  };
  float sum = 0;
  for (int i = 0; i < p.count; ++i) sum += weight_of(i);
  const float lse = empty ? largest : largest + log2_fast(sum) * kLn2;

  // In pieces; a lane reads its elements of every part before it writes them, which may be in place.
  constexpr int kPiece = 256;
  char* const to = p.out.at(b, row, head);
  for (int first = 0; first < p.value_dim; first += kPiece) {
    float out[kPiece / 32] = {};
    for (int i = 0; i < p.count; ++i) {
      const float weight = weight_of(i);
      if (weight == 0) continue;
      const char* const from = p.outs[i].at(b, row, head);
      TSR_UNROLL for (int c = 0; c < kPiece / 32; ++c) {
        const int d = first + c * 32 + lane;
        if (d < p.value_dim) out[c] += weight * load_1(p.outs[i].type, from, d);
      }
    }
    TSR_UNROLL for (int c = 0; c < kPiece / 32; ++c) {
      const int d = first + c * 32 + lane;
      if (d < p.value_dim) store_1(p.out.type, to, d, empty ? 0.0f : out[c] / sum);
    }
  }
  // The lse may be that of a part: by now each of the 32 lanes has read it, in lockstep or behind this point.
  __builtin_amdgcn_wave_barrier();
  if (lane == 0 && p.lse.given()) store_u32(p.lse.at(b, row, head), bits_of<uint32_t>(lse));
}

}  // namespace tsr::hip
