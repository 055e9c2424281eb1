#include "catalogue.h"

#include <cstdlib>
#include <cstring>

#include "tessera/common/text.h"

namespace tsr::cpu {
namespace {

struct Isa {
  const IsaKernels* kernels;
  const char* prefill;
  const char* decode;
  const char* arch;
  const char* needs;  ///< in words, for when the processor lacks it
};

// Best first. CMakeLists.txt defines TSR_HAVE_* for the sets that it compiles.
const Isa kIsas[] = {
#if defined(TSR_HAVE_AVX512)
    {&kAvx512Kernels, "prefill-avx512", "decode-avx512", "x86-64 avx512", "AVX-512 F, BW, VL and DQ"},
#endif
#if defined(TSR_HAVE_AVX2)
    {&kAvx2Kernels, "prefill-avx2", "decode-avx2", "x86-64 avx2", "AVX2, FMA and F16C"},
#endif
#if defined(TSR_HAVE_NEON)
    {&kNeonKernels, "prefill-neon", "decode-neon", "aarch64 neon", "NEON"},
#endif
#if defined(TSR_HAVE_PORTABLE)
    {&kPortableKernels, "prefill-portable", "decode-portable", "any", "nothing"},
#endif
};

constexpr const char* kPrefillSummary =
    "Many queries: tiles of queries against tiles of keys, online softmax in fp32; work is divided by query tiles";
constexpr const char* kDecodeSummary =
    "Few queries against many keys: the query heads of a group share each key; work is divided by parts of the keys, "
    "merged at the end";

// More rows than this for one KV head and a tile of queries is well filled: prefill's business.
constexpr int64_t kDecodeRows = 16;
// With fewer keys there is nothing to divide.
constexpr int64_t kDecodeKeysPerQuery = 4;

}  // namespace

// Decode reads each key once for all rows of a KV head and can divide the keys, so it suits few rows and many keys.
// Shapes alone decide: never what a length array holds.
static tsr_kernel_family preferred_family(const Problem& p) {
  const int64_t queries = p.max_queries;
  const bool few = queries <= kDecodeRows && p.group * queries <= kDecodeRows;
  return few && p.max_keys >= kDecodeKeysPerQuery * queries ? TSR_FAMILY_DECODE : TSR_FAMILY_PREFILL;
}

int preference(const Problem& problem, const Variant& row) {
  const auto* isa = static_cast<const Isa*>(row.implementation);
  const int rank = static_cast<int>(std::end(kIsas) - isa);
  return 2 * rank + (row.family == preferred_family(problem) ? 1 : 0);
}

Verdict make_catalogue(const Device& device, std::vector<Variant>* rows) {
  const char* wanted = std::getenv("TESSERA_CPU_ISA");
  if (wanted != nullptr && *wanted == '\0') wanted = nullptr;
  bool found = false;
  std::string known;
  rows->clear();
  for (const Isa& isa : kIsas) {
    const char* const name = isa.kernels->isa;
    const bool able = runs(device, name);
    const bool chosen = wanted == nullptr || std::strcmp(wanted, name) == 0;
    found = found || (chosen && able);
    if (able) known += text(known.empty() ? "" : ", ", name);

    Variant row;
    row.arch = isa.arch;
    row.kv_dtypes = kCacheTypes;
    row.usable = able && chosen;
    if (!able) {
      row.reason = text("needs ", isa.needs, ", which this processor (", device.arch, ") lacks");
    } else if (!chosen) {
      row.reason = text("TESSERA_CPU_ISA asks for ", wanted);
    }
    row.implementation = &isa;

    row.name = isa.prefill;
    row.family = TSR_FAMILY_PREFILL;
    row.summary = kPrefillSummary;
    row.splits = false;
    rows->push_back(row);

    row.name = isa.decode;
    row.family = TSR_FAMILY_DECODE;
    row.summary = kDecodeSummary;
    row.splits = true;
    rows->push_back(row);
  }
  if (found) return {};
  return invalid("TESSERA_CPU_ISA: is \"", std::string(wanted ? wanted : "").substr(0, 100), "\", must be one of ",
                 known);
}

Kernel kernel_of(const Variant& row, const Problem& problem, int threads) {
  const IsaKernels& isa = *static_cast<const Isa*>(row.implementation)->kernels;
  if (row.family == TSR_FAMILY_DECODE) return {isa.plan_decode(problem, threads), isa.decode};
  return {isa.plan_prefill(problem, threads), isa.prefill};
}

}  // namespace tsr::cpu
