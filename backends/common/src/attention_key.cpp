#include "tessera/common/attention_key.h"

#include <cstring>
#include <type_traits>

namespace tsr {
namespace {

using Desc = tsr_attention_desc;
constexpr const tsr_tensor* Desc::* kTensors[kAttentionTensors] = {&Desc::q,
                                                                   &Desc::k,
                                                                   &Desc::v,
                                                                   &Desc::out,
                                                                   &Desc::lse,
                                                                   &Desc::query_offset,
                                                                   &Desc::alibi_slopes,
                                                                   &Desc::bias,
                                                                   &Desc::mask,
                                                                   &Desc::sinks,
                                                                   &Desc::seq_lens_q,
                                                                   &Desc::seq_lens_k,
                                                                   &Desc::cu_seqlens_q,
                                                                   &Desc::cu_seqlens_k,
                                                                   &Desc::page_table,
                                                                   &Desc::k_scale,
                                                                   &Desc::v_scale};
// No row of a catalogue wants more.
constexpr uintptr_t kAlignmentBits = 63;

}  // namespace

bool AttentionKey::read(ErrorKey context, const tsr_attention_desc* desc) {
  whole_ = false;
  if (desc == nullptr || desc->struct_size != sizeof *desc || desc->kernel != nullptr) return false;
  context_ = context;
  given_ = 0;
  options_ = *desc;
  options_.workspace = nullptr;  // compared with the plan at each call
  options_.workspace_bytes = 0;
  options_.cancel = nullptr;
  for (int i = 0; i < kAttentionTensors; ++i) {
    const tsr_tensor* const tensor = desc->*kTensors[i];
    options_.*kTensors[i] = nullptr;
    if (tensor == nullptr) continue;
    if (tensor->struct_size != sizeof *tensor || tensor->data == nullptr) return false;
    given_ |= 1u << i;
    tensors_[i] = *tensor;
    tensors_[i].data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(tensor->data) & kAlignmentBits);
  }
  return whole_ = true;
}

bool AttentionKey::operator==(const AttentionKey& other) const {
  if (!whole_ || !other.whole_ || context_ != other.context_ || given_ != other.given_) return false;
  if (std::memcmp(&options_, &other.options_, sizeof options_) != 0) return false;
  for (int i = 0; i < kAttentionTensors; ++i) {
    if ((given_ & 1u << i) && std::memcmp(&tensors_[i], &other.tensors_[i], sizeof tensors_[i]) != 0) return false;
  }
  return true;
}

void set_addresses(const tsr_attention_desc& d, device::Attention* a) {
  const struct {
    const tsr_tensor* from;
    device::View* to;
  } views[] = {{d.q, &a->q},     {d.k, &a->k},       {d.v, &a->v},      {d.out, &a->out},
               {d.lse, &a->lse}, {d.bias, &a->bias}, {d.mask, &a->mask}};
  for (const auto& view : views) {
    if (view.from != nullptr) view.to->data = static_cast<char*>(view.from->data);
  }
  const auto set = [](const tsr_tensor* from, auto*& to) {
    if (from != nullptr) to = static_cast<std::remove_reference_t<decltype(to)>>(from->data);
  };
  set(d.alibi_slopes, a->alibi_slopes);
  set(d.sinks, a->sinks);
  set(d.k_scale, a->k_scale);
  set(d.v_scale, a->v_scale);
  set(d.seq_lens_q, a->seq_lens_q);
  set(d.seq_lens_k, a->seq_lens_k);
  set(d.cu_seqlens_q, a->cu_seqlens_q);
  set(d.cu_seqlens_k, a->cu_seqlens_k);
  set(d.query_offset, a->query_offset);
  set(d.page_table, a->page_table);
}

}  // namespace tsr
