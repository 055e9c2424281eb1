// tsr_attention_desc -> Problem. The order of the checks is the order in which a reader would look: tensors on their own,
// shapes against each other, options, and at last the contents of the index tensors.
#include <cmath>

#include "contents.h"
#include "tensor.h"
#include "tessera/common/catalogue.h"
#include "tessera/common/check.h"

namespace tsr {
namespace {

struct Tensors {
  Tensor q, k, v, out, lse, query_offset, alibi_slopes, bias, mask, sinks;
  Tensor seq_lens_q, seq_lens_k, cu_seqlens_q, cu_seqlens_k, page_table, k_scale, v_scale;
};

View view(const Tensor& t, int batch, int row, int head) {
  View v;
  if (!t.given) return v;
  v.data = t.data;
  v.dtype = t.dtype;
  v.batch_stride = batch >= 0 ? t.stride[batch] : 0;
  v.row_stride = t.stride[row];
  v.head_stride = t.stride[head];
  return v;
}

// What may not go together, before any shape is looked at: the layouts below depend on it.
Verdict check_combinations(const tsr_attention_desc& d) {
  if (d.cu_seqlens_q && d.seq_lens_q) return invalid("seq_lens_q: given together with cu_seqlens_q; only one may be");
  if (d.cu_seqlens_k && d.seq_lens_k) return invalid("seq_lens_k: given together with cu_seqlens_k; only one may be");
  if (d.page_table && d.cu_seqlens_k) return invalid("cu_seqlens_k: given together with page_table; only one may be");
  if (d.page_table && !d.seq_lens_k) return invalid("seq_lens_k: is NULL, must be given with page_table");
  if (d.query_offset && d.align != TSR_ALIGN_DEFAULT) {
    return invalid("query_offset: given together with align ", d.align, "; align must be 0 (TSR_ALIGN_DEFAULT) then");
  }
  return {};
}

Verdict read_tensors(const tsr_attention_desc& d, bool need_data, Tensors* t) {
  const bool packed_q = d.cu_seqlens_q != nullptr;
  const char* const k_layout = d.page_table     ? "[pages,page_size,Hkv,D]"
                               : d.cu_seqlens_k ? "[Tk,Hkv,D]"
                                                : "[B,Sk,Hkv,D]";
  const char* const v_layout = d.page_table     ? "[pages,page_size,Hkv,Dv]"
                               : d.cu_seqlens_k ? "[Tk,Hkv,Dv]"
                                                : "[B,Sk,Hkv,Dv]";
  const auto data = [&](uint32_t dtypes, uint32_t others, const char* layout, bool written) {
    return TensorRules{dtypes, others, layout, written, need_data, false};
  };
  const auto vector = [&](tsr_dtype dtype, const char* layout) {
    return TensorRules{dtype_bit(dtype), 0, layout, false, need_data, true};
  };
  TSR_TRY(
      read_tensor(d.q, "q", data(kFloatTypes, kCacheTypes, packed_q ? "[T,Hq,D]" : "[B,Sq,Hq,D]", false), true, &t->q));
  TSR_TRY(read_tensor(d.k, "k", data(kCacheTypes, 0, k_layout, false), true, &t->k));
  TSR_TRY(read_tensor(d.v, "v", data(kCacheTypes, 0, v_layout, false), true, &t->v));
  TSR_TRY(
      read_tensor(d.out, "out", data(kFloatTypes, 0, packed_q ? "[T,Hq,Dv]" : "[B,Sq,Hq,Dv]", true), true, &t->out));
  TSR_TRY(
      read_tensor(d.lse, "lse", data(dtype_bit(TSR_F32), 0, packed_q ? "[Hq,T]" : "[B,Hq,Sq]", true), false, &t->lse));
  TSR_TRY(read_tensor(d.query_offset, "query_offset", vector(TSR_I32, "[B]"), false, &t->query_offset));
  TSR_TRY(read_tensor(d.alibi_slopes, "alibi_slopes", vector(TSR_F32, "[Hq]"), false, &t->alibi_slopes));
  TSR_TRY(read_tensor(d.bias, "bias", data(kFloatTypes, 0, "[B|1,Hq|1,Sq,Sk]", false), false, &t->bias));
  TSR_TRY(read_tensor(d.mask, "mask", data(dtype_bit(TSR_BOOL), 0, "[B|1,Hq|1,Sq,Sk]", false), false, &t->mask));
  TSR_TRY(read_tensor(d.sinks, "sinks", vector(TSR_F32, "[Hq]"), false, &t->sinks));
  TSR_TRY(read_tensor(d.seq_lens_q, "seq_lens_q", vector(TSR_I32, "[B]"), false, &t->seq_lens_q));
  TSR_TRY(read_tensor(d.seq_lens_k, "seq_lens_k", vector(TSR_I32, "[B]"), false, &t->seq_lens_k));
  TSR_TRY(read_tensor(d.cu_seqlens_q, "cu_seqlens_q", vector(TSR_I32, "[B+1]"), false, &t->cu_seqlens_q));
  TSR_TRY(read_tensor(d.cu_seqlens_k, "cu_seqlens_k", vector(TSR_I32, "[B+1]"), false, &t->cu_seqlens_k));
  TSR_TRY(read_tensor(d.page_table, "page_table", vector(TSR_I32, "[B,pages per sequence]"), false, &t->page_table));
  TSR_TRY(read_tensor(d.k_scale, "k_scale", vector(TSR_F32, "[Hkv]"), false, &t->k_scale));
  return read_tensor(d.v_scale, "v_scale", vector(TSR_F32, "[Hkv]"), false, &t->v_scale);
}

// Sizes of the problem, out of q, k, v and the index tensors that shape it.
Verdict read_sizes(const tsr_attention_desc& d, const Tensors& t, int64_t max_head_dim, Problem* p) {
  const int q0 = t.cu_seqlens_q.given ? 0 : 1;  // q's row dimension; heads and D follow
  const int k0 = t.cu_seqlens_k.given ? 0 : 1;
  p->packed_q = t.cu_seqlens_q.given;
  p->packed_k = t.cu_seqlens_k.given;
  p->query_rows = t.q.shape[q0];
  p->heads = t.q.shape[q0 + 1];
  p->dim = t.q.shape[q0 + 2];
  p->key_rows = t.k.shape[k0];
  p->kv_heads = t.k.shape[k0 + 1];
  p->value_dim = t.v.shape[k0 + 2];

  for (const Tensor* cu : {&t.cu_seqlens_q, &t.cu_seqlens_k}) {
    if (cu->given && cu->shape[0] < 1) return invalid(cu->name, ": shape[0] is 0, must be B + 1");
  }
  p->batch = p->packed_q ? t.cu_seqlens_q.shape[0] - 1 : t.q.shape[0];
  const char* const batch = p->packed_q ? "the batch that cu_seqlens_q tells" : "the batch of q";
  if (p->packed_k) TSR_TRY(expect_extent(t.cu_seqlens_k, 0, p->batch + 1, "one more than the batch of q"));
  if (!p->packed_k && !t.page_table.given) {
    TSR_TRY(expect_extent(t.k, 0, p->batch, batch));
    TSR_TRY(expect_extent(t.v, 0, p->batch, batch));
  }

  if (p->dim < 1) return invalid("q: shape[", q0 + 2, "] is 0, must be a head dim >= 1");
  TSR_TRY(expect_extent(t.k, k0 + 2, p->dim, "the head dim of q"));
  if (p->value_dim < 1) return invalid("v: shape[", k0 + 2, "] is 0, must be a head dim >= 1");
  if (p->dim > max_head_dim) return unsupported("q: head dim is ", p->dim, ", must be at most ", max_head_dim, " here");
  if (p->value_dim > max_head_dim) {
    return unsupported("v: head dim is ", p->value_dim, ", must be at most ", max_head_dim, " here");
  }
  if (p->kv_heads < 1) return invalid("k: shape[", k0 + 1, "] is 0, must be at least one head");
  if (p->heads % p->kv_heads != 0) {
    return invalid("q: shape[", q0 + 1, "] is ", p->heads, " heads, must be a multiple of the ", p->kv_heads,
                   " heads of k");
  }
  p->group = p->heads / p->kv_heads;
  if (t.page_table.given) TSR_TRY(expect_extent(t.v, 0, t.k.shape[0], "the pages of k"));
  TSR_TRY(expect_extent(t.v, k0, p->key_rows, t.page_table.given ? "the page size of k" : "the keys of k"));
  TSR_TRY(expect_extent(t.v, k0 + 1, p->kv_heads, "the heads of k"));

  if (d.max_seqlen_q < 0) return invalid("max_seqlen_q: is ", d.max_seqlen_q, ", must be >= 0");
  if (d.max_seqlen_k < 0) return invalid("max_seqlen_k: is ", d.max_seqlen_k, ", must be >= 0");
  const auto longest = [](int64_t rows, int64_t told) { return told > 0 && told < rows ? told : rows; };
  p->max_queries = p->packed_q ? longest(p->query_rows, d.max_seqlen_q) : p->query_rows;
  p->max_keys = p->packed_k ? longest(p->key_rows, d.max_seqlen_k) : p->key_rows;
  if (t.page_table.given) {
    TSR_TRY(expect_extent(t.page_table, 0, p->batch, batch));
    p->page_count = t.k.shape[0];
    p->page_size = p->key_rows;
    p->page_table_stride = t.page_table.stride[0];
    if (p->page_size < 1) return invalid("k: shape[1] is 0, must be a page size >= 1");
    if (__builtin_mul_overflow(t.page_table.shape[1], p->page_size, &p->max_keys)) p->max_keys = kMaxRows + 1;
  }
  if (p->query_rows > kMaxRows) return unsupported("q: ", p->query_rows, " rows, must be at most 2^39");
  if (p->max_keys > kMaxRows) return unsupported("k: ", p->max_keys, " keys in a sequence, must be at most 2^39");
  return {};
}

// bias or mask. Packed and paged input have no Sq and Sk of their own: there the tensor has to be large enough for the
// longest sequence that the shapes allow.
Verdict check_score_tensor(const Tensor& t, const Problem& p) {
  if (!t.given) return {};
  TSR_TRY(expect_broadcast(t, 0, p.batch, "the batch of q"));
  TSR_TRY(expect_broadcast(t, 1, p.heads, "the heads of q"));
  const auto at_least = [&](int dim, int64_t value, const char* what) -> Verdict {
    if (t.shape[dim] >= value) return {};
    return invalid(t.name, ": shape[", dim, "] is ", t.shape[dim], ", must be at least ", value, ", ", what);
  };
  TSR_TRY(p.packed_q ? at_least(2, p.max_queries, "the longest sequence of q")
                     : expect_extent(t, 2, p.max_queries, "the rows of q"));
  return p.packed_k || p.paged() ? at_least(3, p.max_keys, "the longest sequence of k")
                                 : expect_extent(t, 3, p.max_keys, "the keys of k");
}

Verdict check_shapes(const Tensors& t, const Problem& p) {
  const int rows = p.packed_q ? 0 : 1;
  if (!p.packed_q) TSR_TRY(expect_extent(t.out, 0, p.batch, "the batch of q"));
  TSR_TRY(expect_extent(t.out, rows, p.query_rows, "the rows of q"));
  TSR_TRY(expect_extent(t.out, rows + 1, p.heads, "the heads of q"));
  TSR_TRY(expect_extent(t.out, rows + 2, p.value_dim, "the head dim of v"));
  if (t.lse.given) {
    if (!p.packed_q) TSR_TRY(expect_extent(t.lse, 0, p.batch, "the batch of q"));
    TSR_TRY(expect_extent(t.lse, rows, p.heads, "the heads of q"));
    TSR_TRY(expect_extent(t.lse, rows + 1, p.query_rows, "the rows of q"));
  }
  TSR_TRY(check_score_tensor(t.bias, p));
  TSR_TRY(check_score_tensor(t.mask, p));
  for (const Tensor* x : {&t.alibi_slopes, &t.sinks}) {
    if (x->given) TSR_TRY(expect_extent(*x, 0, p.heads, "the heads of q"));
  }
  for (const Tensor* x : {&t.query_offset, &t.seq_lens_q, &t.seq_lens_k}) {
    if (x->given) TSR_TRY(expect_extent(*x, 0, p.batch, "the batch of q"));
  }
  for (const Tensor* x : {&t.k_scale, &t.v_scale}) {
    if (!x->given) continue;
    TSR_TRY(expect_extent(*x, 0, p.kv_heads, "the heads of k"));
    const Tensor& scaled = x == &t.k_scale ? t.k : t.v;
    if (scaled.dtype != TSR_F8_E4M3) {
      return invalid(x->name, ": given, but ", scaled.name, " is ", dtype_name(scaled.dtype),
                     "; only f8_e4m3 has a scale");
    }
  }
  return {};
}

Verdict check_options(const tsr_attention_desc& d, Problem* p) {
  constexpr uint32_t known = TSR_HAS_SCALE | TSR_HAS_WINDOW;
  if (d.present & ~known)
    return unsupported("present: is ", d.present, ", but only the bits ", known, " are known here");
  if (d.reserved != 0) return unsupported("reserved: is ", d.reserved, ", must be 0");

  p->scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p->dim)));
  if (d.present & TSR_HAS_SCALE) {
    if (!std::isfinite(d.scale)) return invalid("scale: is ", d.scale, ", must be finite");
    p->scale = d.scale;
  } else if (d.scale != 0) {  // a forgotten bit, which would otherwise be a silently different result
    return invalid("scale: is ", d.scale, ", but present lacks TSR_HAS_SCALE; set the bit, or leave 0");
  }
  if (!std::isfinite(d.softcap) || d.softcap < 0) {
    return invalid("softcap: is ", d.softcap, ", must be finite and >= 0 (0 is off)");
  }
  p->softcap = d.softcap;

  if (d.causal != 0 && d.causal != 1) return invalid("causal: is ", d.causal, ", must be 0 or 1");
  if (d.align < TSR_ALIGN_DEFAULT || d.align > TSR_ALIGN_TOP_LEFT) {
    return invalid("align: is ", d.align, ", must be 0 (default), 1 (bottom-right) or 2 (top-left)");
  }
  p->causal = d.causal == 1;
  p->top_left = d.align == TSR_ALIGN_TOP_LEFT;

  const bool window = (d.present & TSR_HAS_WINDOW) != 0;
  if (window) {
    if (d.window_left < -1) return invalid("window_left: is ", d.window_left, ", must be >= -1 (-1 is unbounded)");
    if (d.window_right < -1) return invalid("window_right: is ", d.window_right, ", must be >= -1 (-1 is unbounded)");
    p->window_left = d.window_left;
    p->window_right = d.window_right;
  } else if (d.window_left > 0 || d.window_right > 0) {
    return invalid("window_left, window_right: are ", d.window_left, " and ", d.window_right,
                   ", but present lacks TSR_HAS_WINDOW; set the bit, or leave 0");
  }
  if (d.num_splits < 0) return invalid("num_splits: is ", d.num_splits, ", must be >= 0 (0 lets the back end choose)");
  p->num_splits = d.num_splits;
  p->kernel = d.kernel;
  p->cancel = d.cancel;
  return {};
}

void set_views(const Tensors& t, Problem* p) {
  const int qb = p->packed_q ? -1 : 0, qr = p->packed_q ? 0 : 1;
  const int kb = p->packed_k ? -1 : 0, kr = p->packed_k ? 0 : 1;
  p->q = view(t.q, qb, qr, qr + 1);
  p->out = view(t.out, qb, qr, qr + 1);
  p->lse = view(t.lse, qb, qr + 1, qr);
  p->k = view(t.k, kb, kr, kr + 1);
  p->v = view(t.v, kb, kr, kr + 1);
  p->bias = view(t.bias, 0, 2, 1);
  p->mask = view(t.mask, 0, 2, 1);
}

// A NULL pointer in Problem says "not given". A tensor that is given by its shape alone gets an address that no one
// reads, so that supports and explain see the same options as attention.
template <class T>
const T* pointer(const Tensor& t) {
  static const T unread{};
  return !t.given ? nullptr : t.data ? static_cast<const T*>(t.data) : &unread;
}

void set_vectors(const Tensors& t, Problem* p) {
  p->alibi_slopes = pointer<float>(t.alibi_slopes);
  p->sinks = pointer<float>(t.sinks);
  p->k_scale = pointer<float>(t.k_scale);
  p->v_scale = pointer<float>(t.v_scale);
  p->seq_lens_q = pointer<int32_t>(t.seq_lens_q);
  p->seq_lens_k = pointer<int32_t>(t.seq_lens_k);
  p->cu_seqlens_q = pointer<int32_t>(t.cu_seqlens_q);
  p->cu_seqlens_k = pointer<int32_t>(t.cu_seqlens_k);
  p->query_offset = pointer<int32_t>(t.query_offset);
  p->page_table = pointer<int32_t>(t.page_table);
}

// Contents of what is given and can be read.
Verdict check_contents(const tsr_attention_desc& d, const Tensors& t, const Problem& p, const AppendProblem* append) {
  TSR_TRY(check_lengths(t.seq_lens_q, p.query_rows, "the rows of q"));
  TSR_TRY(check_starts(t.cu_seqlens_q, p.query_rows, "the rows of q", d.max_seqlen_q, "max_seqlen_q"));
  TSR_TRY(check_starts(t.cu_seqlens_k, p.key_rows, "the rows of k", d.max_seqlen_k, "max_seqlen_k"));
  const KeyLengths keys{t.seq_lens_k, append};
  TSR_TRY(check_key_lengths(keys, p.max_keys));
  return check_pages(keys, t.page_table, p.page_size, p.page_count);
}

}  // namespace

Verdict check_attention(const tsr_attention_desc* desc, const CheckOptions& options, Problem* problem) {
  tsr_attention_desc d;
  TSR_TRY(read_struct(desc, "attention", &d));
  Tensors t;
  Problem p;
  TSR_TRY(check_combinations(d));
  TSR_TRY(read_tensors(d, !options.shapes_only, &t));
  TSR_TRY(read_sizes(d, t, options.max_head_dim, &p));
  TSR_TRY(check_shapes(t, p));
  TSR_TRY(check_options(d, &p));

  set_views(t, &p);
  set_vectors(t, &p);
  if (options.host_readable) TSR_TRY(check_contents(d, t, p, options.after_append));
  *problem = p;
  return {};
}

}  // namespace tsr
