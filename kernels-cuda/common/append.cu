// Writes new keys and values at the end of their caches: rotated, scaled, converted; rotates queries on the way.
//
// One block for a token. Its angles are computed once, in double, and used by every head of k and q; then each warp takes
// rows (k, v and q heads) in turn: a row is widened to fp32, rotated, and rounded once to what it is stored as. The row is
// kept in shared memory, because pairs of a rotation and blocks of 32 of a quantiser cross lanes.
#include "../kernels.h"
#include "convert.cuh"

namespace tsr::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxDim = 256;

struct Token {
  int64_t batch;
  int64_t row;    ///< in k, v and q
  int64_t index;  ///< among the new tokens of its sequence
};

/// Real new tokens of batch entry b, clamped to what the tensors hold.
__device__ int64_t new_count(const Append& p, int64_t b) {
  if (p.packed) {
    const int64_t begin = clamped(p.cu_seqlens[b], 0, p.rows);
    return clamped(clamped(p.cu_seqlens[b + 1], 0, p.rows) - begin, 0, p.rows);
  }
  return p.new_lens ? clamped(p.new_lens[b], 0, p.rows) : p.rows;
}

/// False for padding.
__device__ bool find_token(const Append& p, int64_t item, Token* token) {
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

/// Sum, or the value of the largest magnitude, of 32 lanes' blocks in one warp.
struct Extreme {
  float magnitude;
  float value;  ///< signed; of equals the first
  bool nan;
};
__device__ Extreme extreme_of_block(float x) {
  Extreme e;
  e.nan = __any_sync(~0u, isnan(x)) != 0;
  const float mine = isnan(x) ? 0.0f : fabsf(x);
  float most = mine;
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  const int lane = __ffs(static_cast<int>(__ballot_sync(~0u, mine == most))) - 1;
  e.magnitude = most;
  e.value = __shfl_sync(~0u, x, lane);
  return e;
}

// As in backends/common/src/numeric.cpp, to the bit: one rounding for each operation, nothing contracted.
__device__ float inverse(float d) { return d != 0 && isfinite(d) ? __fdiv_rn(1.0f, d) : 0.0f; }
__device__ float scaled(float value, float inverse) {
  const float s = __fmul_rn(value, inverse);
  return isfinite(s) ? s : 0.0f;
}

__device__ void store_q8(const float* row, int dim, char* to) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < dim; i += 32, to += 34) {
    const float x = row[i + lane];
    const Extreme e = extreme_of_block(x);
    const float d = __fdiv_rn(e.magnitude, 127.0f);
    const float id = e.nan ? 0.0f : inverse(d);
    if (lane == 0) store_u16(to, e.nan ? 0x7e00 : __half_as_ushort(__float2half_rn(d)));
    to[2 + lane] = static_cast<char>(static_cast<int8_t>(roundf(scaled(x, id))));
  }
}

__device__ void store_q4(const float* row, int dim, char* to) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < dim; i += 32, to += 18) {
    const float x = row[i + lane];
    const Extreme e = extreme_of_block(x);
    const float d = __fdiv_rn(e.magnitude == 0 ? 0.0f : e.value, -8.0f);
    const float id = e.nan ? 0.0f : inverse(d);
    if (lane == 0) store_u16(to, e.nan ? 0x7e00 : __half_as_ushort(__float2half_rn(d)));
    const int q = static_cast<int>(__fadd_rn(scaled(x, id), 8.5f));
    const int nibble = q < 15 ? q : 15;
    const int high = __shfl_down_sync(~0u, nibble, 16);
    if (lane < 16) to[2 + lane] = static_cast<char>(nibble | high << 4);
  }
}

__device__ void store_row(Type type, const float* row, int dim, char* to) {
  const int lane = threadIdx.x % 32;
  switch (type) {
    case Type::kQ8:
      store_q8(row, dim, to);
      break;
    case Type::kQ4:
      store_q4(row, dim, to);
      break;
    case Type::kF8:
      for (int d = lane; d < dim; d += 32) {
        to[d] = static_cast<char>(__nv_cvt_float_to_fp8(row[d], __NV_SATFINITE, __NV_E4M3));
      }
      break;
    default:
      for (int d = lane; d < dim; d += 32) store_1(type, to, d, row[d]);
  }
}

__device__ void load_and_rotate(const Append& p, const View& view, const Token& token, int head, int dim, bool rotates,
                                const float2* angles, float* row) {
  const int lane = threadIdx.x % 32;
  const char* const from = view.at(token.batch, token.row, head);
  __syncwarp();  // the row before has been stored
  for (int d = lane; d < dim; d += 32) row[d] = load_1(view.type, from, d);
  __syncwarp();
  if (!rotates) return;
  const int pairs = p.rope_dims / 2;
  for (int i = lane; i < pairs; i += 32) {
    float& first = row[p.rope_interleaved ? 2 * i : i];
    float& second = row[p.rope_interleaved ? 2 * i + 1 : i + pairs];
    const float x = first, y = second;
    first = x * angles[i].x - y * angles[i].y;
    second = x * angles[i].y + y * angles[i].x;
  }
  __syncwarp();
}

/// One token a sequence: the one block that reads a length may write it. Saves a step of generation a launch.
__host__ __device__ bool advances_itself(const Append& p) { return p.advance && !p.packed && p.rows == 1; }

__global__ void __launch_bounds__(kWarps * 32) append(const __grid_constant__ Append p) {
  __shared__ float2 angles[kMaxDim / 2];  // cosine, sine
  __shared__ float rows[kWarps][kMaxDim];
  Token token;
  if (!find_token(p, blockIdx.x, &token)) return;
  const int64_t slot = p.lengths[token.batch] + token.index;
  const bool room = slot >= 0 && slot < p.capacity;
  const int64_t position = p.positions ? p.positions[token.batch * p.positions_stride + token.row] : slot;
  for (int i = threadIdx.x; i < p.rope_dims / 2; i += kWarps * 32) {
    const double turn = p.rope_scale * pow(p.rope_theta, -2.0 * i / p.rope_dims);
    double sine, cosine;
    sincos(static_cast<double>(position) * turn, &sine, &cosine);
    angles[i] = {static_cast<float>(cosine), static_cast<float>(sine)};
  }
  __syncthreads();
  if (advances_itself(p) && threadIdx.x == 0) {
    p.lengths[token.batch] = static_cast<int32_t>(clamped(slot + 1, 0, p.capacity));
  }

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* const row = rows[warp];
  int64_t page = token.batch, place = slot;
  if (p.paged() && room) {
    page = clamped(p.page_table[token.batch * p.page_table_stride + slot / p.page_size], 0, p.page_count - 1);
    place = slot % p.page_size;
  }
  const auto divide = [&](const float* scales, int head, int dim) {
    if (scales == nullptr) return;
    for (int d = lane; d < dim; d += 32) row[d] = __fdiv_rn(row[d], scales[head]);
    __syncwarp();
  };
  // A cache that is full keeps what it has; the host could not look.
  for (int item = warp; item < 2 * p.kv_heads + p.heads; item += kWarps) {
    if (item < 2 * p.kv_heads) {
      const int head = item / 2;
      const bool key = item % 2 == 0;
      const int dim = key ? p.dim : p.value_dim;
      if (!room) continue;
      load_and_rotate(p, key ? p.k : p.v, token, head, dim, key, angles, row);
      divide(key ? p.k_scale : p.v_scale, head, dim);
      const View& cache = key ? p.cache_k : p.cache_v;
      store_row(cache.type, row, dim, cache.at(page, place, head));
    } else {
      const int head = item - 2 * p.kv_heads;
      load_and_rotate(p, p.q, token, head, p.dim, true, angles, row);
      store_row(p.q_out.type, row, p.dim, p.q_out.at(token.batch, token.row, head));
    }
  }
}

/// After every block of append has read the lengths: the stream orders the two.
__global__ void advance(const __grid_constant__ Append p) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (b >= p.batch) return;
  p.lengths[b] = static_cast<int32_t>(clamped(p.lengths[b] + new_count(p, b), 0, p.capacity));
}

}  // namespace

cudaError_t launch_append(const Append& p, cudaStream_t stream) {
  const int64_t tokens = p.packed ? p.rows : p.batch * p.rows;
  if (tokens > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (tokens > 0) append<<<static_cast<unsigned>(tokens), kWarps * 32, 0, stream>>>(p);
  cudaError_t error = cudaPeekAtLastError();
  if (error == cudaSuccess && p.advance && !advances_itself(p) && p.batch > 0) {
    advance<<<static_cast<unsigned>((p.batch + 127) / 128), 128, 0, stream>>>(p);
    error = cudaPeekAtLastError();
  }
  return error;
}

}  // namespace tsr::cuda
