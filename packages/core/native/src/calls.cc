#include "calls.h"

#include "session.h"

namespace tessera {
namespace {

// Work is counted in multiply-adds; a portable kernel on a slow core does about one in a nanosecond.
constexpr double kTinyWork = 10000;
// One score costs its exponential, mask and loads besides its D + Dv multiply-adds.
constexpr double kWorkPerScore = 24;
// One appended element costs conversion, and possibly a rotation.
constexpr double kWorkPerElement = 4;
// One merged element costs a load, a conversion and two multiply-adds.
constexpr double kWorkPerMerged = 4;

double elements(const tsr_tensor* tensor) {
  if (!tensor) return 0;
  double count = 1;
  for (int32_t d = 0; d < tensor->rank; d++) count *= static_cast<double>(tensor->shape[d]);
  return count;
}

double last(const tsr_tensor* tensor) {
  return tensor->rank > 0 ? static_cast<double>(tensor->shape[tensor->rank - 1]) : 1;
}

// An upper bound: every query against every key that its sequence could have.
double attentionWork(const tsr_attention_desc& desc) {
  const double headDim = last(desc.q);
  const double rows = headDim > 0 ? elements(desc.q) / headDim : 0;
  double keys = 1;
  if (desc.page_table && desc.page_table->rank == 2 && desc.k->rank == 4) {
    keys = static_cast<double>(desc.page_table->shape[1]) * static_cast<double>(desc.k->shape[1]);
  } else if (desc.k->rank == 4) {
    keys = static_cast<double>(desc.k->shape[1]);
  } else if (desc.k->rank == 3) {
    keys = static_cast<double>(desc.k->shape[0]);
  }
  return rows * (keys * (headDim + last(desc.v) + kWorkPerScore) + last(desc.v));
}

double appendWork(const tsr_append_desc& desc) {
  const double rotation = desc.rope ? 4 : 1;
  return kWorkPerElement * ((elements(desc.k) + elements(desc.q)) * rotation + elements(desc.v));
}

double mergeWork(const tsr_merge_desc& desc) { return kWorkPerMerged * elements(desc.out) * desc.count; }

}  // namespace

bool CallJob::tiny() const {
  double work = 0;
  if (call_ == Call::attention || call_ == Call::decode) work += attentionWork(arguments.attention);
  if (call_ == Call::append || arguments.decode.append) work += appendWork(arguments.append);
  if (call_ == Call::merge) work += mergeWork(arguments.merge);
  return work < kTinyWork;
}

void CallJob::run(Session& session) {
  Device& device = session.device();
  const tsr_backend* backend = device.backend();
  tsr_context* context = device.context();
  tsr_attention_desc& attention = arguments.attention;
  static_assert(sizeof cancel == sizeof(int32_t) && std::atomic<int32_t>::is_always_lock_free,
                "the flag is what the back end polls");
  if (call_ == Call::attention || call_ == Call::decode) {
    uint64_t bytes = 0;
    device.check(call_ == Call::attention ? backend->attention_workspace(context, &attention, &bytes)
                                          : backend->decode_workspace(context, &arguments.decode, &bytes));
    attention.workspace = session.workspace(bytes);
    attention.workspace_bytes = bytes;
    // A device with queues, or a graph, would look at it when this job is long gone.
    if (!device.async() && !session.capturing()) {
      attention.cancel = reinterpret_cast<const volatile int32_t*>(&cancel);
    }
  }
  tsr_status status = TSR_INTERNAL;
  switch (call_) {
    case Call::attention:
      status = backend->attention(context, nullptr, &attention);
      break;
    case Call::append:
      status = backend->kv_append(context, nullptr, &arguments.append);
      break;
    case Call::decode:
      status = backend->decode(context, nullptr, &arguments.decode);
      break;
    case Call::merge:
      status = backend->merge(context, nullptr, &arguments.merge);
      break;
  }
  device.check(status);
  if (device.async()) session.submitted();
  if (session.capturing()) session.captured(arguments.keep);
  session.releaseLargeWorkspace();
}

}  // namespace tessera
