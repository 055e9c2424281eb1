// Which kernel is chosen on which processor: a function of shapes, types and instruction sets, and of what their dot products
// of bf16 pairs are worth there.
#include "catalogue.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "count.h"

namespace {

using tsr::Problem;
using tsr::Variant;

// Sets that this build has, as a made-up processor would have them.
std::vector<Variant> rows_of(bool bf16, bool fast_pairs) {
  tsr::cpu::Device device;
  device.arch = "made up";
  device.avx2 = device.avx512 = true;
  device.avx512_bf16 = bf16;
  device.fast_pairs = fast_pairs;
  device.avx512_vnni = device.avx_vnni = true;
  device.neon = device.neon_dotprod = true;
  std::vector<Variant> rows;
  CHECK(tsr::cpu::make_catalogue(device, &rows).ok());
  return rows;
}

std::string chosen(const std::vector<Variant>& rows, tsr_dtype q, tsr_dtype kv, int64_t queries,
                   const char* kernel = nullptr) {
  Problem p;
  p.batch = 1;
  p.heads = p.kv_heads = 2;
  p.group = 1;
  p.dim = p.value_dim = 64;
  p.query_rows = p.max_queries = queries;
  p.key_rows = p.max_keys = 512;
  p.q.dtype = p.out.dtype = q;
  p.k.dtype = p.v.dtype = kv;
  p.kernel = kernel;
  const tsr::Selection selection = tsr::select_variant(rows, p, tsr::cpu::preference, false);
  return selection.row != nullptr ? selection.row->name : "none";
}

}  // namespace

int main() {
  unsetenv("TESSERA_CPU_ISA");
#if defined(TSR_HAVE_AVX512) && defined(TSR_HAVE_AVX512BF16)
  for (const bool fast : {false, true}) {
    const auto rows = rows_of(true, fast);
    CHECK(std::count_if(rows.begin(), rows.end(),
                        [](const Variant& row) { return std::string(row.name) == "prefill-avx512-bf16"; }) == 1);
    CHECK(chosen(rows, TSR_BF16, TSR_BF16, 512) == (fast ? "prefill-avx512-bf16" : "prefill-avx512"));
    CHECK(chosen(rows, TSR_F32, TSR_F32, 512) == "prefill-avx512");
    CHECK(chosen(rows, TSR_F16, TSR_F16, 512) == "prefill-avx512");
    CHECK(chosen(rows, TSR_F32, TSR_BF16, 512) == "prefill-avx512");
    CHECK(chosen(rows, TSR_BF16, TSR_F16, 512) == "prefill-avx512");
    CHECK(chosen(rows, TSR_BF16, TSR_BF16, 1) == "decode-avx512");
  }
  CHECK(chosen(rows_of(false, false), TSR_BF16, TSR_BF16, 512) == "prefill-avx512");
#endif
  // What rounds Q is there, and is never chosen, not even where nothing else is left.
  auto all = rows_of(true, false);
  [[maybe_unused]] const auto rounding =
      std::count_if(all.begin(), all.end(), [](const Variant& row) { return row.rounds_q; });
#if defined(TSR_HAVE_AVX2INT8) || defined(TSR_HAVE_NEONDOTPROD)
  CHECK(rounding > 0);
#endif
  for (const tsr_dtype kv : {TSR_Q8_0, TSR_Q4_0}) CHECK(chosen(all, TSR_F32, kv, 1).find("decode-") == 0);
  for (Variant& row : all) row.usable = row.rounds_q && row.usable;
  CHECK(chosen(all, TSR_F32, TSR_Q8_0, 1) == "none");
  for (const Variant& row : all) {
    if (!row.rounds_q) continue;
    CHECK(chosen(all, TSR_F32, TSR_Q8_0, 1, row.name) == row.name);
    CHECK(chosen(all, TSR_F32, TSR_F16, 1, row.name) == "none");  // no bytes to multiply
  }
#if defined(TSR_HAVE_NEON) && defined(TSR_HAVE_NEONBF16)
  CHECK(chosen(rows_of(false, false), TSR_BF16, TSR_BF16, 512) == "prefill-neon");
#endif
  return tsr::check::finish();
}
