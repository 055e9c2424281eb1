// From a part of an op to the engine's descriptor: which keys there are, and which of them who sees.
#include "op.h"

#include <algorithm>
#include <cstring>

namespace tsr::ggml {

tsr_tensor tensor(void* data, tsr_dtype dtype, std::initializer_list<int64_t> shape,
                  std::initializer_list<int64_t> stride) {
  tsr_tensor result = {};
  result.struct_size = sizeof result;
  result.dtype = dtype;
  result.data = data;
  result.rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), result.shape);
  std::copy(stride.begin(), stride.end(), result.stride);
  return result;
}

namespace {

int64_t element_bytes(tsr_dtype dtype) { return dtype == TSR_F32 ? 4 : 2; }

/** A shape's left edge; where it hides nothing, the least that hides nothing. */
int64_t left_of(const MaskShape& shape, int64_t queries) {
  return shape.left >= 0 ? shape.left : queries - 1 + shape.offset;
}

bool same(const MaskShape& a, const MaskShape& b) {
  return a.offset == b.offset && a.left == b.left && a.keys == b.keys;
}

/** The engine has one window for all batches: the widest. */
int64_t common_left(const AttentionOp& op, const Part& part, const MaskShape* shapes) {
  int64_t left = 0;
  for (int64_t b = part.batch; b < part.batch_end; b++) {
    const MaskShape& shape = shapes[b - part.batch];
    if (shape.keys > 0) left = std::max(left, left_of(shape, op.queries));
  }
  return left;
}

bool uniform(const Part& part, const MaskShape* shapes) {
  for (int64_t b = 1; b < part.batch_end - part.batch; b++) {
    if (!same(shapes[0], shapes[b])) return false;
  }
  return true;
}

/** Query i of the part sees key j if j <= i + offset. */
int64_t part_offset(const MaskShape& shape, const Part& part) { return shape.offset + part.query; }

/** Keys that any query of the part sees lie below this. */
int64_t part_keys(const MaskShape& shape, const Part& part) {
  const int64_t queries = part.query_end - part.query;
  return std::clamp<int64_t>(part_offset(shape, part) + queries, 0, shape.keys);
}

/** One shape for all batches is a window on the diagonal that ends at the last key: no arrays of numbers are needed. */
void hide_alike(const Part& part, const MaskShape& shape, int64_t keys, tsr_attention_desc* desc) {
  const int64_t queries = part.query_end - part.query;
  const int64_t right = part_offset(shape, part) - (keys - queries);  // >= 0: some query sees the last key
  const bool all_right = right >= queries - 1;
  desc->align = TSR_ALIGN_BOTTOM_RIGHT;
  desc->causal = right == 0 && !all_right;
  const int64_t left = shape.left < 0 ? -1 : std::max<int64_t>(shape.left - right, 0);
  if (left < 0 && (all_right || desc->causal)) return;
  desc->present |= TSR_HAS_WINDOW;
  desc->window_left = left;
  desc->window_right = desc->causal || all_right ? -1 : right;
}

void hide_each(const AttentionOp& op, const Part& part, const MaskShape* shapes, Call* call) {
  const int64_t batches = part.batch_end - part.batch;
  call->numbers.resize(static_cast<size_t>(2 * batches));
  int64_t furthest = 0;
  for (int64_t b = 0; b < batches; b++) {
    call->numbers[static_cast<size_t>(b)] = static_cast<int32_t>(part_offset(shapes[b], part));
    call->numbers[static_cast<size_t>(batches + b)] = static_cast<int32_t>(part_keys(shapes[b], part));
    furthest = std::max(furthest, op.queries - 1 + shapes[b].offset);
  }
  call->offsets = tensor(call->numbers.data(), TSR_I32, {batches}, {1});
  call->lengths = tensor(call->numbers.data() + batches, TSR_I32, {batches}, {1});
  call->desc.query_offset = &call->offsets;
  call->desc.seq_lens_k = &call->lengths;
  call->desc.causal = 1;
  const int64_t left = common_left(op, part, shapes);
  if (left >= furthest) return;
  call->desc.present |= TSR_HAS_WINDOW;
  call->desc.window_left = left;
  call->desc.window_right = -1;
}

}  // namespace

bool exact(const AttentionOp& op, const Part& part, const MaskShape* shapes) {
  const int64_t batches = part.batch_end - part.batch;
  if (uniform(part, shapes)) {
    const int64_t keys = part_keys(shapes[0], part);
    const int64_t right = part_offset(shapes[0], part) - (keys - (part.query_end - part.query));
    return shapes[0].exact && (shapes[0].left < 0 || shapes[0].left >= right);  // else the window can't say it
  }
  const int64_t left = common_left(op, part, shapes);
  for (int64_t b = 0; b < batches; b++) {
    if (!shapes[b].exact) return false;
    if (shapes[b].keys > 0 && shapes[b].left >= 0 && shapes[b].left != left) return false;
  }
  return true;
}

void describe(const AttentionOp& op, const Part& part, const View& k, const View& v, const MaskShape* shapes,
              const Bias* bias, Call* call) {
  const int64_t batches = part.batch_end - part.batch, heads = part.head_end - part.head;
  const int64_t queries = part.query_end - part.query;
  const int64_t kv_heads = heads >= op.group() ? heads / op.group() : 1;
  int64_t keys = op.keys;
  if (shapes != nullptr) {
    keys = 0;
    for (int64_t b = 0; b < batches; b++) keys = std::max(keys, part_keys(shapes[b], part));
  }
  const auto at = [&](const View& view) {
    const int64_t element =
        part.batch * view.batch_stride + part.query * view.token_stride + part.head * view.head_stride;
    return view.data == nullptr ? nullptr : static_cast<char*>(view.data) + element * element_bytes(view.dtype);
  };
  call->q = tensor(at(op.q), op.q.dtype, {batches, queries, heads, op.head_dim},
                   {op.q.batch_stride, op.q.token_stride, op.q.head_stride, 1});
  call->out = tensor(at(op.out), op.out.dtype, {batches, queries, heads, op.value_dim},
                     {op.out.batch_stride, op.out.token_stride, op.out.head_stride, 1});
  call->k = tensor(k.data, k.dtype, {batches, keys, kv_heads, op.head_dim},
                   {k.batch_stride, k.token_stride, k.head_stride, 1});
  call->v = tensor(v.data, v.dtype, {batches, keys, kv_heads, op.value_dim},
                   {v.batch_stride, v.token_stride, v.head_stride, 1});
  tsr_attention_desc& desc = call->desc;
  desc = {};
  desc.struct_size = sizeof desc;
  desc.present = TSR_HAS_SCALE;
  desc.q = &call->q;
  desc.k = &call->k;
  desc.v = &call->v;
  desc.out = &call->out;
  desc.scale = op.scale;
  desc.softcap = op.softcap;
  if (op.sinks != nullptr) {
    auto* data = static_cast<float*>(op.sinks->data);
    call->sinks = tensor(data == nullptr ? nullptr : data + part.head, TSR_F32, {heads}, {1});
    desc.sinks = &call->sinks;
  }
  if (bias != nullptr) {
    const int64_t bias_batches = bias->batch_stride == 0 ? 1 : batches, bias_heads = bias->head_stride == 0 ? 1 : heads;
    call->bias = tensor(const_cast<void*>(bias->data), bias->dtype, {bias_batches, bias_heads, queries, keys},
                        {bias->batch_stride, bias->head_stride, bias->query_stride, 1});
    desc.bias = &call->bias;
  }
  double pairs = static_cast<double>(batches) * static_cast<double>(queries) * static_cast<double>(keys);
  if (shapes != nullptr && keys > 0) {
    if (uniform(part, shapes)) {
      hide_alike(part, shapes[0], keys, &desc);
    } else {
      hide_each(op, part, shapes, call);
    }
    pairs = 0;
    for (int64_t b = 0; b < batches; b++) {
      for (int64_t i = part.query; i < part.query_end; i++) {
        const KeyRange range = visible(shapes[b], i);
        pairs += static_cast<double>(std::max<int64_t>(0, range.last - range.first + 1));
      }
    }
  }
  call->work = pairs * static_cast<double>(heads) * static_cast<double>(op.head_dim + op.value_dim);
}

void describe_shape(const AttentionOp& op, tsr_dtype q, tsr_dtype k, tsr_dtype v, tsr_dtype bias, Call* call) {
  AttentionOp shape = op;
  shape.q.dtype = q;
  shape.q.data = shape.out.data = nullptr;
  View k_view = op.k, v_view = op.v;
  k_view.data = v_view.data = nullptr;
  k_view.dtype = k;
  v_view.dtype = v;
  ggml_tensor no_sinks = {};
  if (op.sinks != nullptr) shape.sinks = &no_sinks;
  Bias cells = {nullptr, bias, 0, 0, op.keys};
  const Part whole = {0, op.batches, 0, op.heads, 0, op.queries};
  describe(shape, whole, k_view, v_view, nullptr, bias == TSR_DTYPE_NONE ? nullptr : &cells, call);
}

}  // namespace tsr::ggml
