// attention_key.h: which descriptors are alike but for addresses, and that addresses all find their place.
#include "tessera/common/attention_key.h"

#include <cstring>
#include <utility>

#include "count.h"
#include "packed_tensor.h"
#include "tessera/common/check.h"
#include "tessera/common/device_translate.h"

namespace {

using tsr::AttentionKey;

constexpr int64_t kBytes = 8192;  // of each tensor
alignas(64) char memory[2][tsr::kAttentionTensors][kBytes];

/// A descriptor with every tensor that may go together, in memory of its own: paged with all options, or packed.
struct Call {
  tsr_tensor t[tsr::kAttentionTensors];
  int count = 0;
  tsr_attention_desc desc{};

  Call(int which, bool packed) {
    desc.struct_size = sizeof desc;
    const auto add = [&](const tsr_tensor*& member, tsr_dtype dtype, std::initializer_list<int64_t> shape) {
      t[count] = tensor(dtype, memory[which][count], shape);
      member = &t[count++];
    };
    if (packed) {
      add(desc.q, TSR_F16, {6, 4, 32});
      add(desc.k, TSR_F16, {5, 2, 32});
      add(desc.v, TSR_F16, {5, 2, 32});
      add(desc.out, TSR_F16, {6, 4, 32});
      add(desc.lse, TSR_F32, {4, 6});
      add(desc.cu_seqlens_q, TSR_I32, {3});
      add(desc.cu_seqlens_k, TSR_I32, {3});
      return;
    }
    add(desc.q, TSR_F16, {2, 3, 4, 32});
    add(desc.k, TSR_F8_E4M3, {5, 4, 2, 32});
    add(desc.v, TSR_F8_E4M3, {5, 4, 2, 32});
    add(desc.out, TSR_F16, {2, 3, 4, 32});
    add(desc.lse, TSR_F32, {2, 4, 3});
    add(desc.query_offset, TSR_I32, {2});
    add(desc.alibi_slopes, TSR_F32, {4});
    add(desc.bias, TSR_F32, {2, 4, 3, 8});
    add(desc.mask, TSR_BOOL, {2, 4, 3, 8});
    add(desc.sinks, TSR_F32, {4});
    add(desc.seq_lens_q, TSR_I32, {2});
    add(desc.seq_lens_k, TSR_I32, {2});
    add(desc.page_table, TSR_I32, {2, 2});
    add(desc.k_scale, TSR_F32, {2});
    add(desc.v_scale, TSR_F32, {2});
    desc.softcap = 30;
    desc.causal = 1;
  }
  Call(const Call&) = delete;
};

bool same(const Call& a, const Call& b) {
  AttentionKey x, y;
  return x.read(7, &a.desc) && y.read(7, &b.desc) && x == y;
}

// Zeroed to the last byte of padding, so that they can be compared as bytes.
tsr::device::Attention translated[3];

void translate(const Call& call, tsr::device::Attention* to) {
  tsr::CheckOptions options;
  options.host_readable = false;
  tsr::Problem problem;
  const tsr::Verdict verdict = tsr::check_attention(&call.desc, options, &problem);
  if (!verdict.ok()) std::printf("%s\n", verdict.text.c_str());
  CHECK(verdict.ok());
  CHECK(tsr::device::translate(problem, to).ok());
}

void addresses(bool packed) {
  std::memset(static_cast<void*>(translated), 0, sizeof translated);
  const Call first(0, packed), second(1, packed);
  CHECK(same(first, second));
  translate(first, &translated[0]);
  translate(second, &translated[1]);
  CHECK(std::memcmp(&translated[0], &translated[1], sizeof translated[0]) != 0);
  tsr::set_addresses(second.desc, &translated[0]);
  CHECK(std::memcmp(&translated[0], &translated[1], sizeof translated[0]) == 0);
}

/// A change to one of two equal descriptors: they differ.
template <class F>
void differs(bool packed, F&& change) {
  const Call first(0, packed);
  Call second(1, packed);
  change(second);
  CHECK(!same(first, second));
}

void tensors(bool packed) {
  const int count = Call(0, packed).count;
  for (int i = 0; i < count; ++i) {
    const auto changed = [&](auto&& change) { differs(packed, [&](Call& call) { change(call.t[i]); }); };
    changed([](tsr_tensor& t) { t.dtype = TSR_BF16; });
    changed([](tsr_tensor& t) { t.data = static_cast<char*>(t.data) + 32; });
    changed([](tsr_tensor& t) { t.data = static_cast<char*>(t.data) + 1; });
    changed([](tsr_tensor& t) { t.data = nullptr; });
    changed([](tsr_tensor& t) { t.rank++; });
    changed([](tsr_tensor& t) { t.reserved = 1; });
    changed([](tsr_tensor& t) { t.bytes = kBytes; });
    changed([](tsr_tensor& t) { t.struct_size -= 8; });
    for (int d = 0; d < TSR_MAX_RANK; ++d) {
      changed([&](tsr_tensor& t) { t.shape[d]++; });
      changed([&](tsr_tensor& t) { t.stride[d]++; });
    }
  }
}

void options() {
  const auto changed = [](auto&& change) { differs(false, [&](Call& call) { change(call.desc); }); };
  using D = tsr_attention_desc;
  changed([](D& d) { d.present = TSR_HAS_SCALE; });
  changed([](D& d) { d.scale = 1; });
  changed([](D& d) { d.softcap = 31; });
  changed([](D& d) { d.causal = 0; });
  changed([](D& d) { d.align = TSR_ALIGN_TOP_LEFT; });
  changed([](D& d) { d.window_left = 5; });
  changed([](D& d) { d.window_right = 5; });
  changed([](D& d) { d.max_seqlen_q = 2; });
  changed([](D& d) { d.max_seqlen_k = 2; });
  changed([](D& d) { d.num_splits = 2; });
  changed([](D& d) { d.reserved = 1; });
  changed([](D& d) { d.struct_size -= 8; });
  changed([](D& d) { d.struct_size += 8; });
  changed([](D& d) { d.kernel = "decode-simt"; });
  changed([](D& d) { d.mask = nullptr; });
  changed([](D& d) { d.bias = d.mask; });
  changed([](D& d) { std::swap(d.k_scale, d.sinks); });
  for (const auto member : {&D::q, &D::k, &D::v, &D::out}) changed([&](D& d) { d.*member = nullptr; });

  // What may differ, as it is looked at in each call.
  const Call first(0, false);
  Call second(1, false);
  int32_t cancel = 0;
  second.desc.workspace = memory;
  second.desc.workspace_bytes = 64;
  second.desc.cancel = &cancel;
  CHECK(same(first, second));
}

void keys() {
  const Call call(0, false);
  AttentionKey a, b;
  CHECK(!(a == b));  // neither was read
  CHECK(a.read(7, &call.desc) && b.read(8, &call.desc));
  CHECK(!(a == b));  // of two contexts
  CHECK(b.read(7, &call.desc) && a == b);
  CHECK(!b.read(7, nullptr) && !(a == b) && !(b == b));
}

}  // namespace

int main() {
  for (const bool packed : {false, true}) {
    addresses(packed);
    tensors(packed);
  }
  options();
  keys();
  return tsr::check::finish();
}
