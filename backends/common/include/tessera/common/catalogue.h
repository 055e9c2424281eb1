// The catalogue: one row for each kernel variant of a back end. A row says what a kernel can do; select.h decides.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/common/problem.h"

namespace tsr {

/// What a problem may ask for beyond q, k and v. A row lists what it lacks, so that a new feature is a new bit here and a
/// bit in the rows that don't have it.
enum Feature : uint32_t {
  kFeatureSoftcap = 1u << 0,
  kFeatureAlibi = 1u << 1,
  kFeatureBias = 1u << 2,
  kFeatureMask = 1u << 3,
  kFeatureSinks = 1u << 4,
  kFeatureWindow = 1u << 5,
  kFeatureQueryOffset = 1u << 6,
  kFeatureLengths = 1u << 7,  ///< seq_lens_q or seq_lens_k
  kFeaturePackedQ = 1u << 8,
  kFeaturePackedK = 1u << 9,
  kFeaturePaged = 1u << 10,
  kFeatureLse = 1u << 11,
  kFeatureMixedTypes = 1u << 12,       ///< q, k and v not of one type
  kFeatureWideValues = 1u << 13,       ///< Dv > D
  kFeatureMixedKeysValues = 1u << 14,  ///< k and v not of one type
  kFeatureOtherFloatKeys = 1u << 15,   ///< k or v of a float type that isn't q's
};

/// Bit of a type in a row's masks.
constexpr uint32_t dtype_bit(tsr_dtype dtype) { return 1u << dtype; }
constexpr uint32_t kFloatTypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16;
constexpr uint32_t kCacheTypes = kFloatTypes | 1u << TSR_F8_E4M3 | 1u << TSR_Q8_0 | 1u << TSR_Q4_0;
/// "f32, f16 or bf16"
std::string dtype_list(uint32_t bits);

struct Variant {
  const char* name = "";
  tsr_kernel_family family = TSR_FAMILY_PREFILL;
  const char* arch = "";
  const char* summary = "";
  uint32_t q_dtypes = kFloatTypes;
  uint32_t kv_dtypes = kFloatTypes;
  uint32_t out_dtypes = kFloatTypes;
  int32_t max_head_dim = 512;
  int32_t head_dim_step = 1;
  /// Bytes that the first element and all strides of q, k, v and out have to be multiples of; 1 = none. Above 1, elements
  /// also have to be aligned to their own size, those of bias and lse included, and blocks (q8_0, q4_0) only to the 2
  /// bytes of their scale.
  int32_t alignment = 1;
  /// Feature bits that it can't do.
  uint32_t lacks = 0;
  /// What else it can't do, in words that always live; returns NULL for a problem that it can. NULL: nothing else.
  const char* (*refuses)(const Problem& problem) = nullptr;
  /// Rounds q to 8 bits (docs/semantics.md, "Numbers"); by_name_only, too.
  bool rounds_q = false;
  /// Takes elements and sums below 2^-126 for 0 (the same page).
  bool flushes = false;
  /// Can divide the keys of a query among workers; otherwise num_splits has to be 0 or 1.
  bool splits = false;
  /// Runs only where a problem names it: there to be measured, or less exact.
  bool by_name_only = false;
  /// This device can run it; else why not.
  bool usable = true;
  std::string reason;
  /// The back end's own: what to call. Not looked at here.
  const void* implementation = nullptr;
};

/// Features that a problem uses.
uint32_t features_of(const Problem& problem);
/// "soft cap", "paged keys", ... of one bit.
const char* feature_name(uint32_t bit);
/// Whether a row can do a problem. Builds no text.
bool able(const Variant& row, const Problem& problem);
/// Why it can't; empty if it can.
std::string objection(const Variant& row, const Problem& problem);
/// A row as the contract shows it. `info->struct_size` is the caller's and is kept.
void describe(const Variant& row, tsr_kernel_info* info);

}  // namespace tsr
