#include "device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>

namespace fuzz {

Device::~Device() {
  release();
  for (tsr_context* context : contexts_) backend_->context_destroy(context);
}

int Device::open(const char* library, std::string* trouble) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const auto entry = handle ? reinterpret_cast<tsr_backend_entry_fn>(dlsym(handle, "tsr_backend_entry")) : nullptr;
  backend_ = entry ? entry(TSR_ABI_VERSION) : nullptr;
  if (backend_ == nullptr) {
    const char* const error = dlerror();
    *trouble = std::string(library) + ": " + (error ? error : "no back end of this version of the contract");
    return 2;
  }
  name_ = backend_->name;
  tsr_probe_result probe{};
  probe.struct_size = sizeof probe;
  backend_->probe(&probe);
  if (probe.state != TSR_PROBE_USABLE) {
    *trouble = "no device for " + name_ + ": " + probe.reason;
    return 77;
  }
  tsr_device_info info{};
  info.struct_size = sizeof info;
  if (backend_->device_info(0, &info) == TSR_OK) host_memory_ = (info.caps & TSR_DEVICE_HOST_MEMORY) != 0;
  for (int32_t threads = 1; threads <= (host_memory_ ? 3 : 1); threads++) {
    tsr_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.threads = threads;
    tsr_context* context = nullptr;
    if (backend_->context_create(&desc, &context) != TSR_OK) {
      *trouble = backend_->last_error(nullptr);
      return 1;
    }
    contexts_.push_back(context);
  }
  context_ = contexts_[0];
  for (int32_t i = 0; i < backend_->kernel_count(context_); i++) {
    tsr_kernel_info kernel{};
    kernel.struct_size = sizeof kernel;
    if (backend_->kernel_info(context_, i, &kernel) != TSR_OK || !kernel.usable) continue;
    if ((kernel.flags & TSR_KERNEL_ROUNDS_Q) != 0)
      continue;  // another problem than the oracle has; conformance judges them
    kernels_.push_back(kernel.name);
    if ((kernel.flags & TSR_KERNEL_FLUSHES) != 0) flushing_.insert(kernel.name);
  }
  return 0;
}

void Device::place(uint64_t seed, const std::vector<Tensor*>& inputs, const std::vector<Tensor*>& outputs) {
  context_ = contexts_[seed % contexts_.size()];
  if (host_memory_) return;
  for (const auto* all : {&inputs, &outputs}) {
    for (Tensor* t : *all) {
      tsr_buffer* buffer = nullptr;
      if (backend_->buffer_create(context_, t->bytes(), &buffer) == TSR_OK) buffers_[t] = buffer;
    }
  }
  for (Tensor* t : inputs) send(*t);
}

uint8_t* Device::base_of(Tensor& t) {
  if (host_memory_) return t.memory();
  const auto found = buffers_.find(&t);
  return found == buffers_.end() ? nullptr : static_cast<uint8_t*>(backend_->buffer_data(found->second));
}

bool Device::send(Tensor& t) {
  return host_memory_ ||
         (backend_->copy(context_, nullptr, base_of(t), t.memory(), t.bytes(), TSR_COPY_HOST_TO_DEVICE) == TSR_OK &&
          backend_->stream_synchronize(context_, nullptr) == TSR_OK);
}

bool Device::fetch(Tensor& t) {
  return host_memory_ ||
         (backend_->copy(context_, nullptr, t.memory(), base_of(t), t.bytes(), TSR_COPY_DEVICE_TO_HOST) == TSR_OK &&
          backend_->stream_synchronize(context_, nullptr) == TSR_OK);
}

void Device::release() {
  for (const auto& [tensor, buffer] : buffers_) backend_->buffer_destroy(buffer);
  buffers_.clear();
}

namespace {

/// Tensors of one call as the contract wants them, with addresses that stay.
class Described {
 public:
  template <class Base>
  explicit Described(Base&& base) : base_(base) {}
  const tsr_tensor* operator()(const Holder& t) {
    if (!t) return nullptr;
    all_.push_back(t->described(base_(*t)));
    return &all_.back();
  }

 private:
  std::function<uint8_t*(Tensor&)> base_;
  std::deque<tsr_tensor> all_;
};

}  // namespace

// What every call is held to. `call` returns its status.
template <class Call>
Device::Outcome Device::run(const std::vector<Tensor*>& outputs, Call&& call) {
  Outcome outcome;
  for (Tensor* t : outputs) {
    if (!send(*t)) outcome.trouble = "the memory of " + t->name() + " can't be written";
  }
  outcome.status = call();
  if (outcome.status != TSR_OK) outcome.text = backend_->last_error(context_);
  const tsr_status waited = backend_->stream_synchronize(context_, nullptr);
  if (waited != TSR_OK) outcome.trouble = std::string("the device failed: ") + backend_->last_error(context_);
  if (outcome.status != TSR_OK && outcome.status != TSR_UNSUPPORTED) outcome.trouble = "refused: " + outcome.text;
  if (outcome.status == TSR_UNSUPPORTED && outcome.text.empty()) outcome.trouble = "declined without a reason";
  for (Tensor* t : outputs) {
    if (!fetch(*t)) outcome.trouble = "the memory of " + t->name() + " can't be read";
  }
  return outcome;
}

Device::Outcome Device::append(Append& a) {
  Described as([this](Tensor& t) { return base_of(t); });
  tsr_append_desc d{};
  d.struct_size = sizeof d;
  if (a.advance) d.flags = TSR_APPEND_ADVANCE;
  d.k = as(a.k), d.v = as(a.v), d.q = as(a.q), d.q_out = as(a.in_place ? a.q : a.q_out);
  d.cache_k = as(a.cache_k), d.cache_v = as(a.cache_v), d.page_table = as(a.table);
  d.lengths = as(a.lengths), d.new_lens = as(a.new_lens), d.cu_seqlens = as(a.cu);
  d.k_scale = as(a.k_scale), d.v_scale = as(a.v_scale);
  tsr_rope_desc rope{};
  rope.struct_size = sizeof rope;
  rope.pairing = a.interleaved ? TSR_ROPE_INTERLEAVED : TSR_ROPE_HALF;
  rope.theta = a.theta;
  rope.scale = a.rope_scale;
  rope.dims = a.rope_dims;
  rope.positions = as(a.positions);
  if (a.rope) d.rope = &rope;
  return run(a.outputs(), [&] { return backend_->kv_append(context_, nullptr, &d); });
}

Device::Outcome Device::merge(Merge& m) {
  Described as([this](Tensor& t) { return base_of(t); });
  std::vector<const tsr_tensor*> outs, lses;
  for (const Holder& t : m.outs) outs.push_back(as(t));
  for (const Holder& t : m.lses) lses.push_back(as(t));
  tsr_merge_desc d{};
  d.struct_size = sizeof d;
  d.count = static_cast<int32_t>(outs.size());
  d.outs = outs.data(), d.lses = lses.data();
  d.out = as(m.out), d.lse = as(m.lse);
  return run(m.outputs(), [&] { return backend_->merge(context_, nullptr, &d); });
}

Device::Outcome Device::attend(Problem& p, const std::string& kernel, int32_t splits) {
  Described as([this](Tensor& t) { return base_of(t); });
  tsr_attention_desc d{};
  d.struct_size = sizeof d;
  d.q = as(p.q), d.k = as(p.k), d.v = as(p.v), d.out = as(p.out), d.lse = as(p.lse);
  d.bias = as(p.bias), d.mask = as(p.mask), d.alibi_slopes = as(p.alibi), d.sinks = as(p.sinks);
  d.query_offset = as(p.query_offset), d.seq_lens_q = as(p.lens_q), d.seq_lens_k = as(p.lens_k);
  d.cu_seqlens_q = as(p.cu_q), d.cu_seqlens_k = as(p.cu_k), d.page_table = as(p.table);
  d.k_scale = as(p.k_scale), d.v_scale = as(p.v_scale);
  if (p.has_scale) d.present |= TSR_HAS_SCALE, d.scale = p.scale;
  if (p.has_window) d.present |= TSR_HAS_WINDOW, d.window_left = p.window_left, d.window_right = p.window_right;
  d.softcap = p.softcap;
  d.causal = p.causal;
  d.align = p.align;
  if (p.packed_q && p.tell_most) d.max_seqlen_q = p.queries;
  if (p.packed_k && p.tell_most) d.max_seqlen_k = p.keys;
  d.kernel = kernel.empty() ? nullptr : kernel.c_str();
  d.num_splits = splits;

  const tsr_status supported = backend_->supports(context_, &d);
  uint64_t needed = 0;
  const tsr_status sized = backend_->attention_workspace(context_, &d, &needed);
  uint8_t* workspace = nullptr;
  tsr_buffer* buffer = nullptr;
  if (sized == TSR_OK && needed > 0) {
    if (host_memory_)
      workspace = static_cast<uint8_t*>(std::aligned_alloc(64, (needed + 127) / 64 * 64));
    else if (backend_->buffer_create(context_, needed + 64, &buffer) == TSR_OK)
      workspace = static_cast<uint8_t*>(backend_->buffer_data(buffer));
    if (workspace != nullptr) {
      backend_->fill(context_, nullptr, workspace, kPoison, needed);
      backend_->fill(context_, nullptr, workspace + needed, kCanary, 64);
    }
  }
  d.workspace = workspace;
  d.workspace_bytes = needed;
  Outcome outcome = run(p.outputs(), [&] { return backend_->attention(context_, nullptr, &d); });
  if (outcome.status != supported || outcome.status != sized)
    outcome.trouble = "supports says " + std::to_string(supported) + ", attention_workspace " + std::to_string(sized) +
                      ", attention " + std::to_string(outcome.status) + ": " + outcome.text;
  if (workspace != nullptr) {
    uint8_t guard[64];
    backend_->copy(context_, nullptr, guard, workspace + needed, sizeof guard, TSR_COPY_DEVICE_TO_HOST);
    backend_->stream_synchronize(context_, nullptr);
    if (!std::all_of(guard, guard + sizeof guard, [](uint8_t byte) { return byte == kCanary; }))
      outcome.trouble = "bytes behind the workspace were written";
  }
  tsr_explanation explanation{};
  explanation.struct_size = sizeof explanation;
  if (outcome.status == TSR_OK) {
    if (backend_->explain(context_, &d, &explanation) == TSR_OK)
      outcome.kernel = explanation.kernel, outcome.splits = explanation.splits;
    else
      outcome.trouble = std::string("explain refuses what ran: ") + backend_->last_error(context_);
  }
  if (host_memory_) std::free(workspace);
  backend_->buffer_destroy(buffer);
  return outcome;
}

}  // namespace fuzz
