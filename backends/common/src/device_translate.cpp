#include "tessera/common/device_translate.h"

#include "tessera/common/text.h"

namespace tsr::device {
namespace {

Type type_of(tsr_dtype dtype) {
  switch (dtype) {
    case TSR_F32:
      return Type::kF32;
    case TSR_F16:
      return Type::kF16;
    case TSR_BF16:
      return Type::kBF16;
    case TSR_F8_E4M3:
      return Type::kF8;
    case TSR_Q8_0:
      return Type::kQ8;
    case TSR_Q4_0:
      return Type::kQ4;
    case TSR_BOOL:
      return Type::kBool;
    default:
      return Type::kNone;
  }
}

// Strides of block formats are multiples of 32 elements, so bytes are exact.
View view_of(const tsr::View& view) {
  const auto bytes = [&](int64_t elements) { return row_bytes(view.dtype, elements); };
  return {static_cast<char*>(view.data), bytes(view.batch_stride), bytes(view.row_stride), bytes(view.head_stride),
          type_of(view.dtype)};
}

Verdict narrow(int64_t from, const char* what, int32_t* to) {
  if (from > INT32_MAX) return unsupported(what, " are ", from, ", must be at most ", INT32_MAX, " here");
  *to = static_cast<int32_t>(from);
  return {};
}

}  // namespace

Verdict translate(const Problem& p, Attention* a) {
  TSR_TRY(narrow(p.batch, "q: batch entries", &a->batch));
  TSR_TRY(narrow(p.heads, "q: heads", &a->heads));
  TSR_TRY(narrow(p.kv_heads, "k: heads", &a->kv_heads));
  a->group = static_cast<int32_t>(p.group);
  a->dim = static_cast<int32_t>(p.dim);
  a->value_dim = static_cast<int32_t>(p.value_dim);
  a->query_rows = p.query_rows;
  a->key_rows = p.key_rows;
  a->max_queries = p.max_queries;
  a->max_keys = p.max_keys;
  a->q = view_of(p.q);
  a->k = view_of(p.k);
  a->v = view_of(p.v);
  a->out = view_of(p.out);
  a->lse = view_of(p.lse);
  a->bias = view_of(p.bias);
  a->mask = view_of(p.mask);
  a->scale = p.scale;
  a->softcap = p.softcap;
  a->causal = p.causal;
  a->top_left = p.top_left;
  a->packed_q = p.packed_q;
  a->packed_k = p.packed_k;
  a->window_left = p.window_left;
  a->window_right = p.window_right;
  a->alibi_slopes = p.alibi_slopes;
  a->sinks = p.sinks;
  a->k_scale = p.k_scale;
  a->v_scale = p.v_scale;
  a->seq_lens_q = p.seq_lens_q;
  a->seq_lens_k = p.seq_lens_k;
  a->cu_seqlens_q = p.cu_seqlens_q;
  a->cu_seqlens_k = p.cu_seqlens_k;
  a->query_offset = p.query_offset;
  a->page_table = p.page_table;
  a->page_table_stride = p.page_table_stride;
  a->page_size = p.page_size;
  a->page_count = p.page_count;
  a->num_splits = p.num_splits;
  return {};
}

Verdict translate(const AppendProblem& p, Append* a) {
  TSR_TRY(narrow(p.batch, "k: batch entries", &a->batch));
  TSR_TRY(narrow(p.kv_heads, "k: heads", &a->kv_heads));
  TSR_TRY(narrow(p.heads, "q: heads", &a->heads));
  a->dim = static_cast<int32_t>(p.dim);
  a->value_dim = static_cast<int32_t>(p.value_dim);
  const double tokens = static_cast<double>(p.packed ? 1 : p.batch) * static_cast<double>(p.rows);
  if (tokens > INT32_MAX) return unsupported("k: has ", tokens, " tokens, must be at most ", INT32_MAX, " here");
  a->rows = p.rows;
  a->capacity = p.capacity;
  a->packed = p.packed;
  a->advance = p.advance;
  a->k = view_of(p.k);
  a->v = view_of(p.v);
  a->q = view_of(p.q);
  a->q_out = view_of(p.q_out);
  a->cache_k = view_of(p.cache_k);
  a->cache_v = view_of(p.cache_v);
  a->lengths = p.lengths;
  a->new_lens = p.new_lens;
  a->cu_seqlens = p.cu_seqlens;
  a->k_scale = p.k_scale;
  a->v_scale = p.v_scale;
  a->page_table = p.page_table;
  a->page_table_stride = p.page_table_stride;
  a->page_size = p.page_size;
  a->page_count = p.page_count;
  a->rope_dims = p.rope.dims;
  a->rope_interleaved = p.rope.interleaved;
  a->rope_theta = p.rope.theta;
  a->rope_scale = p.rope.scale;
  a->positions = p.rope.positions;
  a->positions_stride = p.rope.positions_stride;
  return {};
}

Verdict translate(const MergeProblem& p, Merge* m) {
  if (p.outs.size() > kMergeParts) {
    return unsupported("count: is ", p.outs.size(), ", must be at most ", kMergeParts, " here; merge in several steps");
  }
  TSR_TRY(narrow(p.batch, "out: batch entries", &m->batch));
  TSR_TRY(narrow(p.heads, "out: heads", &m->heads));
  TSR_TRY(narrow(p.value_dim, "out: head dims", &m->value_dim));
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.rows) * static_cast<double>(p.heads);
  if (rows > INT32_MAX) return unsupported("out: has ", rows, " rows of heads, must be at most ", INT32_MAX, " here");
  m->rows = p.rows;
  m->count = static_cast<int32_t>(p.outs.size());
  for (size_t i = 0; i < p.outs.size(); ++i) {
    m->outs[i] = view_of(p.outs[i]);
    m->lses[i] = view_of(p.lses[i]);
  }
  m->out = view_of(p.out);
  m->lse = view_of(p.lse);
  return {};
}

}  // namespace tsr::device
