#include "tessera/common/catalogue.h"

#include "tessera/common/text.h"

namespace tsr {
namespace {

// Largest power of two, up to 64, that divides every value it is shown.
class CommonAlignment {
 public:
  void see(uint64_t value) { all_ |= value; }
  int64_t value() const { return static_cast<int64_t>(all_ & (~all_ + 1)); }

 private:
  uint64_t all_ = 64;
};

int64_t alignment_of(const View& view) {
  CommonAlignment alignment;
  alignment.see(reinterpret_cast<uintptr_t>(view.data));  // NULL (shapes only) is taken as good
  for (const int64_t stride : {view.batch_stride, view.row_stride, view.head_stride}) {
    alignment.see(static_cast<uint64_t>(row_bytes(view.dtype, stride)));
  }
  return alignment.value();
}

// Bytes that a row wants a tensor's first element and strides to be multiples of.
int64_t wanted_alignment(const Variant& row, const View& view, bool whole) {
  const int64_t element = is_block_format(view.dtype) ? 2 : row_bytes(view.dtype, 1);
  return whole && !is_block_format(view.dtype) && row.alignment > element ? row.alignment : element;
}

// The one place that knows whether a row can do a problem. True if it can't: `say` is then given a function that puts the
// reason into words, which it may call or not.
template <class Say>
bool objects(const Variant& row, const Problem& p, Say&& say) {
  const auto refuse = [&](const auto& words) {
    say(words);
    return true;
  };
  if (!row.usable) {
    return refuse([&] { return row.reason.empty() ? std::string("not usable on this device") : row.reason; });
  }
  if (!(dtype_bit(p.q.dtype) & row.q_dtypes)) {
    return refuse([&] { return text("q is ", dtype_name(p.q.dtype), ", it takes ", dtype_list(row.q_dtypes)); });
  }
  for (const View* view : {&p.k, &p.v}) {
    if (dtype_bit(view->dtype) & row.kv_dtypes) continue;
    return refuse([&] {
      return text(view == &p.k ? "k" : "v", " is ", dtype_name(view->dtype), ", it takes ", dtype_list(row.kv_dtypes));
    });
  }
  if (!(dtype_bit(p.out.dtype) & row.out_dtypes)) {
    return refuse([&] { return text("out is ", dtype_name(p.out.dtype), ", it gives ", dtype_list(row.out_dtypes)); });
  }
  for (const int64_t dim : {p.dim, p.value_dim}) {
    if (dim > row.max_head_dim) {
      return refuse([&] { return text("head dim is ", dim, ", it takes at most ", row.max_head_dim); });
    }
    if (dim % row.head_dim_step) {
      return refuse([&] { return text("head dim is ", dim, ", it takes multiples of ", row.head_dim_step); });
    }
  }
  if (const uint32_t missing = features_of(p) & row.lacks) {
    return refuse([&] { return text("it has no ", feature_name(missing & (~missing + 1))); });
  }
  if (const char* const why = row.refuses != nullptr ? row.refuses(p) : nullptr) {
    return refuse([&] { return std::string(why); });
  }
  if (p.num_splits > 1 && !row.splits) {
    return refuse([&] { return text("num_splits is ", p.num_splits, ", it does not split keys (0 or 1)"); });
  }
  if (row.alignment <= 1) return false;
  const struct {
    const View& view;
    const char* name;
    bool whole;  ///< the row's alignment; else the element's own is enough
  } tensors[] = {{p.q, "q", true},     {p.k, "k", true},        {p.v, "v", true},
                 {p.out, "out", true}, {p.bias, "bias", false}, {p.lse, "lse", false}};
  for (const auto& tensor : tensors) {
    if (!tensor.view.given()) continue;
    const int64_t have = alignment_of(tensor.view), need = wanted_alignment(row, tensor.view, tensor.whole);
    if (have >= need) continue;
    return refuse([&] { return text("rows of ", tensor.name, " are aligned to ", have, " bytes, it needs ", need); });
  }
  return false;
}

}  // namespace

std::string dtype_list(uint32_t bits) {
  std::string all;
  for (tsr_dtype dtype = TSR_F32; dtype <= TSR_I32; ++dtype) {
    if (!(bits & dtype_bit(dtype))) continue;
    bits &= ~dtype_bit(dtype);
    all += text(all.empty() ? "" : bits ? ", " : " or ", dtype_name(dtype));
  }
  return all;
}

uint32_t features_of(const Problem& p) {
  uint32_t bits = 0;
  if (p.softcap != 0) bits |= kFeatureSoftcap;
  if (p.alibi_slopes) bits |= kFeatureAlibi;
  if (p.bias.given()) bits |= kFeatureBias;
  if (p.mask.given()) bits |= kFeatureMask;
  if (p.sinks) bits |= kFeatureSinks;
  if (p.window_left >= 0 || p.window_right >= 0) bits |= kFeatureWindow;
  if (p.query_offset) bits |= kFeatureQueryOffset;
  if (p.seq_lens_q || p.seq_lens_k) bits |= kFeatureLengths;
  if (p.packed_q) bits |= kFeaturePackedQ;
  if (p.packed_k) bits |= kFeaturePackedK;
  if (p.paged()) bits |= kFeaturePaged;
  if (p.lse.given()) bits |= kFeatureLse;
  if (p.q.dtype != p.k.dtype || p.k.dtype != p.v.dtype) bits |= kFeatureMixedTypes;
  if (p.value_dim > p.dim) bits |= kFeatureWideValues;
  if (p.k.dtype != p.v.dtype) bits |= kFeatureMixedKeysValues;
  for (const View* view : {&p.k, &p.v}) {
    if ((dtype_bit(view->dtype) & kFloatTypes) && view->dtype != p.q.dtype) bits |= kFeatureOtherFloatKeys;
  }
  return bits;
}

const char* feature_name(uint32_t bit) {
  switch (bit) {
    case kFeatureSoftcap:
      return "soft cap";
    case kFeatureAlibi:
      return "ALiBi";
    case kFeatureBias:
      return "bias";
    case kFeatureMask:
      return "boolean mask";
    case kFeatureSinks:
      return "sinks";
    case kFeatureWindow:
      return "window";
    case kFeatureQueryOffset:
      return "query offset";
    case kFeatureLengths:
      return "lengths per batch entry";
    case kFeaturePackedQ:
      return "packed queries";
    case kFeaturePackedK:
      return "packed keys";
    case kFeaturePaged:
      return "paged keys";
    case kFeatureLse:
      return "lse";
    case kFeatureMixedTypes:
      return "q, k and v of different types";
    case kFeatureWideValues:
      return "a value head dim above the key's";
    case kFeatureMixedKeysValues:
      return "k and v of different types";
    case kFeatureOtherFloatKeys:
      return "k or v of a float type other than q's";
    default:
      return "an unknown feature";
  }
}

bool able(const Variant& row, const Problem& problem) {
  return !objects(row, problem, [](const auto&) {});
}

std::string objection(const Variant& row, const Problem& problem) {
  std::string why;
  objects(row, problem, [&](const auto& words) { why = words(); });
  return why;
}

void describe(const Variant& row, tsr_kernel_info* info) {
  const uint32_t size = info->struct_size;
  *info = tsr_kernel_info{};
  info->struct_size = size;
  info->family = row.family;
  copy_text(info->name, row.name);
  info->usable = row.usable ? 1 : 0;
  info->alignment = row.alignment;
  info->q_dtypes = row.q_dtypes;
  info->kv_dtypes = row.kv_dtypes;
  info->max_head_dim = row.max_head_dim;
  info->head_dim_step = row.head_dim_step;
  info->flags = (row.by_name_only ? TSR_KERNEL_BY_NAME : 0u) | (row.rounds_q ? TSR_KERNEL_ROUNDS_Q : 0u) |
                (row.flushes ? TSR_KERNEL_FLUSHES : 0u);
  copy_text(info->arch, row.arch);
  copy_text(info->summary, row.summary);
  copy_text(info->reason, row.usable ? "" : row.reason.c_str());
}

}  // namespace tsr
