// libFuzzer on the C contract: descriptors with hostile sizes, strides, types and contents against the CPU back end, under
// the address and undefined-behaviour sanitizers. Whatever is asked: no crash, no byte beyond what was given, a status with
// a text, the same answer from supports, explain, attention_workspace and attention, outputs untouched by a refusal.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "scene.h"

extern "C" const tsr_backend* tsr_backend_entry(uint32_t abi_version);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using fuzz::Bytes;
using fuzz::Scene;

const tsr_backend* backend;
tsr_context* context;

void require(bool so, const char* what) {
  if (so) return;
  std::fprintf(stderr, "not so: %s; the back end says: %s\n", what, backend->last_error(context));
  std::abort();
}

void told(tsr_status status) {
  require(status >= TSR_OK && status <= TSR_ABORTED, "a status of the contract, and no defect");
  require(status == TSR_OK || backend->last_error(context)[0] != '\0', "a failure has a text");
}

template <class T>
uint32_t some_size(Bytes& b) {
  return fuzz::readable_size<T>(b.flag() ? b.upto(sizeof(T)) : b.hostile());
}

tsr_dtype real(Bytes& b) { return static_cast<tsr_dtype>(TSR_F32 + b.upto(2)); }
tsr_dtype stored(Bytes& b) { return static_cast<tsr_dtype>(TSR_F32 + b.upto(5)); }
int64_t width(Bytes& b, tsr_dtype t) { return t == TSR_Q8_0 || t == TSR_Q4_0 ? 32 * (1 + b.upto(1)) : 1 + b.upto(40); }

struct Attention {
  tsr_attention_desc d{};
  tsr_tensor* tables[5] = {};  // index tensors: lengths, starts, pages
  int64_t most[5] = {};

  Attention(Bytes& b, Scene& s, tsr_dtype k_type, tsr_dtype v_type, int64_t dim, int64_t value_dim) {
    const int64_t batch = b.upto(3), queries = b.upto(9), keys = b.upto(40), kv = 1 + b.upto(1),
                  heads = kv * (1 + b.upto(2));
    const int form = static_cast<int>(b.upto(3)), pages = 1 + static_cast<int>(b.upto(3));
    const bool packed = form == 1, paged = form == 2;
    const int64_t page = 1 + b.upto(15);
    d.struct_size = sizeof d;
    const tsr_dtype q_type = real(b);
    d.q = packed ? s.tensor(q_type, queries, heads, dim) : s.tensor(q_type, batch, queries, heads, dim);
    d.k = paged    ? s.tensor(k_type, pages, page, kv, dim)
          : packed ? s.tensor(k_type, keys, kv, dim)
                   : s.tensor(k_type, batch, keys, kv, dim);
    d.v = paged    ? s.tensor(v_type, pages, page, kv, value_dim)
          : packed ? s.tensor(v_type, keys, kv, value_dim)
                   : s.tensor(v_type, batch, keys, kv, value_dim);
    d.out = packed ? s.tensor(q_type, queries, heads, value_dim) : s.tensor(q_type, batch, queries, heads, value_dim);
    if (b.flag()) d.lse = packed ? s.tensor(TSR_F32, heads, queries) : s.tensor(TSR_F32, batch, heads, queries);
    const int64_t columns = paged ? pages * page : keys;
    if (b.upto(3) == 3) d.bias = s.tensor(real(b), b.flag() ? batch : 1, b.flag() ? heads : 1, queries, columns);
    if (b.upto(3) == 3) d.mask = s.tensor(TSR_BOOL, b.flag() ? batch : 1, b.flag() ? heads : 1, queries, columns);
    if (b.upto(3) == 3) d.alibi_slopes = s.tensor(TSR_F32, heads);
    if (b.upto(3) == 3) d.sinks = s.tensor(TSR_F32, heads);
    if (b.upto(3) == 3) d.query_offset = s.tensor(TSR_I32, batch);
    if (b.upto(3) == 3) d.k_scale = s.tensor(TSR_F32, kv);
    if (b.upto(3) == 3) d.v_scale = s.tensor(TSR_F32, kv);
    if (packed) {
      d.cu_seqlens_q = tables[0] = s.tensor(TSR_I32, batch + 1), most[0] = queries;
      d.cu_seqlens_k = tables[1] = s.tensor(TSR_I32, batch + 1), most[1] = keys;
    } else if (form > 1 || b.flag()) {
      d.seq_lens_k = tables[2] = s.tensor(TSR_I32, batch), most[2] = columns;
      if (b.flag()) d.seq_lens_q = tables[3] = s.tensor(TSR_I32, batch), most[3] = queries;
    }
    if (paged) d.page_table = tables[4] = s.tensor(TSR_I32, batch, pages), most[4] = pages - 1;
    d.causal = static_cast<int32_t>(b.upto(1));
    d.num_splits = static_cast<int32_t>(b.upto(3));
  }

  /// One of its own fields.
  void spoil(Bytes& b) {
    const tsr_tensor** const tensors[] = {&d.q,
                                          &d.k,
                                          &d.v,
                                          &d.out,
                                          &d.lse,
                                          &d.query_offset,
                                          &d.bias,
                                          &d.mask,
                                          &d.sinks,
                                          &d.alibi_slopes,
                                          &d.seq_lens_q,
                                          &d.seq_lens_k,
                                          &d.page_table,
                                          &d.cu_seqlens_q,
                                          &d.cu_seqlens_k,
                                          &d.k_scale,
                                          &d.v_scale};
    switch (b.upto(12)) {
      case 0:
        d.present = static_cast<uint32_t>(b.flag() ? b.upto(3) : b.hostile());
        break;
      case 1:
        d.scale = b.number();
        break;
      case 2:
        d.softcap = b.number();
        break;
      case 3:
        d.causal = static_cast<int32_t>(b.hostile());
        break;
      case 4:
        d.align = static_cast<tsr_align>(b.hostile());
        break;
      case 5:
        d.present |= TSR_HAS_WINDOW, d.window_left = b.hostile(), d.window_right = b.hostile();
        break;
      case 6:
        d.max_seqlen_q = b.hostile(), d.max_seqlen_k = b.hostile();
        break;
      case 7:
        d.num_splits = static_cast<int32_t>(b.hostile());
        break;
      case 8:
        d.reserved = static_cast<uint32_t>(b.hostile());
        break;
      case 9:  // a struct of another version, or one that ends within a member
        d.struct_size = some_size<tsr_attention_desc>(b);
        break;
      case 10:  // the wrong tensor, or none
        *tensors[b.upto(16)] = b.flag() ? nullptr : *tensors[b.upto(16)];
        break;
      default:
        static const char* const names[] = {"",    "prefill-portable", "decode-portable", "prefill-avx2", "decode-avx2",
                                            "none"};
        d.kernel = names[b.upto(5)];
    }
  }

  /// More than a moment's work: repeated elements make any number of keys.
  bool large() const {
    double work = 1;
    for (const tsr_tensor* t : {d.q, d.k}) {
      for (int i = 0; t && i < 4; i++) work *= t->shape[i] > 1 ? static_cast<double>(t->shape[i]) : 1;
    }
    return work > 1 << 22;
  }
};

std::vector<uint8_t> contents(const tsr_tensor* t, uint64_t bytes) {
  const auto* const at = t ? static_cast<const uint8_t*>(t->data) : nullptr;
  return at ? std::vector<uint8_t>(at, at + bytes) : std::vector<uint8_t>();
}

void attention(Bytes& b) {
  Scene s(b);
  const tsr_dtype k_type = stored(b), v_type = stored(b);
  Attention a(b, s, k_type, v_type, width(b, k_type), width(b, v_type));
  for (int64_t n = b.upto(3); n > 0; n--) b.flag() ? s.spoil() : a.spoil(b);
  s.place();
  for (int i = 0; i < 5; i++) s.indices(a.tables[i], a.most[i]);
  for (const tsr_tensor* t : {a.d.cu_seqlens_q, a.d.cu_seqlens_k}) {  // usually in order
    if (t && t->data && t->dtype == TSR_I32 && t->rank == 1 && t->bytes >= 8 && !b.flag() &&
        static_cast<uint64_t>(t->shape[0]) == t->bytes / 4) {
      auto* const at = static_cast<int32_t*>(t->data);
      if (reinterpret_cast<uintptr_t>(at) % 4) continue;
      at[0] = 0;
      std::sort(at, at + t->shape[0]);
      at[t->shape[0] - 1] = static_cast<int32_t>(t == a.d.cu_seqlens_q ? a.most[0] : a.most[1]);
    }
  }

  uint64_t needed = 0;
  const tsr_status supported = backend->supports(context, &a.d);
  told(supported);
  tsr_rejection rejections[2];
  tsr_explanation explanation{};
  explanation.struct_size = sizeof explanation;
  explanation.rejections = rejections;
  explanation.rejection_capacity = static_cast<uint32_t>(b.upto(2));
  const tsr_status explained = backend->explain(context, &a.d, &explanation);
  const tsr_status sized = backend->attention_workspace(context, &a.d, &needed);
  require(explained == supported && sized == supported, "supports, explain and attention_workspace agree");
  int32_t cancel = a.large();
  if (supported == TSR_OK && needed <= 1 << 24) {
    const bool enough = b.upto(7) != 7;
    if (needed > 0) {
      void* const memory = std::aligned_alloc(64, (needed + 63) / 64 * 64);
      a.d.workspace = memory;
      a.d.workspace_bytes = enough ? needed : needed - 1;
    }
  }
  if (a.d.struct_size >= sizeof a.d) a.d.cancel = &cancel;
  if (cancel && a.d.cancel == nullptr) return std::free(a.d.workspace);  // would take for ever, by its right
  const uint64_t out_bytes = a.d.out ? a.d.out->bytes : 0;
  const std::vector<uint8_t> before = contents(a.d.out, out_bytes);
  const tsr_status status = backend->attention(context, nullptr, &a.d);
  told(status);
  if (status == TSR_OK) require(supported == TSR_OK, "what ran is supported");
  if (status == TSR_UNSUPPORTED || status == TSR_INVALID_ARGUMENT)
    require(contents(a.d.out, out_bytes) == before, "a refusal writes nothing");
  std::free(a.d.workspace);
}

void append(Bytes& b, bool with_decode) {
  Scene s(b);
  const tsr_dtype k_type = stored(b), v_type = stored(b), new_type = real(b);
  const int64_t batch = b.upto(3), tokens = b.upto(5), capacity = b.upto(30), kv = 1 + b.upto(1), pages = 1 + b.upto(3);
  const int64_t dim = width(b, k_type), value_dim = width(b, v_type);
  const bool paged = b.flag(), packed = b.upto(3) == 3;
  tsr_append_desc d{};
  d.struct_size = sizeof d;
  d.flags = static_cast<uint32_t>(b.upto(1));
  d.k = packed ? s.tensor(new_type, tokens, kv, dim) : s.tensor(new_type, batch, tokens, kv, dim);
  d.v = packed ? s.tensor(new_type, tokens, kv, value_dim) : s.tensor(new_type, batch, tokens, kv, value_dim);
  d.cache_k = paged ? s.tensor(k_type, pages, capacity, kv, dim) : s.tensor(k_type, batch, capacity, kv, dim);
  d.cache_v =
      paged ? s.tensor(v_type, pages, capacity, kv, value_dim) : s.tensor(v_type, batch, capacity, kv, value_dim);
  tsr_tensor* const lengths = s.tensor(TSR_I32, batch);
  tsr_tensor* const table = paged ? s.tensor(TSR_I32, batch, pages) : nullptr;
  tsr_tensor* const reals = b.upto(3) == 3 ? s.tensor(TSR_I32, batch) : nullptr;
  tsr_tensor* const starts = packed ? s.tensor(TSR_I32, batch + 1) : nullptr;
  d.lengths = lengths, d.page_table = table, d.new_lens = reals, d.cu_seqlens = starts;
  if (b.upto(3) == 3) d.k_scale = s.tensor(TSR_F32, kv), d.v_scale = s.tensor(TSR_F32, kv);
  if (b.upto(3) == 3) {
    d.q = packed ? s.tensor(new_type, tokens, kv, dim) : s.tensor(new_type, batch, tokens, kv, dim);
    d.q_out = b.flag() ? d.q
              : packed ? s.tensor(new_type, tokens, kv, dim)
                       : s.tensor(new_type, batch, tokens, kv, dim);
  }
  tsr_rope_desc rope{};
  rope.struct_size = sizeof rope;
  rope.pairing = static_cast<tsr_rope_pairing>(1 + b.upto(1));
  rope.theta = b.flag() ? 10000.0f : b.number();
  rope.scale = b.flag() ? 0.0f : b.number();
  rope.dims = static_cast<int32_t>(b.flag() ? 0 : b.hostile());
  if (b.upto(3) == 3) rope.positions = packed ? s.tensor(TSR_I32, tokens) : s.tensor(TSR_I32, batch, tokens);
  if (b.flag()) d.rope = &rope;
  Attention a(b, s, k_type, v_type, dim, value_dim);
  if (with_decode && b.flag())
    a.d.k = d.cache_k, a.d.v = d.cache_v, a.d.seq_lens_k = d.lengths, a.d.page_table = d.page_table;
  for (int64_t n = b.upto(3); n > 0; n--) {
    if (b.flag())
      s.spoil();
    else if (b.flag())
      a.spoil(b);
    else if (b.flag())
      d.flags = static_cast<uint32_t>(b.hostile());
    else if (b.flag())
      d.struct_size = some_size<tsr_append_desc>(b);
    else
      rope.struct_size = some_size<tsr_rope_desc>(b);
  }
  s.place();
  s.indices(lengths, std::max<int64_t>(0, capacity - tokens));
  s.indices(table, pages - 1);
  s.indices(reals, tokens);
  s.indices(starts, tokens);
  if (!with_decode) return told(backend->kv_append(context, nullptr, &d));
  tsr_decode_desc both{};
  both.struct_size = b.upto(15) == 15 ? some_size<tsr_decode_desc>(b) : sizeof both;
  both.append = b.upto(3) == 3 ? nullptr : &d;
  both.attention = b.upto(7) == 7 ? nullptr : &a.d;
  uint64_t needed = 0;
  const tsr_status sized = backend->decode_workspace(context, &both, &needed);
  told(sized);
  int32_t cancel = 0;
  if (a.d.struct_size >= sizeof a.d) a.d.cancel = &cancel;
  if (sized != TSR_OK || a.large() || needed > 1 << 24) return;
  if (needed > 0) a.d.workspace = std::aligned_alloc(64, (needed + 63) / 64 * 64), a.d.workspace_bytes = needed;
  told(backend->decode(context, nullptr, &both));
  std::free(a.d.workspace);
}

void merge(Bytes& b) {
  Scene s(b);
  const int64_t batch = b.upto(3), queries = b.upto(9), heads = 1 + b.upto(3), dim = 1 + b.upto(40);
  const tsr_dtype type = real(b);
  const tsr_tensor *outs[4], *lses[4];
  for (int i = 0; i < 4; i++) {
    outs[i] = s.tensor(type, batch, queries, heads, dim);
    lses[i] = b.upto(15) == 15 ? nullptr : s.tensor(TSR_F32, batch, heads, queries);
  }
  tsr_merge_desc d{};
  d.struct_size = sizeof d;
  d.count = b.flag() ? static_cast<int32_t>(b.upto(4)) : std::min(4, static_cast<int32_t>(b.hostile()));
  d.outs = outs, d.lses = lses;
  d.out = s.tensor(real(b), batch, queries, heads, dim);
  if (b.flag()) d.lse = s.tensor(TSR_F32, batch, heads, queries);
  if (b.upto(15) == 15) d.struct_size = some_size<tsr_merge_desc>(b);
  for (int64_t n = b.upto(2); n > 0; n--) s.spoil();
  s.place();
  told(backend->merge(context, nullptr, &d));
}

/// Objects and questions that take plain numbers.
void objects(Bytes& b) {
  tsr_context_desc desc{};
  desc.struct_size = static_cast<uint32_t>(b.flag() ? sizeof desc : b.upto(16));
  desc.device = static_cast<int32_t>(b.flag() ? 0 : b.hostile());
  desc.threads = static_cast<int32_t>(b.flag() ? 1 : b.hostile() % 8);
  desc.reserved = static_cast<uint32_t>(b.upto(15) == 15);
  tsr_context* other = nullptr;
  if (backend->context_create(&desc, &other) == TSR_OK) backend->context_destroy(other);
  tsr_kernel_info kernel{};
  kernel.struct_size = static_cast<uint32_t>(b.flag() ? sizeof kernel : static_cast<uint64_t>(b.upto(100)));
  backend->kernel_info(context, static_cast<int32_t>(b.hostile()), &kernel);
  tsr_device_info device{};
  device.struct_size = static_cast<uint32_t>(b.flag() ? sizeof device : static_cast<uint64_t>(b.upto(100)));
  backend->device_info(static_cast<int32_t>(b.hostile()), &device);
  tsr_buffer* buffer = nullptr;
  const uint64_t bytes =
      b.flag() ? static_cast<uint64_t>(b.byte()) : static_cast<uint64_t>(b.hostile()) | uint64_t{1} << 50;
  if (backend->buffer_create(context, bytes, &buffer) == TSR_OK) {
    told(backend->fill(context, nullptr, backend->buffer_data(buffer), b.byte(), bytes));
    told(backend->copy(context, nullptr, backend->buffer_data(buffer), backend->buffer_data(buffer), bytes,
                       static_cast<tsr_copy_kind>(b.hostile())));
    backend->buffer_destroy(buffer);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (backend == nullptr) {
    backend = tsr_backend_entry(TSR_ABI_VERSION);
    tsr_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.threads = 1;
    if (backend == nullptr || backend->context_create(&desc, &context) != TSR_OK) std::abort();
  }
  Bytes b(data, size);
  switch (b.upto(7)) {
    case 0:
      objects(b);
      break;
    case 1:
      merge(b);
      break;
    case 2:
      append(b, false);
      break;
    case 3:
      append(b, true);
      break;
    default:
      attention(b);
  }
  return 0;
}
