#include "catalogue.h"

#include "ladder/steps.h"
#include "tessera/common/text.h"

namespace tsr::cuda::host {
namespace {

constexpr uint32_t kHalfTypes = 1u << TSR_F16 | 1u << TSR_BF16;
constexpr uint32_t kQuantised = 1u << TSR_F8_E4M3 | 1u << TSR_Q8_0 | 1u << TSR_Q4_0;
constexpr int32_t kHeadDimStep = 8;

// With more queries than this the tiles of the prefill kernels are worth filling: they hold queries of one head, and don't
// divide keys among blocks. However many heads share a KV head, decode-mma takes them as rows.
constexpr int64_t kDecodeQueries = 16;
// With fewer keys there is nothing to divide.
constexpr int64_t kDecodeKeysPerQuery = 4;

Plan plan_aligned(const Attention& a, const Limits& limits) { return plan_mma(a, limits, true); }
Plan plan_unaligned(const Attention& a, const Limits& limits) { return plan_mma(a, limits, false); }

const Kernel kWgmma{"prefill-wgmma", plan_wgmma, launch_wgmma, 90, true};
const Kernel kMma{"prefill-mma", plan_aligned, launch_mma, 80, true};
const Kernel kMmaUnaligned{"prefill-mma-unaligned", plan_unaligned, launch_mma, 80, true};
const Kernel kPrefillSimt{"prefill-simt", plan_simt, launch_simt, 80, false};
const Kernel kDecodeMma{"decode-mma", plan_decode, launch_decode, 80, true};
const Kernel kDecodeSimt{"decode-simt", plan_simt, launch_simt, 80, false};

const std::vector<Kernel>& ladder_kernels() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> all;
    const LadderSteps steps = ladder_steps();
    for (const LadderStep* step = steps.begin; step != steps.end; ++step) {
      all.push_back({step->name, step->plan, launch_ladder, 80, true});
    }
    return all;
  }();
  return kernels;
}

Variant row_of(const Kernel& kernel, tsr_kernel_family family, const char* summary, const Limits& limits) {
  Variant row;
  row.name = kernel.name;
  row.family = family;
  row.arch = "sm_80 and newer";
  row.summary = summary;
  row.max_head_dim = kMaxHeadDim;
  row.head_dim_step = kHeadDimStep;
  row.usable = limits.arch >= kernel.lowest_arch;
  if (!row.usable) row.reason = text("needs sm_", kernel.lowest_arch, " or newer, this is sm_", limits.arch);
  row.implementation = &kernel;
  return row;
}

// Shapes alone decide: never what a length array holds.
tsr_kernel_family preferred_family(const Problem& p) {
  const bool few = p.max_queries <= kDecodeQueries;
  return few && p.max_keys >= kDecodeKeysPerQuery * p.max_queries ? TSR_FAMILY_DECODE : TSR_FAMILY_PREFILL;
}

// A page is whole key tiles, or a key tile is whole pages: tiles are 64 or 128 keys, and their layout repeats every 8.
const char* wgmma_refuses(const Problem& p) {
  const int64_t page = p.page_size;
  if (p.max_keys == 0 || (p.paged() && p.page_count == 0)) return "there are no keys";
  if (p.paged() && page % 128 != 0 && page != 64 && page != 32 && page != 16 && page != 8) {
    return "it takes pages of 8, 16, 32, 64 or a multiple of 128 keys";
  }
  return nullptr;
}

const char* ladder_refuses(const Problem& p) { return p.scale > 0 ? nullptr : "it takes a scale above 0"; }

// The ladder: there to be measured, in the order of its steps.
void add_ladder(const Limits& limits, std::vector<Variant>* rows) {
  const LadderStep* step = ladder_steps().begin;
  for (const Kernel& kernel : ladder_kernels()) {
    Variant row = row_of(kernel, TSR_FAMILY_PREFILL, step->summary, limits);
    if (row.usable && step->shared_bytes > limits.shared_per_block) {
      row.usable = false;
      row.reason = text("needs ", step->shared_bytes, " bytes of shared memory a block, this device has ",
                        limits.shared_per_block);
    }
    row.by_name_only = true;
    row.q_dtypes = row.kv_dtypes = row.out_dtypes = dtype_bit(TSR_F16);
    row.max_head_dim = row.head_dim_step = kLadderHeadDim;
    row.lacks = kFeatureSoftcap | kFeatureAlibi | kFeatureBias | kFeatureMask | kFeatureWindow | kFeaturePackedQ |
                kFeaturePackedK | kFeaturePaged | kFeatureMixedTypes;
    row.alignment = 16;
    row.refuses = ladder_refuses;
    rows->push_back(std::move(row));
    ++step;
  }
}

}  // namespace

std::vector<Variant> make_catalogue(const Limits& limits) {
  Variant wgmma = row_of(
      kWgmma, TSR_FAMILY_PREFILL,
      "Many queries, 16-bit, Hopper: wgmma, tiles by TMA, one producer and two or three consumer warpgroups", limits);
  wgmma.arch = "sm_90a";
  wgmma.usable = limits.arch == 90 && has_wgmma();
  if (!wgmma.usable)
    wgmma.reason = text("needs sm_90a code on a device of compute capability 9.0, this is sm_", limits.arch);
  wgmma.q_dtypes = wgmma.kv_dtypes = wgmma.out_dtypes = kHalfTypes;
  wgmma.lacks = kFeatureMixedTypes | kFeatureWideValues | kFeatureBias | kFeatureMask;
  wgmma.alignment = 16;
  wgmma.refuses = wgmma_refuses;

  Variant mma =
      row_of(kMma, TSR_FAMILY_PREFILL,
             "Many queries, 16-bit: mma.sync on tiles of queries and keys, 16-byte asynchronous copies", limits);
  mma.q_dtypes = mma.kv_dtypes = kHalfTypes;
  mma.lacks = kFeatureMixedTypes | kFeatureWideValues;
  mma.alignment = 16;

  Variant unaligned =
      row_of(kMmaUnaligned, TSR_FAMILY_PREFILL,
             "As prefill-mma, for views whose rows aren't aligned to 16 bytes: loads single elements", limits);
  unaligned.q_dtypes = unaligned.kv_dtypes = kHalfTypes;
  unaligned.lacks = kFeatureMixedTypes | kFeatureWideValues;
  unaligned.alignment = 2;

  Variant simt = row_of(kPrefillSimt, TSR_FAMILY_PREFILL,
                        "Any types, alignment and head dims: fp32 arithmetic without tensor cores", limits);
  simt.kv_dtypes = kCacheTypes;
  simt.splits = true;

  Variant decode =
      row_of(kDecodeMma, TSR_FAMILY_DECODE,
             "Few queries against many keys: mma.sync with the query heads of a group on one side; keys are "
             "divided among blocks, parts merged at the end; k and v of q's type, f8_e4m3, q8_0 or q4_0",
             limits);
  decode.q_dtypes = kHalfTypes;
  decode.kv_dtypes = kHalfTypes | kQuantised;
  decode.lacks = kFeatureMixedKeysValues | kFeatureOtherFloatKeys | kFeatureWideValues;
  decode.alignment = 2;
  decode.splits = true;

  Variant decode_simt = row_of(kDecodeSimt, TSR_FAMILY_DECODE,
                               "Few queries against many keys, any types and alignment: fp32 arithmetic, keys divided "
                               "among blocks, parts merged at the end",
                               limits);
  decode_simt.kv_dtypes = kCacheTypes;
  decode_simt.splits = true;

  std::vector<Variant> rows{wgmma, mma, unaligned, simt, decode, decode_simt};
  add_ladder(limits, &rows);
  return rows;
}

int preference(const Problem& problem, const Variant& row) {
  const int cores = kernel_of(row).tensor_cores ? 4 : 0;
  const int family = row.family == preferred_family(problem) ? 2 : 0;
  const int copies = row.alignment >= 16 ? 1 : 0;
  return cores + family + copies;
}

}  // namespace tsr::cuda::host
