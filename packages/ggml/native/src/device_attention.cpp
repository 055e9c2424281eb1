// Tensors in a device's memory, where ggml's own back end for that device has put them: nothing of K and V is copied. The
// mask is read where llama.cpp writes it, in host memory, so that its shape is known without asking the device.
//
// ggml's queries are f32, and kernels on matrix units want K's type: they are rounded to f16 first, as ggml's own kernels do.
// The contract has no conversion as such; a merge of one part is one.
#include "attention.h"

#include <algorithm>
#include <cstring>

namespace tsr::ggml {

namespace {

bool on_host(const ggml_tensor* tensor) {
  const ggml_tensor* owner = tensor->view_src != nullptr ? tensor->view_src : tensor;
  return owner->buffer == nullptr || fn.buft_is_host(owner->buffer->buft);
}

/** Device memory that grows to what was last asked for. */
class Buffer {
 public:
  Buffer(const tsr_backend& table, tsr_context* context) : table_(table), context_(context) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { table_.buffer_destroy(buffer_); }

  /** `grown`: the contents are new, and anything. */
  tsr_status at_least(uint64_t bytes, void** data, bool* grown = nullptr) {
    if (grown != nullptr) *grown = false;
    if (buffer_ == nullptr || table_.buffer_bytes(buffer_) < bytes) {
      table_.buffer_destroy(buffer_);
      buffer_ = nullptr;
      const tsr_status status = table_.buffer_create(context_, std::max<uint64_t>(bytes, 256), &buffer_);
      if (status != TSR_OK) return status;
      if (grown != nullptr) *grown = true;
    }
    *data = table_.buffer_data(buffer_);
    return TSR_OK;
  }

 private:
  const tsr_backend& table_;
  tsr_context* context_;
  tsr_buffer* buffer_ = nullptr;
};

class DeviceAttention final : public Attention {
 public:
  DeviceAttention(const tsr_backend& table, tsr_context* context)
      : table_(table),
        context_(context),
        queries_(table, context),
        zeros_(table, context),
        mask_(table, context),
        numbers_(table, context),
        workspace_(table, context) {}

  Outcome compute(const AttentionOp& op, std::string* why) override {
    counters.calls++;
    const tsr_status status = run(op);
    if (status != TSR_OK) *why = table_.last_error(context_);
    return outcome_of(status);
  }

  void synchronize() override { table_.stream_synchronize(context_, nullptr); }

 private:
  tsr_status run(const AttentionOp& op) {
    const Part whole = {0, op.batches, 0, op.heads, 0, op.queries};
    const bool known = op.mask != nullptr && on_host(op.mask);
    std::vector<MaskShape> shapes;
    if (known) shapes = shapes_of(op);
    const bool by_shape = known && exact(op, whole, shapes.data());
    (op.mask == nullptr ? counters.without_mask : by_shape ? counters.by_shape : counters.with_bias)++;

    AttentionOp rounded = op;
    tsr_status status = round_queries(op, &rounded.q);
    if (status != TSR_OK) return status;
    Bias bias = {};
    if (op.mask != nullptr && !by_shape) {
      status = place_mask(op, known, &bias);
      if (status != TSR_OK) return status;
    }
    Call call;
    describe(rounded, whole, op.k, op.v, known ? shapes.data() : nullptr, bias.data != nullptr ? &bias : nullptr,
             &call);
    status = place_numbers(&call);
    if (status != TSR_OK) return status;
    uint64_t bytes = 0;
    status = table_.attention_workspace(context_, &call.desc, &bytes);
    if (status != TSR_OK) return status;
    if (bytes > 0) {
      status = workspace_.at_least(bytes, &call.desc.workspace);
      if (status != TSR_OK) return status;
      call.desc.workspace_bytes = bytes;
    }
    return table_.attention(context_, nullptr, &call.desc);
  }

  /** q as compact f16. */
  tsr_status round_queries(const AttentionOp& op, View* q) {
    const int64_t rows = op.batches * op.queries * op.heads;
    if (rows == 0) {
      q->dtype = TSR_F16;
      return TSR_OK;
    }
    void *to = nullptr, *zeros = nullptr;
    bool grown = false;
    tsr_status status = queries_.at_least(static_cast<uint64_t>(rows * op.head_dim) * 2, &to);
    if (status == TSR_OK) status = zeros_.at_least(static_cast<uint64_t>(rows) * sizeof(float), &zeros, &grown);
    if (status == TSR_OK && grown) {
      status = table_.fill(context_, nullptr, zeros, 0, static_cast<uint64_t>(rows) * sizeof(float));
    }
    if (status != TSR_OK) return status;
    const View compact = {to, TSR_F16, op.queries * op.heads * op.head_dim, op.heads * op.head_dim, op.head_dim};
    const auto of = [&](const View& view) {
      return tensor(view.data, view.dtype, {op.batches, op.queries, op.heads, op.head_dim},
                    {view.batch_stride, view.token_stride, view.head_stride, 1});
    };
    const tsr_tensor from = of(op.q), out = of(compact);
    // One part has the weight 1, whatever its lse.
    const tsr_tensor lse =
        tensor(zeros, TSR_F32, {op.batches, op.heads, op.queries}, {op.heads * op.queries, op.queries, 1});
    const tsr_tensor *outs[] = {&from}, *lses[] = {&lse};
    tsr_merge_desc desc = {};
    desc.struct_size = sizeof desc;
    desc.count = 1;
    desc.outs = outs;
    desc.lses = lses;
    desc.out = &out;
    *q = compact;
    return table_.merge(context_, nullptr, &desc);
  }

  /** The mask's cells as a bias, on the device. */
  tsr_status place_mask(const AttentionOp& op, bool copy, Bias* bias) {
    const ggml_tensor* mask = op.mask;
    void* data = mask->data;
    if (copy) {
      const uint64_t bytes = mask->nb[3] * static_cast<uint64_t>(mask->ne[3]);
      const tsr_status status = mask_.at_least(bytes, &data);
      if (status != TSR_OK) return status;
      const tsr_status copied = table_.copy(context_, nullptr, data, mask->data, bytes, TSR_COPY_HOST_TO_DEVICE);
      if (copied != TSR_OK) return copied;
    }
    const auto stride = [&](int i) { return mask->ne[i] == 1 ? 0 : static_cast<int64_t>(mask->nb[i] / 2); };
    *bias = {data, TSR_F16, stride(3), stride(2), static_cast<int64_t>(mask->nb[1] / 2)};
    return TSR_OK;
  }

  /** Offsets and lengths of streams that differ. */
  tsr_status place_numbers(Call* call) {
    if (call->numbers.empty()) return TSR_OK;
    const uint64_t bytes = call->numbers.size() * sizeof(int32_t);
    void* data = nullptr;
    const tsr_status status = numbers_.at_least(bytes, &data);
    if (status != TSR_OK) return status;
    call->offsets.data = data;
    call->lengths.data = static_cast<int32_t*>(data) + call->offsets.shape[0];
    // At once: so few bytes are taken before the call returns.
    return table_.copy(context_, nullptr, data, call->numbers.data(), bytes, TSR_COPY_HOST_TO_DEVICE);
  }

  const tsr_backend& table_;
  tsr_context* context_;
  Buffer queries_, zeros_, mask_, numbers_, workspace_;
};

/** The kernel that would run is one on matrix units: the others are slower than ggml's. */
bool fast(const tsr_backend& table, tsr_context* context, const AttentionOp& op, tsr_dtype bias, std::string* why) {
  Call call;
  describe_shape(op, TSR_F16, op.k.dtype, op.v.dtype, bias, &call);
  tsr_explanation explanation = {};
  explanation.struct_size = sizeof explanation;
  if (table.explain(context, &call.desc, &explanation) != TSR_OK) {
    *why = table.last_error(context);
    return false;
  }
  const bool slow =
      std::strstr(explanation.kernel, "-simt") != nullptr || std::strstr(explanation.kernel, "-plain") != nullptr;
  if (slow) *why = std::string("only ") + explanation.kernel + " can do it";
  return !slow;
}

}  // namespace

bool device_supports(Engine& engine, int device, const AttentionOp& op, std::string* why) {
  tsr_context* context = engine.context(device, 0, why);
  if (context == nullptr) return false;
  const tsr_dtype type = op.k.dtype;
  if (op.v.dtype != type || (type != TSR_F16 && type != TSR_Q8_0 && type != TSR_Q4_0)) {
    *why = "k and v aren't both f16, q8_0 or q4_0";
    return false;
  }
  if (op.max_bias > 0) {
    *why = "ALiBi";
    return false;
  }
  const ggml_tensor* mask = op.mask;
  if (mask == nullptr) return fast(engine.table(), context, op, TSR_DTYPE_NONE, why);
  if ((mask->ne[2] != 1 && mask->ne[2] != op.heads) || (mask->ne[3] != 1 && mask->ne[3] != op.batches)) {
    *why = "a mask that repeats over some of the heads or streams";
    return false;
  }
  // Which of the two it will be is known from the mask's contents.
  return fast(engine.table(), context, op, TSR_DTYPE_NONE, why) && fast(engine.table(), context, op, TSR_F16, why);
}

Attention* device_attention(Engine& engine, int device) {
  std::string why;
  tsr_context* context = engine.context(device, 0, &why);
  return context != nullptr ? new DeviceAttention(engine.table(), context) : nullptr;
}

}  // namespace tsr::ggml
