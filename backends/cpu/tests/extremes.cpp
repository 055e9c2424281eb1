// Numbers that some arithmetic loses: subnormal and enormous ones, whose products are ordinary. Every variant that runs here
// has to compute them as float64 does.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "exact_kernels.h"
#include "tessera/common/numeric.h"
#include "tessera/tessera.h"

namespace {

constexpr int64_t kQueries = 40;
constexpr int64_t kKeys = 70;
constexpr int64_t kDim = 32;

struct Case {
  const char* name;
  tsr_dtype dtype;
  float q, k, v;  ///< what ordinary numbers are multiplied by
};

constexpr Case kCases[] = {
    {"ordinary bf16", TSR_BF16, 1, 1, 1},
    {"ordinary f32", TSR_F32, 1, 1, 1},
    {"subnormal bf16 keys", TSR_BF16, 0x1p126f, 0x1p-127f, 1},
    {"subnormal bf16 queries", TSR_BF16, 0x1p-127f, 0x1p126f, 1},
    {"subnormal bf16 values", TSR_BF16, 1, 1, 0x1p-127f},
    {"small bf16 values", TSR_BF16, 1, 1, 0x1p-122f},
    {"f16 values that are subnormal in f16", TSR_F16, 1, 1, 0x1p-16f},
    {"tiny f32 keys", TSR_F32, 0x1p115f, 0x1p-117f, 1},
    {"enormous f32 keys", TSR_F32, 0x1p-126f, 0x1p126f, 1},
    {"tiny f32 values", TSR_F32, 1, 1, 0x1p-118f},
    {"enormous f32 values", TSR_F32, 1, 1, 0x1p125f},
};

struct Data {
  std::vector<uint8_t> bytes;
  std::vector<double> values;  ///< as stored
  tsr_tensor tensor{};
};

Data make(tsr_dtype dtype, int64_t rows, float factor, int seed) {
  Data data;
  const size_t size = dtype == TSR_F32 ? 4 : 2;
  for (int64_t i = 0; i < rows * kDim; i++) {
    const float x = factor * static_cast<float>(1.5 * std::sin(static_cast<double>(i * seed) * 0.37 + seed));
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (dtype != TSR_F32) bits = dtype == TSR_F16 ? tsr::f32_to_f16(x) : tsr::f32_to_bf16(x);
    for (size_t byte = 0; byte < size; byte++) data.bytes.push_back(static_cast<uint8_t>(bits >> (8 * byte)));
    const auto half = static_cast<uint16_t>(bits);
    data.values.push_back(dtype == TSR_F32 ? x : dtype == TSR_F16 ? tsr::f16_to_f32(half) : tsr::bf16_to_f32(half));
  }
  data.tensor = {sizeof(tsr_tensor),           dtype, data.bytes.data(), 4, 0, {1, rows, 1, kDim},
                 {rows * kDim, kDim, kDim, 1}, 0};
  return data;
}

/// Largest error as a share of the largest value.
double error_of(const tsr_backend& backend, tsr_context* context, const char* kernel, const Case& c) {
  Data q = make(c.dtype, kQueries, c.q, 1), k = make(c.dtype, kKeys, c.k, 2), v = make(c.dtype, kKeys, c.v, 3);
  std::vector<float> result(kQueries * kDim, NAN);
  tsr_tensor out = q.tensor;
  out.dtype = TSR_F32;
  out.data = result.data();
  tsr_attention_desc desc{};
  desc.struct_size = sizeof desc;
  desc.q = &q.tensor;
  desc.k = &k.tensor;
  desc.v = &v.tensor;
  desc.out = &out;
  desc.kernel = kernel;
  uint64_t bytes = 0;
  if (backend.attention_workspace(context, &desc, &bytes) != TSR_OK) return INFINITY;
  std::vector<uint8_t> memory(bytes + 64, 0xff);
  desc.workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  desc.workspace_bytes = bytes;
  if (backend.attention(context, nullptr, &desc) != TSR_OK) return INFINITY;

  double worst = 0, largest = 0;
  for (const double x : v.values) largest = std::fmax(largest, std::fabs(x));
  for (int64_t i = 0; i < kQueries; i++) {
    std::vector<double> weights;
    double sum = 0, top = -INFINITY;
    for (int64_t j = 0; j < kKeys; j++) {
      double score = 0;
      for (int64_t d = 0; d < kDim; d++) {
        score += q.values[static_cast<size_t>(i * kDim + d)] * k.values[static_cast<size_t>(j * kDim + d)];
      }
      weights.push_back(score / std::sqrt(static_cast<double>(kDim)));
      top = std::fmax(top, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - top);
    for (int64_t d = 0; d < kDim; d++) {
      double exact = 0;
      for (int64_t j = 0; j < kKeys; j++) {
        exact += weights[static_cast<size_t>(j)] / sum * v.values[static_cast<size_t>(j * kDim + d)];
      }
      const double error = std::fabs(static_cast<double>(result[static_cast<size_t>(i * kDim + d)]) - exact) / largest;
      if (!(error <= worst)) worst = error;  // a NaN, too
    }
  }
  return worst;
}

}  // namespace

int main() {
  tsr::check::each_exact_kernel([](const tsr_backend& backend, tsr_context* context, const char* name) {
    for (const Case& c : kCases) {
      const double error = error_of(backend, context, name, c);
      // 16-bit weights round by 2^-9 (bf16) or 2^-12; fp32 ones hardly.
      const double bound = c.dtype == TSR_BF16 ? 4e-3 : c.dtype == TSR_F16 ? 5e-4 : 2e-6;
      if (!(error <= bound)) std::printf("%s, %s: error %g\n", name, c.name, error);
      CHECK(error <= bound);
    }
  });
  return tsr::check::finish();
}
