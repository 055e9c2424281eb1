// check.h: what a good descriptor becomes. (What a bad one is told is tests/abi/src/bad_input.c.) And the selector.
#include "tessera/common/check.h"

#include <cmath>
#include <cstring>
#include <string>

#include "count.h"
#include "packed_tensor.h"
#include "tessera/common/select.h"

namespace {

float memory[4096];

struct Call {
  tsr_tensor q = tensor(TSR_F32, memory, {2, 3, 6, 8});
  tsr_tensor k = tensor(TSR_F16, memory, {2, 5, 2, 8});
  tsr_tensor v = tensor(TSR_BF16, memory, {2, 5, 2, 4});
  tsr_tensor out = tensor(TSR_F16, memory, {2, 3, 6, 4});
  tsr_tensor lse = tensor(TSR_F32, memory, {2, 6, 3});
  tsr_attention_desc desc{};
  Call() {
    desc.struct_size = sizeof desc;
    desc.q = &q;
    desc.k = &k;
    desc.v = &v;
    desc.out = &out;
  }
};

tsr::Problem checked(const Call& call, tsr::CheckOptions options = {}) {
  tsr::Problem p;
  const tsr::Verdict verdict = tsr::check_attention(&call.desc, options, &p);
  if (!verdict.ok()) std::printf("%s\n", verdict.text.c_str());
  CHECK(verdict.ok());
  return p;
}

void padded() {
  Call call;
  call.desc.lse = &call.lse;
  const tsr::Problem p = checked(call);
  CHECK(p.batch == 2 && p.heads == 6 && p.kv_heads == 2 && p.group == 3 && p.dim == 8 && p.value_dim == 4);
  CHECK(p.query_rows == 3 && p.key_rows == 5 && p.max_queries == 3 && p.max_keys == 5);
  CHECK(p.q.batch_stride == 144 && p.q.row_stride == 48 && p.q.head_stride == 8);
  CHECK(p.lse.batch_stride == 18 && p.lse.head_stride == 3 && p.lse.row_stride == 1);
  CHECK(p.scale == static_cast<float>(1 / std::sqrt(8.0)) && p.window_left == -1 && p.window_right == -1);
  CHECK(!p.bias.given() && !p.mask.given() && p.sinks == nullptr && !p.paged() && p.plain_score());
  const tsr::Sequence s = p.sequence(1);
  CHECK(s.query_count == 3 && s.visibility.key_count == 5 && s.visibility.offset == 2);
}

void packed_and_paged() {
  Call call;
  int32_t starts[] = {0, 4, 6}, lengths[] = {7, 0}, pages[] = {4, 2, -1, -1};
  call.q = tensor(TSR_F32, memory, {6, 6, 8});
  call.out = tensor(TSR_F16, memory, {6, 6, 4});
  call.lse = tensor(TSR_F32, memory, {6, 6});
  call.k = tensor(TSR_F16, memory, {5, 4, 2, 8});
  call.v = tensor(TSR_BF16, memory, {5, 4, 2, 4});
  tsr_tensor cu = tensor(TSR_I32, starts, {3}), lens = tensor(TSR_I32, lengths, {2}),
             table = tensor(TSR_I32, pages, {2, 2});
  call.desc.lse = &call.lse;
  call.desc.cu_seqlens_q = &cu;
  call.desc.seq_lens_k = &lens;
  call.desc.page_table = &table;
  tsr::Problem p = checked(call);
  CHECK(p.batch == 2 && p.packed_q && p.query_rows == 6 && p.max_queries == 6 && p.q.batch_stride == 0);
  CHECK(p.lse.batch_stride == 0 && p.lse.head_stride == 6 && p.lse.row_stride == 1);
  CHECK(p.page_size == 4 && p.page_count == 5 && p.max_keys == 8 && p.page_table_stride == 2);
  CHECK(p.sequence(0).query_count == 4 && p.sequence(1).query_row == 4 && p.sequence(0).visibility.key_count == 7);
  call.desc.max_seqlen_q = 4;
  CHECK(checked(call).max_queries == 4);

  // Shapes alone: what is given without data still counts as given, or supports would speak of another call.
  cu.data = lens.data = table.data = call.q.data = nullptr;
  tsr::CheckOptions shapes;
  shapes.shapes_only = true;
  p = checked(call, shapes);
  CHECK(p.cu_seqlens_q != nullptr && p.seq_lens_k != nullptr && p.page_table != nullptr);
  CHECK((tsr::features_of(p) & (tsr::kFeatureLengths | tsr::kFeaturePaged)) ==
        (tsr::kFeatureLengths | tsr::kFeaturePaged));
}

// A device whose memory the host can't read: contents aren't looked at, whatever they are.
void unreadable() {
  Call call;
  tsr_tensor lens = tensor(TSR_I32, reinterpret_cast<void*>(uintptr_t{4096}), {2});
  call.desc.seq_lens_k = &lens;
  tsr::CheckOptions options;
  options.host_readable = false;
  CHECK(checked(call, options).seq_lens_k != nullptr);
}

// Decode checks the attention as it will be: the array that the append moves is read as moved.
void after_append() {
  int32_t lengths[] = {4, 5};
  tsr_tensor lens = tensor(TSR_I32, lengths, {2}), more = tensor(TSR_F32, memory, {2, 1, 2, 8});
  tsr_tensor more_v = tensor(TSR_F32, memory, {2, 1, 2, 4});
  Call call;
  call.desc.seq_lens_k = &lens;
  tsr_append_desc append{};
  append.struct_size = sizeof append;
  append.flags = TSR_APPEND_ADVANCE;
  append.k = &more;
  append.v = &more_v;
  append.cache_k = &call.k;
  append.cache_v = &call.v;
  append.lengths = &lens;
  tsr_decode_desc decode{};
  decode.struct_size = sizeof decode;
  decode.append = &append;
  decode.attention = &call.desc;
  tsr::DecodeProblem p;
  tsr::Verdict verdict = tsr::check_decode(&decode, {}, &p);
  CHECK(verdict.status == TSR_INVALID_ARGUMENT && verdict.text.find("[1] is 5 and 1 new") != std::string::npos);
  lengths[1] = -1;
  verdict = tsr::check_decode(&decode, {}, &p);
  CHECK(verdict.status == TSR_INVALID_ARGUMENT && verdict.text.find("lengths: [1] is -1") != std::string::npos);
  lengths[1] = 0;
  CHECK(tsr::check_decode(&decode, {}, &p).ok() && p.appends);
  lengths[0] = 4;
  call.k.shape[1] = call.v.shape[1] = 4;  // attention sees a smaller cache than the append writes to
  tsr_tensor k = tensor(TSR_F16, memory, {2, 5, 2, 8}), v = tensor(TSR_BF16, memory, {2, 5, 2, 4});
  append.cache_k = &k;
  append.cache_v = &v;
  verdict = tsr::check_decode(&decode, {}, &p);
  CHECK(verdict.text == "attention: seq_lens_k: [0] is 5, must be 0 to 4, the keys that k has room for");
}

int prefer_last(const tsr::Problem&, const tsr::Variant& row) { return row.name[0]; }

void selection() {
  tsr::Variant a, b, c;
  a.name = "a-small";
  a.max_head_dim = 4;
  a.kv_dtypes = tsr::kCacheTypes;
  b.name = "b-aligned";
  b.alignment = 16;
  c.name = "c-off";
  c.usable = false;
  c.reason = "no such hardware";
  const std::vector<tsr::Variant> rows{a, b, c};
  Call call;
  alignas(64) static unsigned char aligned[4096];
  for (tsr_tensor* t : {&call.q, &call.k, &call.v, &call.out}) t->data = aligned;
  call.v = tensor(TSR_BF16, aligned, {2, 5, 2, 8});
  call.out = tensor(TSR_F16, aligned, {2, 3, 6, 8});

  tsr::Selection s = tsr::select_variant(rows, checked(call), prefer_last, true);
  CHECK(s.verdict.ok() && s.row == &rows[1] && s.rejections.size() == 2);
  CHECK(s.rejections[0].reason == "head dim is 8, it takes at most 4" && s.rejections[1].reason == "no such hardware");

  call.k.data = aligned + 8;
  s = tsr::select_variant(rows, checked(call), prefer_last, false);
  CHECK(s.verdict.status == TSR_UNSUPPORTED && s.row == nullptr);
  CHECK(s.verdict.text.find("b-aligned: rows of k are aligned to 8 bytes, it needs 16") != std::string::npos);
  tsr::CheckOptions shapes;
  shapes.shapes_only = true;
  call.k.data = nullptr;  // taken as good
  CHECK(tsr::select_variant(rows, checked(call, shapes), prefer_last, false).row == &rows[1]);
  call.k.data = aligned;
  call.k.stride[1] += 4;  // 8 bytes
  CHECK(!tsr::select_variant(rows, checked(call), prefer_last, false).verdict.ok());
  call.k.stride[1] -= 4;

  // Above 1 the elements' own alignment counts too, in bias and lse as well; blocks only have that of their scale.
  tsr::Variant loose = b;
  loose.alignment = 2;
  loose.kv_dtypes = tsr::kCacheTypes;
  Call odd;
  tsr_tensor lse = tensor(TSR_F32, aligned, {2, 6, 3});
  for (tsr_tensor* t : {&odd.q, &odd.k, &odd.v, &odd.out}) t->data = aligned;
  odd.desc.lse = &lse;
  CHECK(tsr::objection(loose, checked(odd)).empty() && tsr::able(loose, checked(odd)));
  lse.data = aligned + 2;
  CHECK(tsr::objection(loose, checked(odd)) == "rows of lse are aligned to 2 bytes, it needs 4");
  CHECK(!tsr::able(loose, checked(odd)) && tsr::able(a, checked(odd)) == (odd.q.shape[3] <= 4));
  lse.data = aligned;
  odd.q.data = aligned + 2;
  CHECK(tsr::objection(loose, checked(odd)) == "rows of q are aligned to 2 bytes, it needs 4");

  // Features that tell a cache's types apart.
  const auto types = [](tsr_dtype q, tsr_dtype k, tsr_dtype v) {
    tsr::Problem p;
    p.q.dtype = q, p.k.dtype = k, p.v.dtype = v;
    return tsr::features_of(p) & (tsr::kFeatureMixedTypes | tsr::kFeatureMixedKeysValues | tsr::kFeatureOtherFloatKeys);
  };
  CHECK(types(TSR_F16, TSR_F16, TSR_F16) == 0);
  CHECK(types(TSR_F16, TSR_Q8_0, TSR_Q8_0) == tsr::kFeatureMixedTypes);
  CHECK(types(TSR_F16, TSR_BF16, TSR_BF16) == (tsr::kFeatureMixedTypes | tsr::kFeatureOtherFloatKeys));
  CHECK(types(TSR_F16, TSR_F16, TSR_Q4_0) == (tsr::kFeatureMixedTypes | tsr::kFeatureMixedKeysValues));

  call.desc.kernel = "a-small";
  s = tsr::select_variant(rows, checked(call), prefer_last, true);
  CHECK(s.verdict.status == TSR_UNSUPPORTED && s.verdict.text.find("\"a-small\"") != std::string::npos);
  CHECK(s.verdict.text.find("head dim is 8") != std::string::npos);
  call.desc.kernel = "b";
  s = tsr::select_variant(rows, checked(call), prefer_last, true);
  CHECK(s.verdict.status == TSR_INVALID_ARGUMENT);
  CHECK(s.verdict.text == "kernel: is \"b\", must be one of a-small, b-aligned, c-off");

  // What runs by name alone isn't preferred whatever the preference says, nor named where nothing can.
  std::vector<tsr::Variant> named{b, b};
  named[1].name = "z-named";
  named[1].by_name_only = true;
  call.desc.kernel = nullptr;
  s = tsr::select_variant(named, checked(call), prefer_last, true);
  CHECK(s.row == &named[0] && s.rejections.size() == 1);
  CHECK(s.rejections[0].reason == "could do it, but runs only where it is asked for by name");
  call.desc.kernel = "z-named";
  CHECK(tsr::select_variant(named, checked(call), prefer_last, false).row == &named[1]);
  call.desc.kernel = nullptr;
  call.desc.num_splits = 2;
  s = tsr::select_variant(named, checked(call), prefer_last, false);
  CHECK(!s.verdict.ok() && s.verdict.text.find("b-aligned") != std::string::npos);
  CHECK(s.verdict.text.find("z-named") == std::string::npos);
  call.desc.num_splits = 0;
  tsr_kernel_info info{};
  tsr::describe(named[1], &info);
  CHECK(info.flags == TSR_KERNEL_BY_NAME && (tsr::describe(named[0], &info), info.flags == 0));

  call.desc.softcap = 3;
  std::vector<tsr::Variant> plain{b};
  plain[0].lacks = tsr::kFeatureSoftcap | tsr::kFeatureBias;
  s = tsr::select_variant(plain, checked(call), prefer_last, false);
  CHECK(s.verdict.text.find("it has no soft cap") != std::string::npos);
  call.desc.softcap = 0;
  call.desc.num_splits = 2;
  s = tsr::select_variant(plain, checked(call), prefer_last, false);
  CHECK(s.verdict.text.find("num_splits is 2") != std::string::npos);
  plain[0].splits = true;
  CHECK(tsr::select_variant(plain, checked(call), prefer_last, false).verdict.ok());
}

}  // namespace

int main() {
  padded();
  packed_and_paged();
  unreadable();
  after_append();
  selection();
  return tsr::check::finish();
}
