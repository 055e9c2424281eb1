// Tensors in host memory, computed by the CPU back end before the call returns.
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tsr::ggml {

Counters counters;

void tell_counts() try {
  const auto count = [](const std::atomic<uint64_t>& of) { return std::to_string(of.load()); };
  tell(count(counters.calls) + " calls so far: " + count(counters.by_shape) + " by the mask's shape, " +
       count(counters.with_bias) + " with its cells, " + count(counters.without_mask) + " without one");
} catch (...) {  // no memory for a line; ggml, whose call this is in, can't be thrown at
}

Outcome outcome_of(tsr_status status) {
  if (status == TSR_OK) return Outcome::done;
  return status == TSR_OUT_OF_MEMORY ? Outcome::out_of_memory : Outcome::failed;
}

namespace {

/**
 * Problems of fewer multiply-adds than this stay on the calling thread. ggml's own threads spin for a while after each graph,
 * so that a worker of ours has to wait for a core to be given up, which takes longer than such a problem.
 */
constexpr double kInlineWork = 4e6;

/**
 * Problems of fewer multiply-adds than this are ggml's where it has several threads: what it computes before ours and after is
 * a graph of its own then, for each of which a runtime without a thread pool of llama.cpp's (node-llama-cpp) creates and joins
 * all threads but one. That took 12 ms on a virtual machine of two cores, some 30 while others used it. From here on the engine
 * gains 80 and more there (docs/llama.cpp.md): of fewer than 64 queries ggml takes each by itself, of more it computes tiles.
 */
constexpr double kSplitWorkRows = 1e8, kSplitWorkTiles = 1e9;
constexpr int64_t kTile = 64;

/** Most bytes of scratch that an op is cut to, as far as single rows of single heads allow. */
constexpr int64_t kScratchBytes = 64 << 20;

float half(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
  uint32_t word = sign | ((exponent + 112) << 23) | (fraction << 13);
  if (exponent == 31) word = sign | 0x7f800000u | (fraction << 13);
  float value;
  if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/** ALiBi as ggml has it: the mask of head h counts times this. */
float slope(const AttentionOp& op, int64_t head) {
  const double steps = std::pow(2.0, std::floor(std::log2(static_cast<double>(op.heads))));
  const auto first = static_cast<float>(std::pow(2.0, -op.max_bias / steps));
  const auto second = static_cast<float>(std::pow(2.0, -op.max_bias / 2 / steps));
  const auto h = static_cast<double>(head);
  return h < steps ? static_cast<float>(std::pow(first, h + 1))
                   : static_cast<float>(std::pow(second, 2 * (h - steps) + 1));
}

class HostAttention final : public Attention {
 public:
  explicit HostAttention(Engine& engine) : engine_(engine) {}

  Outcome compute(const AttentionOp& op, std::string* why) override {
    counters.calls++;
    shapes_.clear();
    if (op.mask != nullptr) shapes_ = shapes_of(op);
    const Part whole = {0, op.batches, 0, op.heads, 0, op.queries};
    const bool by_shape = op.mask != nullptr && exact(op, whole, shapes_.data());
    (op.mask == nullptr ? counters.without_mask : by_shape ? counters.by_shape : counters.with_bias)++;
    needs_bias_ = op.mask != nullptr && !by_shape;
    if (op.k.dtype != TSR_DTYPE_NONE && op.v.dtype != TSR_DTYPE_NONE) return part(op, whole, op.k, op.v, why);
    return dequantised(op, why);
  }

 private:
  const MaskShape* shapes(const AttentionOp& op, int64_t batch) const {
    return op.mask == nullptr ? nullptr : &shapes_[static_cast<size_t>(batch)];
  }

  /** Types that the engine doesn't know: rows become f32, some KV heads at a time. */
  Outcome dequantised(const AttentionOp& op, std::string* why) {
    for (int64_t b = 0; b < op.batches; b++) {
      const int64_t keys = op.mask == nullptr ? op.keys : shapes_[static_cast<size_t>(b)].keys;
      const int64_t row =
          (op.k.dtype == TSR_DTYPE_NONE ? op.head_dim : 0) + (op.v.dtype == TSR_DTYPE_NONE ? op.value_dim : 0);
      const int64_t bytes = std::max<int64_t>(1, keys * row * static_cast<int64_t>(sizeof(float)));
      const int64_t step = std::clamp<int64_t>(kScratchBytes / bytes, 1, op.kv_heads);
      auto* rows = static_cast<float*>(rows_.at_least(static_cast<size_t>(bytes * step)));
      if (rows == nullptr) return Outcome::out_of_memory;
      for (int64_t h = 0; h < op.kv_heads; h += step) {
        const int64_t heads = std::min(step, op.kv_heads - h);
        float* at = rows;
        const View k = floats(op.k_tensor, op.k, b, h, heads, keys, &at);
        const View v = floats(op.v_tensor, op.v, b, h, heads, keys, &at);
        const Part one = {b, b + 1, h * op.group(), (h + heads) * op.group(), 0, op.queries};
        const Outcome outcome = part(op, one, k, v, why);
        if (outcome != Outcome::done) return outcome;
      }
    }
    return Outcome::done;
  }

  /** The tensor from batch b and head h on; as f32 at `*to`, which moves past them, if the engine doesn't know its type. */
  static View floats(const ggml_tensor* tensor, const View& view, int64_t b, int64_t h, int64_t heads, int64_t keys,
                     float** to) {
    const auto* base = static_cast<const char*>(tensor->data) + static_cast<size_t>(b) * tensor->nb[3] +
                       static_cast<size_t>(h) * tensor->nb[2];
    if (view.dtype != TSR_DTYPE_NONE) {
      return {const_cast<char*>(base), view.dtype, view.batch_stride, view.token_stride, view.head_stride};
    }
    const int64_t dim = tensor->ne[0];
    float* const first = *to;
    const auto to_float = fn.get_type_traits(tensor->type)->to_float;
    for (int64_t i = 0; i < heads; i++) {
      for (int64_t j = 0; j < keys; j++, *to += dim) {
        to_float(base + static_cast<size_t>(i) * tensor->nb[2] + static_cast<size_t>(j) * tensor->nb[1], *to, dim);
      }
    }
    return {first, TSR_F32, 0, dim, keys * dim};
  }

  /** k and v start at the part's first batch and KV head. Cut further where the mask asks for it. */
  Outcome part(const AttentionOp& op, const Part& all, const View& k, const View& v, std::string* why) {
    if (!needs_bias_) return call(op, all, k, v, nullptr, why);
    const ggml_tensor* mask = op.mask;
    const bool repeats =
        (mask->ne[2] == 1 || mask->ne[2] == op.heads) && (mask->ne[3] == 1 || mask->ne[3] == op.batches);
    if (op.max_bias <= 0 && repeats) {
      const Bias bias = cells(op, all);
      return call(op, all, k, v, &bias, why);
    }
    // One head at a time: masks that repeat in some other way, and ALiBi's, which differ by head.
    const int64_t rows = std::clamp<int64_t>(kScratchBytes / 4 / std::max<int64_t>(op.keys, 1), 1, op.queries);
    for (int64_t b = all.batch; b < all.batch_end; b++) {
      for (int64_t h = all.head; h < all.head_end; h++) {
        const int64_t kv_head = h / op.group() - all.head / op.group();
        for (int64_t i = 0; i < op.queries; i += rows) {
          const Part one = {b, b + 1, h, h + 1, i, std::min(i + rows, op.queries)};
          Bias bias = cells(op, one);
          if (op.max_bias > 0 && !scaled(op, one, &bias)) return Outcome::out_of_memory;
          const Outcome outcome =
              call(op, one, from(k, b - all.batch, kv_head), from(v, b - all.batch, kv_head), &bias, why);
          if (outcome != Outcome::done) return outcome;
        }
      }
    }
    return Outcome::done;
  }

  static View from(View view, int64_t batch, int64_t head) {
    const int64_t elements = batch * view.batch_stride + head * view.head_stride;
    const int64_t bytes = view.dtype == TSR_F32    ? elements * 4
                          : view.dtype == TSR_Q8_0 ? elements / 32 * 34
                          : view.dtype == TSR_Q4_0 ? elements / 32 * 18
                                                   : elements * 2;
    view.data = static_cast<char*>(view.data) + bytes;
    return view;
  }

  /** The mask's cells of a part, as they are. */
  static Bias cells(const AttentionOp& op, const Part& part) {
    const ggml_tensor* mask = op.mask;
    const auto offset = static_cast<size_t>(part.batch % mask->ne[3]) * mask->nb[3] +
                        static_cast<size_t>(part.head % mask->ne[2]) * mask->nb[2] +
                        static_cast<size_t>(part.query) * mask->nb[1];
    const auto stride = [&](int i) { return mask->ne[i] == 1 ? 0 : static_cast<int64_t>(mask->nb[i] / 2); };
    return {static_cast<const char*>(mask->data) + offset, TSR_F16, stride(3), stride(2),
            static_cast<int64_t>(mask->nb[1] / 2)};
  }

  bool scaled(const AttentionOp& op, const Part& part, Bias* bias) {
    const int64_t rows = part.query_end - part.query;
    auto* to = static_cast<float*>(bias_.at_least(static_cast<size_t>(rows * op.keys) * sizeof(float)));
    if (to == nullptr) return false;
    const auto* from = static_cast<const uint16_t*>(bias->data);
    const float factor = slope(op, part.head);
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < op.keys; j++) to[i * op.keys + j] = factor * half(from[i * bias->query_stride + j]);
    }
    *bias = {to, TSR_F32, 0, 0, op.keys};
    return true;
  }

  Outcome call(const AttentionOp& op, const Part& part, const View& k, const View& v, const Bias* bias,
               std::string* why) {
    Call call;
    describe(op, part, k, v, shapes(op, part.batch), bias, &call);
    tsr_context* context = engine_.context(0, call.work < kInlineWork ? 1 : threads_, why);
    if (context == nullptr) return Outcome::failed;
    const tsr_backend& table = engine_.table();
    uint64_t bytes = 0;
    tsr_status status = table.attention_workspace(context, &call.desc, &bytes);
    if (status == TSR_OK) {
      call.desc.workspace = bytes > 0 ? workspace_.at_least(bytes) : nullptr;
      call.desc.workspace_bytes = bytes;
      if (bytes > 0 && call.desc.workspace == nullptr) return Outcome::out_of_memory;
      status = table.attention(context, nullptr, &call.desc);
    }
    if (status != TSR_OK) *why = table.last_error(context);
    return outcome_of(status);
  }

  Engine& engine_;
  Scratch workspace_, rows_, bias_;
  std::vector<MaskShape> shapes_;
  bool needs_bias_ = false;
};

}  // namespace

bool host_supports(Engine& engine, const AttentionOp& op, std::string* why) {
  tsr_context* context = engine.context(0, 1, why);
  if (context == nullptr) return false;
  const auto stored = [](tsr_dtype dtype) { return dtype == TSR_DTYPE_NONE ? TSR_F32 : dtype; };
  Call call;
  describe_shape(op, TSR_F32, stored(op.k.dtype), stored(op.v.dtype), op.mask != nullptr ? TSR_F16 : TSR_DTYPE_NONE,
                 &call);
  if (engine.table().supports(context, &call.desc) == TSR_OK) return true;
  *why = engine.table().last_error(context);
  return false;
}

bool host_worth(const AttentionOp& op, int threads) {
  if (threads == 1) return true;  // no thread is created for a graph
  const double pairs = static_cast<double>(op.batches) * static_cast<double>(op.queries) * static_cast<double>(op.keys);
  return pairs * static_cast<double>(op.heads) * static_cast<double>(op.head_dim + op.value_dim) >=
         (op.queries < kTile ? kSplitWorkRows : kSplitWorkTiles);
}

Attention* host_attention(Engine& engine) { return new HostAttention(engine); }

}  // namespace tsr::ggml
