// Combines attention results over disjoint sets of keys by their lse. One warp for each row and head, lanes along the head
// dim; weights in fp32. An empty part (lse -inf) has weight 0 and isn't read.
#include "../kernels.h"
#include "convert.cuh"
#include "score.cuh"

namespace tsr::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kPiece = 256;  // head dims at a time

__global__ void __launch_bounds__(kWarps * 32) merge(const __grid_constant__ Merge p) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (item >= p.batch * p.rows * p.heads) return;
  const int64_t head = item % p.heads, row = item / p.heads % p.rows, b = item / p.heads / p.rows;
  const auto lse_of = [&](int part) { return __uint_as_float(load_u32(p.lses[part].at(b, row, head))); };

  float largest = TSR_NEG_INF;
  for (int i = 0; i < p.count; ++i) {
    const float lse = lse_of(i);
    if (lse > largest || isnan(lse)) largest = lse;  // and a NaN is never beaten: it shows
  }
  const bool empty = largest == TSR_NEG_INF;
  float sum = 0;
  for (int i = 0; i < p.count; ++i) sum += lse_of(i) == TSR_NEG_INF ? 0.0f : expf(lse_of(i) - largest);
  char* const to = p.out.at(b, row, head);
  // In pieces; each is read from every part before it is written, which may be in place.
  for (int first = 0; first < p.value_dim; first += kPiece) {
    float out[kPiece / 32] = {};
    for (int i = 0; i < p.count; ++i) {
      const float lse = lse_of(i);
      const float weight = lse == TSR_NEG_INF ? 0.0f : expf(lse - largest);
      if (weight == 0) continue;
      const char* const from = p.outs[i].at(b, row, head);
#pragma unroll
      for (int c = 0; c < kPiece / 32; ++c) {
        const int d = first + c * 32 + lane;
        if (d < p.value_dim) out[c] += weight * load_1(p.outs[i].type, from, d);
      }
    }
    __syncwarp();
#pragma unroll
    for (int c = 0; c < kPiece / 32; ++c) {
      const int d = first + c * 32 + lane;
      if (d < p.value_dim) store_1(p.out.type, to, d, empty ? 0.0f : out[c] / sum);
    }
  }
  // The lse may be that of a part, which every lane has read by now.
  __syncwarp();
  if (lane == 0 && p.lse.given()) {
    store_u32(p.lse.at(b, row, head), __float_as_uint(empty ? TSR_NEG_INF : largest + logf(sum)));
  }
}

}  // namespace

cudaError_t launch_merge(const Merge& p, cudaStream_t stream) {
  const int64_t blocks = (p.batch * p.rows * p.heads + kWarps - 1) / kWarps;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (blocks > 0) merge<<<static_cast<unsigned>(blocks), kWarps * 32, 0, stream>>>(p);
  return cudaPeekAtLastError();
}

}  // namespace tsr::cuda
