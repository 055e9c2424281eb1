#include "op.h"

#include <cstring>

namespace tsr::ggml {

namespace {

bool named(const char* name, const char* wanted) { return name != nullptr && std::strcmp(name, wanted) == 0; }

/** By name: the numbers of ggml's enums have changed under one API version. */
tsr_dtype dtype_of(const ggml_tensor* tensor, bool* known) {
  const char* name = fn.type_name(tensor->type);
  *known = true;
  if (named(name, "f32")) return TSR_F32;
  if (named(name, "f16")) return TSR_F16;
  if (named(name, "bf16")) return TSR_BF16;
  if (named(name, "q8_0")) return TSR_Q8_0;
  if (named(name, "q4_0")) return TSR_Q4_0;
  const ggml_type_traits* traits = fn.get_type_traits(tensor->type);
  *known = traits != nullptr && traits->is_quantized && traits->to_float != nullptr && named(name, traits->type_name) &&
           traits->blck_size == fn.blck_size(tensor->type);
  return TSR_DTYPE_NONE;
}

/** ggml's [dim, token, head, batch] of bytes as a View. */
bool read_view(const char* what, const ggml_tensor* tensor, View* view, std::string* why) {
  bool known = false;
  view->dtype = dtype_of(tensor, &known);
  if (!known) {
    const char* name = fn.type_name(tensor->type);
    *why = std::string(what) + " has the type " + (name != nullptr ? name : "?");
    return false;
  }
  const size_t size = fn.type_size(tensor->type);
  const int64_t block = fn.blck_size(tensor->type);
  int64_t strides[4];
  for (int i = 0; i < 4; i++) {
    if (tensor->nb[i] % size != 0 || tensor->ne[i] < 0) {
      *why = std::string(what) + " has a stride that is no multiple of its elements' size";
      return false;
    }
    strides[i] = static_cast<int64_t>(tensor->nb[i] / size) * block;
  }
  if (tensor->nb[0] != size || tensor->ne[0] % block != 0) {
    *why = std::string(what) + " has rows that aren't contiguous";
    return false;
  }
  *view = {tensor->data, view->dtype, strides[3], strides[1], strides[2]};
  return true;
}

bool read_mask(const ggml_tensor* mask, const AttentionOp& op, std::string* why) {
  const bool fits = named(fn.type_name(mask->type), "f16") && mask->nb[0] == 2 && mask->ne[0] == op.keys &&
                    mask->ne[1] >= op.queries && mask->ne[2] > 0 && mask->ne[3] > 0 && mask->nb[1] % 2 == 0 &&
                    mask->nb[2] % 2 == 0 && mask->nb[3] % 2 == 0;
  if (!fits) *why = "the mask isn't [keys, queries, ...] of f16";
  return fits;
}

}  // namespace

bool is_attention(const ggml_tensor* node) { return named(fn.op_name(node->op), "FLASH_ATTN_EXT"); }

bool is_view(const ggml_tensor* node) {
  const char* name = fn.op_name(node->op);
  for (const char* view : {"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"}) {
    if (named(name, view)) return true;
  }
  return false;
}

bool read_op(const ggml_tensor* node, AttentionOp* op, std::string* why) {
  const auto no = [&](const char* words) {
    *why = words;
    return false;
  };
  const ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2];
  if (q == nullptr || k == nullptr || v == nullptr) return no("it has no q, k and v");
  for (int i = 5; i < GGML_MAX_SRC; i++) {
    if (node->src[i] != nullptr) return no("it has a sixth operand");
  }
  // Scale, max_bias, softcap; the precision asked for (it is fp32 here) and a hint on how many keys a row sees. More is news.
  constexpr size_t known = 5;
  for (size_t i = known; i < sizeof node->op_params / sizeof *node->op_params; i++) {
    if (node->op_params[i] != 0) return no("it has a parameter that this plug-in doesn't know");
  }
  *op = {};
  op->k_tensor = k;
  op->v_tensor = v;
  op->mask = node->src[3];
  op->sinks = node->src[4];
  std::memcpy(&op->scale, node->op_params, sizeof op->scale);
  std::memcpy(&op->max_bias, node->op_params + 1, sizeof op->max_bias);
  std::memcpy(&op->softcap, node->op_params + 2, sizeof op->softcap);
  op->batches = q->ne[3];
  op->queries = q->ne[1];
  op->heads = q->ne[2];
  op->head_dim = q->ne[0];
  op->keys = k->ne[1];
  op->kv_heads = k->ne[2];
  op->value_dim = v->ne[0];
  if (op->batches <= 0 || op->heads <= 0 || op->head_dim <= 0 || op->value_dim <= 0) return no("one of its sizes is 0");
  const bool shapes = k->ne[0] == op->head_dim && v->ne[1] == op->keys && v->ne[2] == op->kv_heads &&
                      k->ne[3] == op->batches && v->ne[3] == op->batches && op->kv_heads > 0 &&
                      op->heads % op->kv_heads == 0 && node->ne[0] == op->value_dim && node->ne[1] == op->heads &&
                      node->ne[2] == op->queries && node->ne[3] == op->batches;
  if (!shapes) return no("its shapes don't fit");
  if (!read_view("q", q, &op->q, why) || !read_view("k", k, &op->k, why) || !read_view("v", v, &op->v, why) ||
      !read_view("the result", node, &op->out, why)) {
    return false;
  }
  // The result is [dim, head, token, batch].
  std::swap(op->out.token_stride, op->out.head_stride);
  if (op->q.dtype != TSR_F32 || op->out.dtype != TSR_F32) return no("q or the result isn't f32");
  if (op->mask != nullptr && !read_mask(op->mask, *op, why)) return false;
  if (op->sinks != nullptr && (!named(fn.type_name(op->sinks->type), "f32") || op->sinks->nb[0] != sizeof(float) ||
                               op->sinks->ne[0] != op->heads)) {
    return no("the sinks aren't one f32 for each head");
  }
  if (op->max_bias > 0 && op->mask == nullptr) return no("ALiBi without a mask");
  return true;
}

std::vector<MaskShape> shapes_of(const AttentionOp& op) {
  const ggml_tensor* mask = op.mask;
  std::vector<MaskShape> shapes;
  for (int64_t b = 0; b < op.batches; b++) {
    if (b >= mask->ne[3]) {
      shapes.push_back(shapes[static_cast<size_t>(b % mask->ne[3])]);
      continue;
    }
    const auto* data = static_cast<const char*>(mask->data) + static_cast<size_t>(b) * mask->nb[3];
    shapes.push_back(shape_of({data, mask->ne[2], op.queries, op.keys, mask->nb[2], mask->nb[1]}));
  }
  return shapes;
}

}  // namespace tsr::ggml
