#include "device_attention.h"

#include <cstring>

namespace tsr::ggml {

namespace {

/**
 * Less than this is left to ggml: each attention taken makes two streams wait for each other twice, and ggml's CUDA graph is
 * one piece more. On an H200, 2026-12-01, a model of 8 layers, 32 and 8 heads of 128 (docs/llama.cpp.md has the rows):
 *
 * - Few queries, elements of keys and values. f16 lost 0.06 to 0.15 ms a token at 16,384 keys and gained 0.67 at 131,072, so
 *   that a line between is even at 26,000 to 38,000: 192 MB are 46,875. q8_0 and q4_0, which are read in half the time of
 *   ggml's or less, gained 0.27 and 0.33 ms at 16,384, and on a line are even at 6,000; at 4,096 the operator alone was
 *   slower. 25 million are 12,208.
 * - Many queries, multiply-adds. The operator gained 17 ns for each key in use of 512 queries; of that 19 to 40 us an
 *   attention were missing in prompts of 16,384 and 4,096 tokens: even at 1,100 to 2,400 keys. 8e9 are 1,908.
 */
constexpr double kWorthElements = 96e6, kWorthQuantised = 25e6, kWorthWork = 8e9;
constexpr int64_t kFewQueries = 16;

bool worth(const AttentionOp& op) {
  const double keys = static_cast<double>(op.batches) * static_cast<double>(op.keys);
  const auto dims = static_cast<double>(op.head_dim + op.value_dim);
  if (op.queries <= kFewQueries) {
    const double least = op.k.dtype == TSR_F16 ? kWorthElements : kWorthQuantised;
    return keys * static_cast<double>(op.kv_heads) * dims >= least;
  }
  return keys * static_cast<double>(op.queries) * static_cast<double>(op.heads) * dims >= kWorthWork;
}

/** All that a verdict depends on. */
std::vector<int64_t> key_of(const AttentionOp& op) {
  std::vector<int64_t> key = {op.batches, op.queries, op.keys, op.heads, op.kv_heads, op.head_dim, op.value_dim};
  for (const View* view : {&op.q, &op.k, &op.v, &op.out}) {
    for (int64_t n : {static_cast<int64_t>(view->dtype), view->batch_stride, view->token_stride, view->head_stride}) {
      key.push_back(n);
    }
  }
  for (const float x : {op.scale, op.max_bias, op.softcap}) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    key.push_back(bits);
  }
  key.push_back(op.sinks != nullptr);
  for (int i = 1; i < 4; i++) key.push_back(op.mask == nullptr ? 0 : op.mask->ne[i]);
  return key;
}

View compact(void* data, tsr_dtype dtype, const AttentionOp& op, int64_t dim) {
  return {data, dtype, op.queries * op.heads * dim, op.heads * dim, dim};
}

constexpr size_t kVerdicts = 4096;
/** Whose offsets and lengths a copy takes at once. */
constexpr int64_t kMostBatches = 4096;

}  // namespace

bool DeviceAttention::takes(const AttentionOp& op, std::string* why) {
  const Verdict& found = verdict(op);
  if (!found.taken) *why = found.why;
  return found.taken;
}

const DeviceAttention::Verdict& DeviceAttention::verdict(const AttentionOp& op) {
  const std::vector<int64_t> key = key_of(op);
  const auto found = verdicts_.find(key);
  if (found != verdicts_.end()) return found->second;
  if (verdicts_.size() >= kVerdicts) verdicts_.clear();
  return verdicts_.emplace(key, judge(op)).first->second;
}

DeviceAttention::Verdict DeviceAttention::judge(const AttentionOp& op) {
  const auto no = [](const std::string& why) { return Verdict{false, false, why}; };
  const tsr_dtype type = op.k.dtype;
  if (op.v.dtype != type || (type != TSR_F16 && type != TSR_Q8_0 && type != TSR_Q4_0)) {
    return no("k and v aren't both f16, q8_0 or q4_0");
  }
  if (op.max_bias > 0) return no("ALiBi");
  if (op.queries == 0 || op.keys == 0) return no("no queries or no keys");
  const ggml_tensor* mask = op.mask;
  if (mask != nullptr &&
      ((mask->ne[2] != 1 && mask->ne[2] != op.heads) || (mask->ne[3] != 1 && mask->ne[3] != op.batches))) {
    return no("a mask that repeats over some of the heads or streams");
  }
  if (static_cast<double>(op.batches) * static_cast<double>(op.heads) * static_cast<double>(op.queries) > INT32_MAX ||
      op.keys > INT32_MAX || op.batches > kMostBatches) {
    return no("too many rows");
  }
  if (!small_ && !worth(op)) return no("small (TESSERA_GGML_SMALL=take takes it)");
  std::string why, kernel, half;
  if (!best_kernel(op, TSR_F32, TSR_DTYPE_NONE, &kernel, &why)) return no(why);
  // Which of the two it will be is known from the mask's contents.
  if (mask != nullptr && !best_kernel(op, TSR_F32, TSR_F16, &half, &why)) return no(why);
  const bool other = best_kernel(op, TSR_F16, TSR_DTYPE_NONE, &half, &why) && half != kernel;
  return {true, other, ""};
}

/** False, and why, if it isn't one on matrix units: the others are slower than ggml's. */
bool DeviceAttention::best_kernel(const AttentionOp& op, tsr_dtype result, tsr_dtype bias, std::string* kernel,
                                  std::string* why) {
  AttentionOp with = op;
  with.out.dtype = result;
  Call call;
  describe_shape(with, TSR_F16, op.k.dtype, op.v.dtype, bias, &call);
  tsr_explanation explanation = {};
  explanation.struct_size = sizeof explanation;
  if (table_.explain(context_, &call.desc, &explanation) != TSR_OK) {
    *why = table_.last_error(context_);
    return false;
  }
  *kernel = explanation.kernel;
  const bool slow = kernel->find("-simt") != std::string::npos || kernel->find("-plain") != std::string::npos;
  if (slow) *why = "only " + *kernel + " can do it";
  return !slow;
}

Outcome DeviceAttention::compute(const AttentionOp& op, std::string* why) {
  const tsr_status status = run(op, why);
  if (status == TSR_OK) {
    counters.calls++;
  } else if (why->empty()) {
    *why = table_.last_error(context_);
  }
  return outcome_of(status);
}

tsr_status DeviceAttention::run(const AttentionOp& op, std::string* why) {
  const Part whole = {0, op.batches, 0, op.heads, 0, op.queries};
  const std::vector<MaskShape>* known = nullptr;
  if (op.mask != nullptr) {
    const tsr_status status = shapes(op, &known, why);
    if (status != TSR_OK) return status;
  }
  const bool by_shape = known != nullptr && exact(op, whole, known->data());
  const bool with_bias = op.mask != nullptr && !by_shape;

  // Kernels on matrix units want queries of K's type; ggml's own round them to f16, too.
  AttentionOp rounded = op;
  const auto elements = static_cast<uint64_t>(op.batches * op.queries * op.heads);
  void* data = nullptr;
  tsr_status status = queries_.at_least(elements * static_cast<uint64_t>(op.head_dim) * 2, &data);
  if (status != TSR_OK) return status;
  rounded.q = compact(data, TSR_F16, op, op.head_dim);
  const bool half_result = !with_bias && verdict(op).half_result;
  if (half_result) {
    status = result_.at_least(elements * static_cast<uint64_t>(op.value_dim) * 2, &data);
    if (status != TSR_OK) return status;
    rounded.out = compact(data, TSR_F16, op, op.value_dim);
  }
  status = convert(op, op.q, rounded.q, op.head_dim);
  if (status != TSR_OK) return status;

  Bias bias = {};
  if (with_bias) {
    const ggml_tensor* mask = op.mask;
    const auto stride = [&](int i) { return mask->ne[i] == 1 ? 0 : static_cast<int64_t>(mask->nb[i] / 2); };
    bias = {mask->data, TSR_F16, stride(3), stride(2), static_cast<int64_t>(mask->nb[1] / 2)};
  }
  Call call;
  describe(rounded, whole, op.k, op.v, known != nullptr ? known->data() : nullptr, with_bias ? &bias : nullptr, &call);
  status = place_numbers(&call);
  if (status != TSR_OK) return status;
  uint64_t bytes = 0;
  status = table_.attention_workspace(context_, &call.desc, &bytes);
  if (status == TSR_OK && bytes > 0) {
    status = workspace_.at_least(bytes, &call.desc.workspace);
    call.desc.workspace_bytes = bytes;
  }
  if (status == TSR_OK) status = table_.attention(context_, nullptr, &call.desc);
  if (status == TSR_OK && half_result) status = convert(op, rounded.out, op.out, op.value_dim);
  if (status == TSR_OK) {
    (op.mask == nullptr ? counters.without_mask : by_shape ? counters.by_shape : counters.with_bias)++;
  }
  return status;
}

/** A graph has one mask for all of its layers, or two: read once. */
tsr_status DeviceAttention::shapes(const AttentionOp& op, const std::vector<MaskShape>** shapes, std::string* why) {
  const auto key = std::make_pair(op.mask, op.queries);
  auto found = masks_.find(key);
  if (found == masks_.end()) {
    std::vector<MaskShape> made;
    const tsr_status status = mask_.read(op, &made, why);
    if (status != TSR_OK) return status;
    found = masks_.emplace(key, std::move(made)).first;
  }
  *shapes = &found->second;
  return TSR_OK;
}

tsr_status DeviceAttention::convert(const AttentionOp& op, const View& from, const View& to, int64_t dim) {
  const int64_t rows = op.batches * op.queries * op.heads;
  const auto bytes = static_cast<uint64_t>(rows) * sizeof(float);
  void* zeros = nullptr;
  bool grown = false;
  tsr_status status = zeros_.at_least(bytes, &zeros, &grown);
  if (status == TSR_OK && grown) status = table_.fill(context_, nullptr, zeros, 0, bytes);
  if (status != TSR_OK) return status;
  const auto of = [&](const View& view) {
    return tensor(view.data, view.dtype, {op.batches, op.queries, op.heads, dim},
                  {view.batch_stride, view.token_stride, view.head_stride, 1});
  };
  const tsr_tensor part = of(from), out = of(to);
  // One part has the weight 1, whatever its lse.
  const tsr_tensor lse =
      tensor(zeros, TSR_F32, {op.batches, op.heads, op.queries}, {op.heads * op.queries, op.queries, 1});
  const tsr_tensor *outs[] = {&part}, *lses[] = {&lse};
  tsr_merge_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.count = 1;
  desc.outs = outs;
  desc.lses = lses;
  desc.out = &out;
  return table_.merge(context_, nullptr, &desc);
}

/** Offsets and lengths of streams that differ. */
tsr_status DeviceAttention::place_numbers(Call* call) {
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

}  // namespace tsr::ggml
