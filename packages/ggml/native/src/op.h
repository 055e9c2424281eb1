// One FLASH_ATTN_EXT node of a ggml graph, read into the engine's terms.
#pragma once

#include "ggml_functions.h"
#include "mask.h"
#include "tessera/tessera.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace tsr::ggml {

/** [batch, token, head, dim] of strided memory. Strides count elements. */
struct View {
  void* data;
  /** TSR_DTYPE_NONE: quantised in a way that the engine doesn't know; ggml's own functions turn a row to f32. */
  tsr_dtype dtype;
  int64_t batch_stride, token_stride, head_stride;
};

struct AttentionOp {
  const ggml_tensor *k_tensor, *v_tensor, *mask, *sinks;
  View q, k, v, out;
  int64_t batches, queries, keys, heads, kv_heads, head_dim, value_dim;
  float scale, max_bias, softcap;

  int64_t group() const { return heads / kv_heads; }
};

bool is_attention(const ggml_tensor* node);
/** Nodes that only look at memory otherwise: nothing is computed for them. */
bool is_view(const ggml_tensor* node);

/** False, and why, if there is anything about the node that this plug-in doesn't know. */
bool read_op(const ggml_tensor* node, AttentionOp* op, std::string* why);

/** Some batches, query heads and queries of an op: [first, end) each. Heads are whole groups, or lie within one. */
struct Part {
  int64_t batch, batch_end, head, head_end, query, query_end;
};

/** Scores are added to by this: `data` is that of the part's first cell, f16 or f32. Strides in elements, 0 repeats. */
struct Bias {
  const void* data;
  tsr_dtype dtype;
  int64_t batch_stride, head_stride, query_stride;
};

tsr_tensor tensor(void* data, tsr_dtype dtype, std::initializer_list<int64_t> shape,
                  std::initializer_list<int64_t> stride);

/** What the engine is asked for one part. Tensors and numbers that the descriptor points to live here. */
struct Call {
  tsr_attention_desc desc;
  tsr_tensor q, k, v, out, bias, sinks, offsets, lengths;
  std::vector<int32_t> numbers;
  /** Multiply-adds, about. */
  double work;

  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

/**
 * k and v start at the part's first batch and KV head. `shapes`: those of the part's batches, by its op's queries; nullptr: every
 * key is visible. With `bias` nullptr the shapes are all that hides anything.
 */
void describe(const AttentionOp& op, const Part& part, const View& k, const View& v, const MaskShape* shapes,
              const Bias* bias, Call* call);

/** The part's shapes hide exactly what its mask hides, so that no bias is needed. */
bool exact(const AttentionOp& op, const Part& part, const MaskShape* shapes);

/** The mask's shape for every batch, of a mask in host memory. */
std::vector<MaskShape> shapes_of(const AttentionOp& op);

/** The whole op, without pointers: what `supports` and `explain` of a back end take. */
void describe_shape(const AttentionOp& op, tsr_dtype q, tsr_dtype k, tsr_dtype v, tsr_dtype bias, Call* call);

}  // namespace tsr::ggml
