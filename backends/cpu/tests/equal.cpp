// Many equal values: each step of a sum rounds the same way, so its error grows with its length, where that of other numbers
// averages out. 862 of them in one chain are past fp32's bound (docs/semantics.md, "Numbers"), so sums run in short ones; also
// those of the columns that fill no vector, and of rows where NaN sends the product another way.
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "exact_kernels.h"
#include "tessera/tessera.h"

namespace {

constexpr int64_t kQueries = 2;
constexpr int64_t kKeys = 862;
constexpr float kValue = -2.16200018f;

/// [1, rows, 1, dim] of fp32.
tsr_tensor tensor(std::vector<float>& data, int64_t rows) {
  const int64_t dim = static_cast<int64_t>(data.size()) / rows;
  return {sizeof(tsr_tensor), TSR_F32, data.data(), 4, 0, {1, rows, 1, dim}, {rows * dim, dim, dim, 1}, 0};
}

/// Largest error of the first query, as a share of the value; with `hidden`, the last key holds NaN, and only the last query
/// sees it.
double error_of(const tsr_backend& backend, tsr_context* context, const char* kernel, int64_t dim, bool hidden) {
  const auto of = [](int64_t rows, int64_t width, float x) {
    return std::vector<float>(static_cast<size_t>(rows * width), x);
  };
  std::vector<float> queries = of(kQueries, 3, 0), keys = of(kKeys, 3, 0), values = of(kKeys, dim, kValue),
                     result = of(kQueries, dim, NAN);
  for (int64_t d = 0; hidden && d < dim; d++) values[static_cast<size_t>((kKeys - 1) * dim + d)] = NAN;
  const tsr_tensor q = tensor(queries, kQueries), k = tensor(keys, kKeys), v = tensor(values, kKeys);
  tsr_tensor out = tensor(result, kQueries);
  tsr_attention_desc desc{};
  desc.struct_size = sizeof desc;
  desc.q = &q;
  desc.k = &k;
  desc.v = &v;
  desc.out = &out;
  desc.causal = 1;
  desc.kernel = kernel;
  desc.num_splits = 1;
  uint64_t bytes = 0;
  if (backend.attention_workspace(context, &desc, &bytes) != TSR_OK) return INFINITY;
  std::vector<uint8_t> memory(bytes + 64, 0xff);
  desc.workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  desc.workspace_bytes = bytes;
  if (backend.attention(context, nullptr, &desc) != TSR_OK) return INFINITY;
  double worst = 0;
  for (int64_t d = 0; d < dim; d++) {
    const double error =
        std::fabs(static_cast<double>(result[static_cast<size_t>(d)]) / static_cast<double>(kValue) - 1);
    if (!(error <= worst)) worst = error;  // a NaN, too
  }
  return worst;
}

}  // namespace

int main() {
  tsr::check::each_exact_kernel([](const tsr_backend& backend, tsr_context* context, const char* name) {
    for (const int64_t dim : {3, 7, 16, 37, 64}) {
      for (const bool hidden : {false, true}) {
        const double error = error_of(backend, context, name, dim, hidden);
        if (!(error <= 2e-6)) std::printf("%s, %d columns: error %g\n", name, static_cast<int>(dim), error);
        CHECK(error <= 2e-6);
      }
    }
  });
  return tsr::check::finish();
}
