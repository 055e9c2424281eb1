// tsr_append_desc -> AppendProblem, and tsr_decode_desc, which is an append and the attention that follows it.
#include <cmath>

#include "contents.h"
#include "tensor.h"
#include "tessera/common/catalogue.h"
#include "tessera/common/check.h"

namespace tsr {
namespace {

struct Tensors {
  Tensor k, v, q, q_out, cache_k, cache_v, page_table, lengths, new_lens, cu_seqlens, k_scale, v_scale;
};

Verdict read_tensors(const tsr_append_desc& d, bool need_data, Tensors* t) {
  const bool packed = d.cu_seqlens != nullptr;
  const bool paged = d.page_table != nullptr;
  const auto data = [&](uint32_t dtypes, const char* layout, bool written) {
    return TensorRules{dtypes, 0, layout, written, need_data, false};
  };
  const auto vector = [&](tsr_dtype dtype, const char* layout, bool written = false) {
    return TensorRules{dtype_bit(dtype), 0, layout, written, need_data, true};
  };
  const char* const cache = paged ? "[pages,page_size,Hkv,D]" : "[B,capacity,Hkv,D]";
  const char* const queries = packed ? "[T,Hq,D]" : "[B,S,Hq,D]";
  TSR_TRY(read_tensor(d.k, "k", data(kFloatTypes, packed ? "[T,Hkv,D]" : "[B,S,Hkv,D]", false), true, &t->k));
  TSR_TRY(read_tensor(d.v, "v", data(kFloatTypes, packed ? "[T,Hkv,Dv]" : "[B,S,Hkv,Dv]", false), true, &t->v));
  TSR_TRY(read_tensor(d.q, "q", data(kFloatTypes, queries, false), d.q_out != nullptr, &t->q));
  TSR_TRY(read_tensor(d.q_out, "q_out", data(kFloatTypes, queries, true), d.q != nullptr, &t->q_out));
  TSR_TRY(read_tensor(d.cache_k, "cache_k", data(kCacheTypes, cache, true), true, &t->cache_k));
  TSR_TRY(read_tensor(d.cache_v, "cache_v", data(kCacheTypes, cache, true), true, &t->cache_v));
  TSR_TRY(read_tensor(d.page_table, "page_table", vector(TSR_I32, "[B,pages per sequence]"), false, &t->page_table));
  TSR_TRY(read_tensor(d.lengths, "lengths", vector(TSR_I32, "[B]"), true, &t->lengths));
  TSR_TRY(read_tensor(d.new_lens, "new_lens", vector(TSR_I32, "[B]"), false, &t->new_lens));
  TSR_TRY(read_tensor(d.cu_seqlens, "cu_seqlens", vector(TSR_I32, "[B+1]"), false, &t->cu_seqlens));
  TSR_TRY(read_tensor(d.k_scale, "k_scale", vector(TSR_F32, "[Hkv]"), false, &t->k_scale));
  return read_tensor(d.v_scale, "v_scale", vector(TSR_F32, "[Hkv]"), false, &t->v_scale);
}

Verdict read_sizes(const Tensors& t, int64_t max_head_dim, AppendProblem* p) {
  p->packed = t.cu_seqlens.given;
  const int r = p->packed ? 0 : 1;  // the row dimension; heads and D follow
  if (p->packed && t.cu_seqlens.shape[0] < 1) return invalid("cu_seqlens: shape[0] is 0, must be B + 1");
  p->batch = p->packed ? t.cu_seqlens.shape[0] - 1 : t.k.shape[0];
  const char* const batch = p->packed ? "the batch that cu_seqlens tells" : "the batch of k";
  p->rows = t.k.shape[r];
  p->kv_heads = t.k.shape[r + 1];
  p->dim = t.k.shape[r + 2];
  p->value_dim = t.v.shape[r + 2];
  if (p->dim < 1) return invalid("k: shape[", r + 2, "] is 0, must be a head dim >= 1");
  if (p->value_dim < 1) return invalid("v: shape[", r + 2, "] is 0, must be a head dim >= 1");
  if (p->dim > max_head_dim) return unsupported("k: head dim is ", p->dim, ", must be at most ", max_head_dim, " here");
  if (p->value_dim > max_head_dim) {
    return unsupported("v: head dim is ", p->value_dim, ", must be at most ", max_head_dim, " here");
  }
  if (!p->packed) TSR_TRY(expect_extent(t.v, 0, p->batch, "the batch of k"));
  TSR_TRY(expect_extent(t.v, r, p->rows, "the rows of k"));
  TSR_TRY(expect_extent(t.v, r + 1, p->kv_heads, "the heads of k"));

  if (t.q.given) {
    if (!p->packed) TSR_TRY(expect_extent(t.q, 0, p->batch, "the batch of k"));
    TSR_TRY(expect_extent(t.q, r, p->rows, "the rows of k"));
    TSR_TRY(expect_extent(t.q, r + 2, p->dim, "the head dim of k"));
    p->heads = t.q.shape[r + 1];
    for (int d = 0; d < t.q.rank; ++d) TSR_TRY(expect_extent(t.q_out, d, t.q.shape[d], "as in q"));
  }

  if (t.page_table.given) {
    TSR_TRY(expect_extent(t.page_table, 0, p->batch, batch));
    TSR_TRY(expect_extent(t.cache_v, 0, t.cache_k.shape[0], "the pages of cache_k"));
    p->page_count = t.cache_k.shape[0];
    p->page_size = t.cache_k.shape[1];
    p->page_table_stride = t.page_table.stride[0];
    if (p->page_size < 1) return invalid("cache_k: shape[1] is 0, must be a page size >= 1");
    if (__builtin_mul_overflow(t.page_table.shape[1], p->page_size, &p->capacity)) p->capacity = kMaxRows + 1;
  } else {
    TSR_TRY(expect_extent(t.cache_k, 0, p->batch, batch));
    TSR_TRY(expect_extent(t.cache_v, 0, p->batch, batch));
    p->capacity = t.cache_k.shape[1];
  }
  if (p->capacity > kMaxRows) return unsupported("cache_k: room for ", p->capacity, " tokens, must be at most 2^39");
  TSR_TRY(expect_extent(t.cache_v, 1, t.cache_k.shape[1], "as in cache_k"));
  TSR_TRY(expect_extent(t.cache_k, 2, p->kv_heads, "the heads of k"));
  TSR_TRY(expect_extent(t.cache_k, 3, p->dim, "the head dim of k"));
  TSR_TRY(expect_extent(t.cache_v, 2, p->kv_heads, "the heads of v"));
  TSR_TRY(expect_extent(t.cache_v, 3, p->value_dim, "the head dim of v"));

  TSR_TRY(expect_extent(t.lengths, 0, p->batch, batch));
  if (t.new_lens.given) {
    if (p->packed) return invalid("new_lens: given together with cu_seqlens; only one may be");
    TSR_TRY(expect_extent(t.new_lens, 0, p->batch, batch));
  }
  for (const Tensor* x : {&t.k_scale, &t.v_scale}) {
    if (!x->given) continue;
    const Tensor& scaled = x == &t.k_scale ? t.cache_k : t.cache_v;
    TSR_TRY(expect_extent(*x, 0, p->kv_heads, "the heads of k"));
    if (scaled.dtype != TSR_F8_E4M3) {
      return invalid(x->name, ": given, but ", scaled.name, " is ", dtype_name(scaled.dtype),
                     "; only f8_e4m3 has a scale");
    }
  }
  return {};
}

Verdict read_rope(const tsr_rope_desc* desc, bool need_data, AppendProblem* p) {
  if (desc == nullptr) return {};
  tsr_rope_desc d;
  TSR_TRY(read_struct(desc, "rope", &d));
  if (d.reserved != 0) return unsupported("rope: reserved is ", d.reserved, ", must be 0");
  if (d.pairing != TSR_ROPE_HALF && d.pairing != TSR_ROPE_INTERLEAVED) {
    return invalid("rope: pairing is ", d.pairing, ", must be 1 (half) or 2 (interleaved)");
  }
  if (!std::isfinite(d.theta) || d.theta <= 0) return invalid("rope: theta is ", d.theta, ", must be finite and > 0");
  if (!std::isfinite(d.scale)) return invalid("rope: scale is ", d.scale, ", must be finite (0 is 1)");
  if (d.dims < 0 || d.dims > p->dim || d.dims % 2 != 0 || (d.dims == 0 && p->dim % 2 != 0)) {
    return invalid("rope: dims is ", d.dims, ", must be even and at most ", p->dim,
                   ", the head dim of k (0 is all of them, if that is even)");
  }
  const TensorRules rules{dtype_bit(TSR_I32), 0, p->packed ? "[T]" : "[B,S]", false, need_data, true};
  Tensor positions;
  TSR_TRY(read_tensor(d.positions, "rope positions", rules, false, &positions));
  if (positions.given) {
    if (!p->packed) TSR_TRY(expect_extent(positions, 0, p->batch, "the batch of k"));
    TSR_TRY(expect_extent(positions, p->packed ? 0 : 1, p->rows, "the rows of k"));
    p->rope.positions = static_cast<const int32_t*>(positions.data);
    p->rope.positions_stride = p->packed ? 0 : positions.stride[0];
  }
  p->rope.dims = d.dims ? d.dims : static_cast<int32_t>(p->dim);
  p->rope.interleaved = d.pairing == TSR_ROPE_INTERLEAVED;
  p->rope.theta = d.theta;
  p->rope.scale = d.scale != 0 ? d.scale : 1.0;
  return {};
}

View view(const Tensor& t, bool packed) {
  View v;
  if (!t.given) return v;
  const int row = packed ? 0 : 1;
  v.data = t.data;
  v.dtype = t.dtype;
  v.batch_stride = packed ? 0 : t.stride[0];
  v.row_stride = t.stride[row];
  v.head_stride = t.stride[row + 1];
  return v;
}

// After the append every sequence still fits, in its cache and in an int32_t, and the pages it writes to exist.
Verdict check_contents(const Tensors& t, const AppendProblem& p) {
  TSR_TRY(check_lengths(t.new_lens, p.rows, "the rows of k"));
  TSR_TRY(check_starts(t.cu_seqlens, p.rows, "the rows of k", 0, ""));
  if (t.lengths.data == nullptr || !p.counts_readable) return {};
  const int64_t limit = p.capacity < INT32_MAX ? p.capacity : INT32_MAX;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t held = p.lengths[b];
    const int64_t added = p.new_count(b);
    if (held < 0 || held + added > limit) {
      return invalid("lengths: [", b, "] is ", held, " and ", added, " new tokens make ", held + added,
                     ", must be 0 to ", limit, ", the capacity of the cache");
    }
    if (p.paged()) TSR_TRY(check_page_range(t.page_table, b, held, held + added, p.page_size, p.page_count));
  }
  return {};
}

}  // namespace

Verdict check_append(const tsr_append_desc* desc, const CheckOptions& options, AppendProblem* problem) {
  tsr_append_desc d;
  TSR_TRY(read_struct(desc, "append", &d));
  constexpr uint32_t known = TSR_APPEND_ADVANCE;
  if (d.flags & ~known) return unsupported("flags: is ", d.flags, ", but only the bits ", known, " are known here");
  Tensors t;
  AppendProblem p;
  const bool need_data = !options.shapes_only;
  TSR_TRY(read_tensors(d, need_data, &t));
  TSR_TRY(read_sizes(t, options.max_head_dim, &p));
  TSR_TRY(read_rope(d.rope, need_data, &p));

  p.k = view(t.k, p.packed);
  p.v = view(t.v, p.packed);
  p.q = view(t.q, p.packed);
  p.q_out = view(t.q_out, p.packed);
  p.cache_k = view(t.cache_k, false);
  p.cache_v = view(t.cache_v, false);
  p.page_table = static_cast<const int32_t*>(t.page_table.data);
  p.lengths = static_cast<int32_t*>(t.lengths.data);
  p.new_lens = static_cast<const int32_t*>(t.new_lens.data);
  p.cu_seqlens = static_cast<const int32_t*>(t.cu_seqlens.data);
  p.k_scale = static_cast<const float*>(t.k_scale.data);
  p.v_scale = static_cast<const float*>(t.v_scale.data);
  p.counts_readable = (!t.new_lens.given || t.new_lens.data) && (!t.cu_seqlens.given || t.cu_seqlens.data);
  p.advance = (d.flags & TSR_APPEND_ADVANCE) != 0;

  if (options.host_readable) TSR_TRY(check_contents(t, p));
  *problem = p;
  return {};
}

Verdict read_decode(const tsr_decode_desc* desc, tsr_decode_desc* parts) {
  TSR_TRY(read_struct(desc, "decode", parts));
  if (parts->reserved != 0) return unsupported("reserved: is ", parts->reserved, ", must be 0");
  return {};
}

Verdict in_part(const char* part, Verdict verdict) {
  if (!verdict.ok()) verdict.text = text(part, ": ", verdict.text);
  return verdict;
}

Verdict check_batches(int64_t append, int64_t attention) {
  if (append == attention) return {};
  return invalid("append: batch is ", append, ", must be ", attention, ", the batch of attention");
}

Verdict check_decode(const tsr_decode_desc* desc, const CheckOptions& options, DecodeProblem* problem) {
  tsr_decode_desc d;
  TSR_TRY(read_decode(desc, &d));
  DecodeProblem p;
  p.appends = d.append != nullptr;
  CheckOptions after = options;
  if (p.appends) {
    TSR_TRY(in_part("append", check_append(d.append, options, &p.append)));
    after.after_append = &p.append;
  }
  TSR_TRY(in_part("attention", check_attention(d.attention, after, &p.attention)));
  if (p.appends) TSR_TRY(check_batches(p.append.batch, p.attention.batch));
  *problem = p;
  return {};
}

}  // namespace tsr
