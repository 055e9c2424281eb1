// Check, select, translate, plan, launch: every call of the attention kind goes the same way and stops where it has its
// answer. Nothing is allocated and no string is built on the way of a call that succeeds.
#include "api.h"
#include "catalogue.h"
#include "context.h"
#include "tessera/common/attention_key.h"
#include "tessera/common/device_translate.h"

namespace tsr::cuda::host {
namespace {

// Lengths and pages are in the device's memory: the kernels clamp them.
CheckOptions options(bool shapes_only) {
  CheckOptions o;
  o.max_head_dim = kMaxHeadDim;
  o.shapes_only = shapes_only;
  o.host_readable = false;
  return o;
}

struct Ready {
  const Kernel* kernel = nullptr;
  Attention attention;
  Plan plan;
};

// What a launch can't do is found here, so that supports and attention are of one opinion.
Verdict check_launch(const Ready& ready) {
  const Attention& a = ready.attention;
  const Plan& plan = ready.plan;
  if (plan.threads == 0) {
    return unsupported(ready.kernel->name, ": none of its tiles fits this device's shared memory");
  }
  if (a.max_keys > INT32_MAX && ready.kernel->tensor_cores) {
    return unsupported("k: ", a.max_keys, " keys in a sequence, must be at most ", INT32_MAX, " for ",
                       ready.kernel->name);
  }
  const auto blocks = static_cast<double>(a.batch) * a.heads * plan.splits *
                      static_cast<double>((a.max_queries + plan.tile_q - 1) / plan.tile_q);
  if (blocks > INT32_MAX)
    return unsupported("q: makes more tiles than CUDA launches at once, must be at most ", INT32_MAX);
  return {};
}

Verdict plan(const tsr_context& context, const Problem& problem, const Variant& row, Ready* ready) {
  TSR_TRY(translate(problem, &ready->attention));
  ready->kernel = &kernel_of(row);
  ready->plan = ready->kernel->plan(ready->attention, context.limits);
  return check_launch(*ready);
}

Verdict select(const tsr_context& context, const Problem& problem, Ready* ready) {
  const Selection selection = select_variant(context.rows, problem, preference, false);
  if (selection.row == nullptr) return selection.verdict;
  return plan(context, problem, *selection.row, ready);
}

/// Of the attention that this thread enqueued last.
struct Last {
  AttentionKey key;
  Ready ready;
};
thread_local Last last;

/// What a call that works is to launch: at once, if its descriptor differs from the thread's last only in addresses.
Verdict prepare(const tsr_context& context, const tsr_attention_desc* desc, Ready* ready) {
  AttentionKey key;
  const bool comparable = key.read(context.key, desc);
  if (key == last.key) {
    *ready = last.ready;
    set_addresses(*desc, &ready->attention);
    return {};
  }
  Problem problem;
  TSR_TRY(check_attention(desc, options(false), &problem));
  TSR_TRY(select(context, problem, ready));
  if (comparable) last = {key, *ready};
  return {};
}

struct Needs {
  uint64_t workspace_bytes = 0;
  int64_t batch = 0;
};

/// What a call whose tensors may lack addresses needs.
Verdict look(const tsr_context& context, const tsr_attention_desc* desc, Needs* needs) {
  AttentionKey key;
  key.read(context.key, desc);
  if (key == last.key) {
    *needs = {last.ready.plan.workspace_bytes, last.ready.attention.batch};
    return {};
  }
  Problem problem;
  TSR_TRY(check_attention(desc, options(true), &problem));
  Ready ready;
  TSR_TRY(select(context, problem, &ready));
  *needs = {ready.plan.workspace_bytes, ready.attention.batch};
  return {};
}

Verdict read_append(const tsr_decode_desc& parts, bool shapes_only, Append* append) {
  AppendProblem problem;
  TSR_TRY(in_part("append", check_append(parts.append, options(shapes_only), &problem)));
  return translate(problem, append);
}

Verdict launch(tsr_context& context, const tsr_stream& on, const Ready& ready, void* workspace) {
  const Attention& a = ready.attention;
  if (a.batch == 0 || a.heads == 0 || a.query_rows == 0) return {};
  const cudaError_t error = ready.kernel->launch(a, ready.plan, workspace, on.native);
  return error == cudaSuccess ? Verdict{} : context.gpu->check(error, text("launch of ", ready.kernel->name).c_str());
}

std::string notes_of(const tsr_context& context, const Problem& problem, const Kernel& kernel) {
  std::string notes = context.code.ptx ? text("PTX of compute_", context.code.arch, ", compiled by the driver for sm_",
                                              context.device.arch)
                                       : text("sm_", context.code.arch, " code on sm_", context.device.arch);
  if (context.device.arch != 90) notes += "; never run on this hardware: only sm_90 was";
  for (const tsr::View* view : {&problem.k, &problem.v}) {
    if (view->dtype == problem.q.dtype) continue;
    notes += text("; ", view == &problem.k ? "k (" : "v (", dtype_name(view->dtype), ") is converted as it is read");
  }
  if (!kernel.tensor_cores) notes += "; fp32 arithmetic without tensor cores";
  return notes + "; a NaN or infinity in v can reach other queries of a tile that sees only part of it";
}

void fill_explanation(const tsr_context& context, const Problem& problem, const Variant& row, const Ready& ready,
                      tsr_explanation* e) {
  e->family = row.family;
  copy_text(e->kernel, row.name);
  e->tile_q = ready.plan.tile_q;
  e->tile_k = ready.plan.tile_k;
  e->stages = ready.plan.stages;
  e->splits = ready.plan.splits;
  e->threads = ready.plan.threads;
  e->shared_bytes = ready.plan.shared_bytes;
  e->workspace_bytes = ready.plan.workspace_bytes;
  copy_text(e->notes, notes_of(context, problem, *ready.kernel).c_str());
}

Verdict launch_append_of(tsr_context& context, const tsr_stream& on, const Append& append) {
  if (append.batch == 0 || append.rows == 0) return {};
  return context.gpu->check(launch_append(append, on.native), "launch of the append");
}

}  // namespace

int32_t kernel_count(tsr_context* context) { return context ? static_cast<int32_t>(context->rows.size()) : 0; }

tsr_status kernel_info(tsr_context* context, int32_t index, tsr_kernel_info* info) {
  return enter(context, [&]() -> Verdict {
    const auto count = static_cast<int32_t>(context->rows.size());
    if (index < 0 || index >= count) return invalid("index: is ", index, ", must be 0 to ", count - 1);
    tsr_kernel_info i{};
    describe(context->rows[static_cast<size_t>(index)], &i);
    return write_struct(i, "info", info);
  });
}

tsr_status supports(tsr_context* context, const tsr_attention_desc* desc) {
  return enter(context, [&]() -> Verdict {
    Problem problem;
    TSR_TRY(check_attention(desc, options(true), &problem));
    Ready ready;
    return select(*context, problem, &ready);
  });
}

tsr_status explain(tsr_context* context, const tsr_attention_desc* desc, tsr_explanation* explanation) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(explanation);
    Problem problem;
    TSR_TRY(check_attention(desc, options(true), &problem));
    const Selection selection = select_variant(context->rows, problem, preference, true);
    tsr_explanation e{};
    Verdict verdict = selection.verdict;
    if (selection.row != nullptr) {
      Ready ready;
      verdict = plan(*context, problem, *selection.row, &ready);
      if (verdict.ok()) fill_explanation(*context, problem, *selection.row, ready, &e);
    }
    TSR_TRY(write_explanation(selection.rejections, e, explanation));
    return verdict;
  });
}

tsr_status attention_workspace(tsr_context* context, const tsr_attention_desc* desc, uint64_t* bytes) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(bytes);
    Needs needs;
    TSR_TRY(look(*context, desc, &needs));
    *bytes = needs.workspace_bytes;
    return {};
  });
}

tsr_status attention(tsr_context* context, tsr_stream* stream, const tsr_attention_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    Ready ready;
    TSR_TRY(prepare(*context, desc, &ready));
    const Workspace workspace = given_workspace(desc);
    TSR_TRY(check_workspace(workspace, ready.plan.workspace_bytes));
    return launch(*context, on, ready, workspace.data);
  });
}

tsr_status decode_workspace(tsr_context* context, const tsr_decode_desc* desc, uint64_t* bytes) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(bytes);
    tsr_decode_desc parts;
    TSR_TRY(read_decode(desc, &parts));
    Append append;
    if (parts.append != nullptr) TSR_TRY(read_append(parts, true, &append));
    Needs needs;
    TSR_TRY(in_part("attention", look(*context, parts.attention, &needs)));
    if (parts.append != nullptr) TSR_TRY(check_batches(append.batch, needs.batch));
    *bytes = needs.workspace_bytes;
    return {};
  });
}

// Everything that can be wrong is found before the append is launched.
tsr_status decode(tsr_context* context, tsr_stream* stream, const tsr_decode_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    Ready ready;
    Append append;
    tsr_decode_desc parts;
    TSR_TRY(read_decode(desc, &parts));
    const bool appends = parts.append != nullptr;
    if (appends) TSR_TRY(read_append(parts, false, &append));
    TSR_TRY(in_part("attention", prepare(*context, parts.attention, &ready)));
    if (appends) TSR_TRY(check_batches(append.batch, ready.attention.batch));
    const Workspace workspace = given_workspace(parts.attention);
    TSR_TRY(check_workspace(workspace, ready.plan.workspace_bytes));
    if (appends) TSR_TRY(launch_append_of(*context, on, append));
    return launch(*context, on, ready, workspace.data);
  });
}

tsr_status kv_append(tsr_context* context, tsr_stream* stream, const tsr_append_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    AppendProblem problem;
    TSR_TRY(check_append(desc, options(false), &problem));
    Append append;
    TSR_TRY(translate(problem, &append));
    return launch_append_of(*context, on, append);
  });
}

tsr_status merge(tsr_context* context, tsr_stream* stream, const tsr_merge_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    MergeProblem problem;
    TSR_TRY(check_merge(desc, options(false), &problem));
    Merge m;
    TSR_TRY(translate(problem, &m));
    if (m.batch == 0 || m.rows == 0 || m.heads == 0) return {};
    return context->gpu->check(launch_merge(m, on.native), "launch of the merge");
  });
}

}  // namespace tsr::cuda::host
