#include "catalogue.h"

#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tessera/common/text.h"

namespace tsr::cpu {
namespace {

constexpr const char* kPrefillSummary =
    "Many queries: tiles of queries against tiles of keys, online softmax in fp32; work is divided by query tiles";
[[maybe_unused]] constexpr const char* kTilesSummary =
    "Many queries, 16 bits: as prefill on AVX-512, with both products in AMX tiles; numbers wider than bf16 are sums "
    "of "
    "bf16 pieces";
[[maybe_unused]] constexpr const char* kPairsSummary =
    "Many queries: as prefill, with both products in dot products of bf16 pairs; wider numbers are sums of bf16 "
    "pieces. Chosen for bf16 where these are faster than fp32's multiply-adds (AMD), else only if asked for by name";
[[maybe_unused]] constexpr const char* kPiecesArithmetic =
    "products of bf16 pieces that hold the inputs exactly, summed in fp32";
[[maybe_unused]] constexpr const char* kBytesSummary =
    "Few queries against many q8_0 or q4_0 keys: as decode, with Q rounded to 8 bits in blocks of 32 and scores in dot "
    "products of bytes. Only if asked for by name";
[[maybe_unused]] constexpr const char* kBytesArithmetic =
    "q rounded to 8 bits in blocks of 32, products of bytes; all else in fp32 arithmetic";

/// What a set is worth choosing for.
enum class Suits {
  kAll,
  kNarrow,  ///< q, k and v of 16 bits
  kBf16,    ///< q, k and v in bf16: one piece each
};

/// A set whose rank hangs on the processor has two rows here, of which one counts.
enum class Pairs {
  kAny,
  kFast,
  kSlow
};

struct Isa {
  const IsaKernels* kernels;
  const char* prefill;  ///< nullptr if it has none
  const char* decode;   ///< likewise
  const char* arch;
  const char* needs;  ///< in words, for when the processor lacks it
  const char* summary = kPrefillSummary;
  const char* arithmetic = "fp32 arithmetic";
  Suits suits = Suits::kAll;
  Pairs pairs = Pairs::kAny;
  /// Set of a variant that rounds Q: the one that it is an alternative to, and that TESSERA_CPU_ISA names.
  const char* rounds_q_of = nullptr;
};

/// A set that has decode alone, with Q rounded to bytes.
[[maybe_unused]] constexpr Isa bytes(const IsaKernels* kernels, const char* decode, const char* arch, const char* needs,
                                     const char* of) {
  return {kernels, nullptr, decode, arch, needs, kBytesSummary, kBytesArithmetic, Suits::kAll, Pairs::kAny, of};
}

// Best first. CMakeLists.txt defines TSR_HAVE_* for the sets that it compiles.
const Isa kIsas[] = {
#if defined(TSR_HAVE_AMX)
    {&kAmxKernels, "prefill-amx", nullptr, "x86-64 amx", "AMX tiles with bf16, and AVX-512 with BF16", kTilesSummary,
     kPiecesArithmetic, Suits::kNarrow},
#endif
#if defined(TSR_HAVE_AVX512BF16)
    {&kAvx512Bf16Kernels, "prefill-avx512-bf16", nullptr, "x86-64 avx512-bf16", "AVX-512 with BF16", kPairsSummary,
     kPiecesArithmetic, Suits::kBf16, Pairs::kFast},
#endif
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
// Behind what every processor has, so never chosen unless asked for by name: on Intel, dot products of pairs are half as
// fast as multiply-adds, and on Arm nobody has measured them.
#if defined(TSR_HAVE_AVX512BF16)
    {&kAvx512Bf16Kernels, "prefill-avx512-bf16", nullptr, "x86-64 avx512-bf16", "AVX-512 with BF16", kPairsSummary,
     kPiecesArithmetic, Suits::kAll, Pairs::kSlow},
#endif
#if defined(TSR_HAVE_NEONBF16)
    {&kNeonBf16Kernels, "prefill-neon-bf16", nullptr, "aarch64 neon-bf16", "NEON with BF16", kPairsSummary,
     kPiecesArithmetic},
#endif
// What rounds Q: the selector leaves these alone.
#if defined(TSR_HAVE_AVX512VNNI)
    bytes(&kAvx512VnniKernels, "decode-avx512-vnni", "x86-64 avx512-vnni", "AVX-512 with VNNI", "avx512"),
#endif
#if defined(TSR_HAVE_AVXVNNI)
    bytes(&kAvxVnniKernels, "decode-avx-vnni", "x86-64 avx-vnni", "AVX2 with AVX-VNNI", "avx2"),
#endif
#if defined(TSR_HAVE_AVX2INT8)
    bytes(&kAvx2Int8Kernels, "decode-avx2-int8", "x86-64 avx2", "AVX2, FMA and F16C", "avx2"),
#endif
#if defined(TSR_HAVE_NEONDOTPROD)
    bytes(&kNeonDotprodKernels, "decode-neon-dotprod", "aarch64 neon-dotprod", "NEON with dot products", "neon"),
#endif
};

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

static bool suits(const Problem& p, Suits what) {
  const auto all = [&](auto&& is) { return is(p.q.dtype) && is(p.k.dtype) && is(p.v.dtype); };
  if (what == Suits::kNarrow) return all([](tsr_dtype dtype) { return dtype == TSR_F16 || dtype == TSR_BF16; });
  if (what == Suits::kBf16) return all([](tsr_dtype dtype) { return dtype == TSR_BF16; });
  return true;
}

int preference(const Problem& problem, const Variant& row) {
  const auto* isa = static_cast<const Isa*>(row.implementation);
  const auto sets = static_cast<int>(std::size(kIsas));
  int rank = static_cast<int>(std::end(kIsas) - isa);
  if (!suits(problem, isa->suits)) rank = 0;
  return rank + (row.family == preferred_family(problem) ? sets : 0);
}

Verdict make_catalogue(const Device& device, std::vector<Variant>* rows) {
  const char* wanted = std::getenv("TESSERA_CPU_ISA");
  if (wanted != nullptr && *wanted == '\0') wanted = nullptr;
  bool found = false;
  std::string known;
  rows->clear();
  for (const Isa& isa : kIsas) {
    if (isa.pairs != Pairs::kAny && (isa.pairs == Pairs::kFast) != device.fast_pairs) continue;
    const char* const name = isa.kernels->isa;
    const bool able = runs(device, name);
    const bool rounds_q = isa.rounds_q_of != nullptr;
    const bool chosen = wanted == nullptr || std::strcmp(wanted, rounds_q ? isa.rounds_q_of : name) == 0;
    found = found || (chosen && able && !rounds_q);
    if (able && !rounds_q) known += text(known.empty() ? "" : ", ", name);

    Variant row;
    row.arch = isa.arch;
    row.kv_dtypes = rounds_q ? dtype_bit(TSR_Q8_0) | dtype_bit(TSR_Q4_0) : kCacheTypes;
    row.rounds_q = row.by_name_only = rounds_q;
    const bool granted = able && chosen && ask_for(name);
    row.usable = granted;
    if (!able) {
      row.reason = text("needs ", isa.needs, ", which this processor (", device.arch, ") lacks");
    } else if (!chosen) {
      row.reason = text("TESSERA_CPU_ISA asks for ", wanted);
    } else if (!granted) {
      row.reason = text("needs ", isa.needs, ", whose registers the system refuses to this process");
    }
    row.implementation = &isa;

    if (isa.prefill != nullptr) {
      row.name = isa.prefill;
      row.family = TSR_FAMILY_PREFILL;
      row.summary = isa.summary;
      row.splits = false;
      rows->push_back(row);
    }
    if (isa.decode != nullptr) {
      row.name = isa.decode;
      row.family = TSR_FAMILY_DECODE;
      row.summary = rounds_q ? isa.summary : kDecodeSummary;
      row.splits = true;
      rows->push_back(row);
    }
  }
  if (found) return {};
  return invalid("TESSERA_CPU_ISA: is \"", std::string(wanted ? wanted : "").substr(0, 100), "\", must be one of ",
                 known);
}

Kernel kernel_of(const Variant& row, const Problem& problem, const Machine& machine) {
  const Isa& isa = *static_cast<const Isa*>(row.implementation);
  const IsaKernels& kernels = *isa.kernels;
  if (row.family == TSR_FAMILY_DECODE) {
    return {kernels.plan_decode(problem, machine), kernels.decode, isa.arithmetic};
  }
  return {kernels.plan_prefill(problem, machine), kernels.prefill, isa.arithmetic};
}

}  // namespace tsr::cpu
